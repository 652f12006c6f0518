"""Groups of envs that step while others act: the same rollouts in the same order, whoever is faster."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from kill import outcome, run_and_kill, same, small_config
from policy_learners import CPU, FOREVER, learner_for, weights
from scripted_envs import ScriptedEnvs

import swell.runs.build
from swell.collect import collector as collect
from swell.collect import env_groups
from swell.collect.collector import Collector
from swell.collect.env_groups import EnvGroups
from swell.envs import EnvSettings, make_envs
from swell.errors import EnvironmentFailedError
from swell.runs import driver
from swell.runs.start import resume, run
from swell.runs.state_tree import decode_tree, encode_tree
from swell.types import BatchPlan

FIELDS = ("observations", "actions", "rewards", "terminated", "truncated", "valid")
PATIENCE_SECONDS = 60.0
"""Only a failing test waits that long."""


class Balancer:
    """Pushes CartPole's cart to the side to which the pole leans, and notes the calls."""

    def __init__(self):
        self.calls = []

    def act(self, observations, progress):
        self.calls.append((observations.shape[0], progress))
        return (observations[:, 2] > 0).long(), {"values": observations.sum(dim=1)}


def cart_poles(num_envs, seed, **settings):
    return make_envs(EnvSettings("CartPole-v1", num_envs, seed, **settings))


def columns_of(rollout, chosen):
    """What a rollout says about some of its envs; last observations by step and env, counted from the first chosen."""
    rows = {name: getattr(rollout, name)[:, chosen] for name in FIELDS}
    steps, envs = rollout.final_indices // rollout.actions.shape[1], rollout.final_indices % rollout.actions.shape[1]
    own = (envs >= chosen.start) & (envs < chosen.stop)
    rows |= {name: recorded[:, chosen] for name, recorded in rollout.recorded.items()}
    rows["finals"] = rollout.final_observations[own]
    rows["final_places"] = torch.stack([steps[own], envs[own] - chosen.start])
    return {name: tensor.clone() for name, tensor in rows.items()}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["next-step", "same-step"])
def test_groups_are_collectors_side_by_side(asynchronous):
    """Both conventions of episode ends, with time limits; the groups differ in size."""
    settings = {"asynchronous": asynchronous, "max_episode_steps": 7}
    both = Collector([cart_poles(3, 1, **settings), cart_poles(2, 2, **settings)], 12, CPU)
    alone = [Collector(cart_poles(3, 1, **settings), 12, CPU), Collector(cart_poles(2, 2, **settings), 12, CPU)]
    finals = 0
    for horizon in (5, 12, 1, 9):
        rollout = both.collect(Balancer(), horizon, FOREVER)
        finals += len(rollout.final_indices)
        for collector, columns in zip(alone, (slice(0, 3), slice(3, 5)), strict=True):
            expected = collector.collect(Balancer(), horizon, FOREVER)
            assert same(columns_of(rollout, columns), columns_of(expected, slice(0, columns.stop - columns.start)))
    assert (finals > 0) == asynchronous
    assert both.env_steps == sum(collector.env_steps for collector in alone)
    assert both.num_rollouts == 4
    assert both.episodes.finished == sum(collector.episodes.finished for collector in alone) > 0
    assert sorted(both.episodes.returns) == sorted([*alone[0].episodes.returns, *alone[1].episodes.returns])
    for collector in (both, *alone):
        collector.envs.close()


class Meeting:
    """Who has done what how often, for threads that wait for each other."""

    def __init__(self):
        self.counts = Counter()
        self.changed = threading.Condition()

    def note(self, what):
        with self.changed:
            self.counts[what] += 1
            self.changed.notify_all()
            return self.counts[what]

    def wait_for(self, what, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.counts[what] >= count, PATIENCE_SECONDS), f"no {what} meanwhile"


class MeetingEnvs(ScriptedEnvs):
    """Envs that begin a step and do not end it before the other group was acted for."""

    def __init__(self, group, meeting, acts_awaited):
        super().__init__()
        self.group, self.meeting, self.acts_awaited = group, meeting, acts_awaited

    def _observations(self):
        return super()._observations() + np.array([10 * self.group, 0, 0], dtype=np.float32)

    def step(self, actions):
        steps = self.meeting.note(f"step of {self.group}")
        self.meeting.wait_for(f"act for {1 - self.group}", self.acts_awaited(steps))
        return super().step(actions)


class MeetingLearner:
    """A learner that is not done with acting for one group before the other has begun its step."""

    def __init__(self, meeting):
        self.meeting = meeting

    def act(self, observations, progress):
        group = int(observations[0, 0]) // 10
        acts = self.meeting.note(f"act for {group}")
        self.meeting.wait_for(f"step of {1 - group}", acts if group else acts - 1)
        return torch.zeros(len(observations), dtype=torch.long), {}


def test_one_group_is_acted_for_while_the_other_steps():
    """The first group's step n holds the second's act n, and the second's step n the first's act n + 1."""
    meeting, horizon = Meeting(), 6
    first = MeetingEnvs(0, meeting, lambda steps: steps)
    second = MeetingEnvs(1, meeting, lambda steps: min(steps + 1, horizon))
    rollout = Collector([first, second], horizon, CPU).collect(MeetingLearner(meeting), horizon, FOREVER)
    assert set(meeting.counts.values()) == {horizon}
    assert rollout.horizon == horizon and rollout.observations[-1, :, 0].tolist() == [0, 1, 10, 11]


def test_groups_act_by_turns_and_hear_the_same_progress():
    learner = Balancer()
    Collector([cart_poles(3, 1), cart_poles(2, 2)], 8, CPU).collect(learner, 8, 100)
    assert [count for count, _ in learner.calls] == 8 * [3, 2]
    told = [round(100 * progress) for _, progress in learner.calls]
    assert told[0::2] == told[1::2] == [0, 3, 8, 13, 18, 23, 28, 33], "not what is known when the first group acts"


@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("total", range(20, 33))
def test_the_total_is_met_at_the_first_step_that_reaches_it(next_step, total):
    """Though the second group's last step is not known when the first could act again."""

    def groups():
        return [ScriptedEnvs(2, next_step), ScriptedEnvs(1, next_step)]

    whole = Collector(groups(), 30, CPU).collect(Balancer(), 30, FOREVER)
    counted = whole.valid.sum(dim=1).cumsum(dim=0)
    expected = int((counted < total).sum()) + 1
    collector = Collector(groups(), 30, CPU)
    rollout = collector.collect(Balancer(), 30, total)
    assert rollout.horizon == expected
    assert collector.env_steps == counted[expected - 1] == rollout.valid.sum()


def test_a_restored_run_goes_on_exactly():
    """Weights, rollouts and statistics, from a checkpoint in the middle."""

    def made():
        groups = [cart_poles(3, 1), cart_poles(3, 2)]
        return learner_for(groups[0], "pqn"), Collector(groups, 16, CPU)

    def iterate(learner, collector, iterations):
        for _ in range(iterations):
            learner.update(collector.collect(learner, 16, 2000), BatchPlan(16, 2, 4), 0.0)

    learner, collector = made()
    iterate(learner, collector, 5)
    state = decode_tree(*encode_tree({"learner": learner.state_dict(), "collector": collector.state_dict()}))
    iterate(learner, collector, 5)
    resumed_learner, resumed_collector = made()
    resumed_learner.load_state_dict(state["learner"])
    assert resumed_collector.load_state_dict(state["collector"])
    iterate(resumed_learner, resumed_collector, 5)
    assert torch.equal(weights(resumed_learner), weights(learner))
    assert collector.episodes.finished > 10
    ours, theirs = resumed_collector.state_dict(), collector.state_dict()
    assert same({**ours, "seconds": None}, {**theirs, "seconds": None})


class ForgetfulEnvs(ScriptedEnvs):
    resume_tier = "continuing"

    def state_dict(self):
        return {}

    def load_state_dict(self, state, resume_count):
        return self.reset() + 100.0


def test_only_the_group_that_starts_anew_loses_its_episodes():
    def made():
        return Collector([ScriptedEnvs(2), ForgetfulEnvs(2)], 10, CPU)

    collector, restored = made(), made()
    collector.collect(Balancer(), 5, FOREVER)
    assert not restored.load_state_dict(collector.state_dict(), resume_count=1)
    assert restored.envs.resume_tier == "continuing"
    assert restored.episodes.abandoned == 2
    first = restored.collect(Balancer(), 1, FOREVER).observations[0]
    assert first[:, 2].tolist() == [2, 1, 100, 100]
    restored.collect(Balancer(), 4, FOREVER)
    assert sorted(restored.episodes.returns) == 5 * [6.0] + 4 * [10.0]


def test_the_weakest_promise_is_the_promise_of_all():
    assert EnvGroups([ScriptedEnvs(), ScriptedEnvs()]).resume_tier == "exact"
    assert EnvGroups([ForgetfulEnvs(), ScriptedEnvs()]).resume_tier == "continuing"


class FailingEnvs(ScriptedEnvs):
    def __init__(self, failing_step):
        super().__init__()
        self.failing_step = failing_step
        self.closed = False

    def step(self, actions):
        if len(self.actions_seen) + 1 == self.failing_step:
            raise EnvironmentFailedError("scripted: env 1 failed at step 3") from ValueError("broken")
        return super().step(actions)

    def close(self):
        self.closed = True


@pytest.mark.parametrize("failing_steps", [(3, 99), (99, 3), (3, 3)])
def test_a_failure_in_a_thread_is_raised_where_the_rollout_is_collected(failing_steps):
    groups = [FailingEnvs(step) for step in failing_steps]
    collector = Collector(groups, 10, CPU)
    with pytest.raises(EnvironmentFailedError, match="env 1 failed at step 3") as caught:
        collector.collect(Balancer(), 10, FOREVER)
    assert isinstance(caught.value.__cause__, ValueError)
    collector.envs.close()
    assert [envs.closed for envs in groups] == [True, True]


def test_an_interrupted_call_leaves_groups_that_can_go_on():
    class Interrupted(Balancer):
        def act(self, observations, progress):
            if len(self.calls) == 5:  # the first group is one step ahead then
                raise KeyboardInterrupt
            return super().act(observations, progress)

    collector = Collector([ScriptedEnvs(2), ScriptedEnvs(2)], 10, CPU)
    with pytest.raises(KeyboardInterrupt):
        collector.collect(Interrupted(), 10, FOREVER)
    rollout = collector.collect(Balancer(), 4, FOREVER)
    assert rollout.horizon == 4
    assert rollout.observations[:, 0, 2].tolist() == [0, 1, 2, 0, 1]
    assert rollout.observations[:, 2, 2].tolist() == [2, 0, 1, 2, 0]


class HungEnvs(ScriptedEnvs):
    """Envs that do not answer until they are told to."""

    def __init__(self):
        super().__init__()
        self.entered, self.released, self.closed = threading.Event(), threading.Event(), False

    def step(self, actions):
        self.entered.set()
        assert self.released.wait(PATIENCE_SECONDS)
        return super().step(actions)

    def close(self):
        self.closed = True


def test_closing_waits_for_a_step_that_ends():
    hung = HungEnvs()
    groups = EnvGroups([hung, ScriptedEnvs()])
    groups.steps[0].start(np.zeros(2))
    assert hung.entered.wait(PATIENCE_SECONDS)
    closing = threading.Thread(target=groups.close)
    closing.start()
    hung.released.set()
    closing.join(PATIENCE_SECONDS)
    assert hung.closed and len(hung.actions_seen) == 1


def test_envs_that_hang_are_not_closed_under_their_thread(monkeypatch):
    monkeypatch.setattr(env_groups, "GRACE_SECONDS", 0.01)
    hung = HungEnvs()
    groups = EnvGroups([hung, ScriptedEnvs()])
    groups.steps[0].start(np.zeros(2))
    groups.close()
    assert not hung.closed
    hung.released.set()


def test_a_collector_that_is_dropped_leaves_no_thread():
    before = set(threading.enumerate())
    collector = Collector([ScriptedEnvs(), ScriptedEnvs()], 10, CPU)
    collector.collect(Balancer(), 3, FOREVER)
    started = set(threading.enumerate()) - before
    assert len(started) == 2
    del collector
    gc.collect()
    assert not any(thread.is_alive() for thread in started)


def test_a_single_group_needs_no_thread():
    before = set(threading.enumerate())
    collector = Collector(ScriptedEnvs(), 10, CPU)
    collector.collect(Balancer(), 3, FOREVER)
    assert set(threading.enumerate()) <= before


def test_ctrl_c_reaches_a_collector_that_waits_for_a_hung_env(monkeypatch):
    monkeypatch.setattr(env_groups, "GRACE_SECONDS", 0.01)

    class Interrupting(HungEnvs):
        def step(self, actions):
            os.kill(os.getpid(), signal.SIGINT)
            return super().step(actions)

    hung = Interrupting()
    collector = Collector([hung, ScriptedEnvs()], 10, CPU)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            collector.collect(Balancer(), 10, FOREVER)
    finally:
        signal.signal(signal.SIGINT, handler)
    collector.envs.close()
    hung.released.set()


LEAVE_A_HUNG_ENV = """
import sys, threading
sys.path.insert(0, {tests!r})
import numpy as np
from scripted_envs import ScriptedEnvs
from swell.collect import env_groups

class Hung(ScriptedEnvs):
    def step(self, actions):
        threading.Event().wait()

env_groups.GRACE_SECONDS = 0.01
groups = env_groups.EnvGroups([Hung(), ScriptedEnvs()])
groups.steps[0].start(np.zeros(2))
raise SystemExit(7)
"""


def test_a_hung_env_does_not_keep_the_process_alive():
    code = LEAVE_A_HUNG_ENV.format(tests=os.path.dirname(__file__))
    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_SECONDS).returncode == 7


class Clock:
    """Time that passes only where somebody says so."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


def test_time_is_either_acting_or_waiting_for_envs(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(collect, "time", clock)

    class Slow(ScriptedEnvs):
        def step(self, actions):
            clock.now += 5.0
            return super().step(actions)

    class Thoughtful(Balancer):
        def act(self, observations, progress):
            clock.now += 3.0
            return super().act(observations, progress)

    collector = Collector(Slow(), 10, CPU)
    collector.collect(Thoughtful(), 4, FOREVER)
    collector.collect(Thoughtful(), 2, FOREVER)
    assert collector.seconds == {"act": 18.0, "env": 30.0}


def test_a_killed_run_with_overlap_ends_like_an_uninterrupted_one(tmp_path):
    config = small_config(overlap=True, total_env_steps=2000, num_envs=6)
    run(config, tmp_path / "whole", quiet=True)
    assert run_and_kill(config, tmp_path / "run", driver.Run, "_log", 15)
    resume(tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), outcome(tmp_path / "whole"))


def test_a_run_with_overlap_splits_its_envs():
    parts = swell.runs.build.build(small_config(overlap=True, num_envs=6))
    assert [columns.stop - columns.start for columns in parts.collector.envs.columns] == [3, 3]
    rollout = parts.collector.collect(parts.learner, 4, 1000)
    assert rollout.actions.shape == (4, 6)
    assert len(rollout.observations[0].unique(dim=0)) == 6, "two groups start from the same seeds"
    parts.collector.envs.close()
