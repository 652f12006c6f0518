"""Rollouts, the clock, and scores."""

import numpy as np
import pytest
import torch
from kill import same
from plain_collector import contents, plain_rollouts
from scripted_envs import ScriptedEnvs

from swell.collect.collector import Collector, play_episodes
from swell.collect.episodes import EpisodeStatistics

CPU = torch.device("cpu")
FOREVER = 10**9


class Onlooker:
    """Acts 0, 1, 0, 1, … and records the first number of each observation as the value."""

    def __init__(self):
        self.progress_seen = []

    def act(self, observations, progress):
        self.progress_seen.append(progress)
        actions = torch.full((observations.shape[0],), len(self.progress_seen) % 2)
        return actions, {"values": observations[:, 2] * 10.0}


def transitions(rollout):
    """Every valid (observation, action, reward, terminated, truncated, successor) of env 0, in order."""
    finals = dict(zip(rollout.final_indices.tolist(), rollout.final_observations.tolist(), strict=True))
    num_envs = rollout.actions.shape[1]
    found = []
    for step in range(rollout.horizon):
        if not rollout.valid[step, 0]:
            continue
        ended = bool(rollout.terminated[step, 0] or rollout.truncated[step, 0])
        successor = finals.get(step * num_envs, rollout.observations[step + 1, 0].tolist())
        row = [rollout.observations[step, 0].tolist(), rollout.rewards[step, 0].item(), ended]
        found.append([*row, None if rollout.terminated[step, 0] else successor])
    return found


def test_a_rollout_holds_what_the_envs_returned():
    rollout = Collector(ScriptedEnvs(), 8, CPU).collect(Onlooker(), 5, FOREVER)
    assert rollout.observations.shape == (6, 2, 3)
    assert rollout.observations[:, 0, 2].tolist() == [0, 1, 2, 0, 1, 2]
    assert rollout.rewards[:, 0].tolist() == [1, 2, 3, 1, 2]
    assert rollout.actions[:, 0].tolist() == [1, 0, 1, 0, 1]
    assert rollout.terminated[:, 0].tolist() == [False, False, True, False, False]
    torch.testing.assert_close(rollout.recorded["values"], rollout.observations[:-1, :, 2] * 10.0)


@pytest.mark.parametrize("next_step", [False, True])
def test_rollouts_are_those_of_a_plain_loop(next_step):
    horizons = (5, 20, 1, 12)
    collector, learner = Collector(ScriptedEnvs(3, next_step), 20, CPU), Onlooker()
    found = [contents(collector.collect(learner, horizon, 1000)) for horizon in horizons]
    expected_learner = Onlooker()
    assert same(found, plain_rollouts(ScriptedEnvs(3, next_step), expected_learner, horizons, 1000))
    assert learner.progress_seen == expected_learner.progress_seen


def test_both_autoreset_conventions_give_the_same_transitions():
    same = Collector(ScriptedEnvs(), 40, CPU).collect(Onlooker(), 30, FOREVER)
    following = Collector(ScriptedEnvs(next_step=True), 40, CPU).collect(Onlooker(), 40, FOREVER)
    assert same.valid.all() and not following.valid.all()
    assert transitions(following) == transitions(same)[: len(transitions(following))]
    assert any(ended and successor for _, _, ended, successor in transitions(same)), "no time limit was met"


def test_a_rollout_goes_on_where_the_one_before_stopped():
    whole = Collector(ScriptedEnvs(), 10, CPU)
    parts = Collector(ScriptedEnvs(), 10, CPU)
    expected = whole.collect(Onlooker(), 10, FOREVER)
    first = parts.collect(Onlooker(), 4, FOREVER).observations.clone()
    second = parts.collect(Onlooker(), 6, FOREVER).observations
    torch.testing.assert_close(torch.cat([first[:-1], second]), expected.observations)
    assert parts.env_steps == whole.env_steps == 20
    assert parts.num_rollouts == 2


def test_the_last_rollout_is_cut_to_the_total():
    collector = Collector(ScriptedEnvs(), 10, CPU)
    collector.collect(Onlooker(), 10, 25)
    assert collector.collect(Onlooker(), 10, 25).horizon == 3
    assert 25 <= collector.env_steps < 25 + 2


def test_reset_rows_are_no_env_steps():
    collector = Collector(ScriptedEnvs(next_step=True), 20, CPU)
    rollout = collector.collect(Onlooker(), 20, FOREVER)
    assert collector.env_steps == int(rollout.valid.sum()) < 40


def test_progress_is_told_at_every_step():
    learner = Onlooker()
    Collector(ScriptedEnvs(), 10, CPU).collect(learner, 5, 10)
    assert learner.progress_seen == [0.0, 0.2, 0.4, 0.6, 0.8]


def test_episode_statistics_count_whole_episodes_of_every_env():
    for next_step in (False, True):
        collector = Collector(ScriptedEnvs(next_step=next_step), 60, CPU)
        collector.collect(Onlooker(), 40, FOREVER)
        assert set(collector.episodes.returns) == {1 + 2 + 3, 1 + 2 + 3 + 4}
        assert set(collector.episodes.lengths) == {3, 4}


def test_statistics_are_absent_until_an_episode_has_finished():
    assert EpisodeStatistics(3).summary() == {"episodes": 0}


def test_abandoned_episodes_are_counted_and_in_no_mean():
    collector = Collector(ScriptedEnvs(), 10, CPU)
    collector.collect(Onlooker(), 4, FOREVER)
    collector.episodes.abandon()
    collector.envs.reset()
    collector.collect(Onlooker(), 3, FOREVER)
    assert collector.episodes.abandoned == 1
    assert set(collector.episodes.returns) == {6.0, 10.0}


def test_a_restored_collector_goes_on_exactly():
    collector = Collector(ScriptedEnvs(), 10, CPU)
    collector.collect(Onlooker(), 5, FOREVER)
    restored = Collector(ScriptedEnvs(), 10, CPU)
    assert restored.load_state_dict(collector.state_dict())
    ours, theirs = restored.collect(Onlooker(), 9, FOREVER), collector.collect(Onlooker(), 9, FOREVER)
    torch.testing.assert_close(ours.observations, theirs.observations)
    assert restored.state_dict()["episodes"]["returns"] == collector.state_dict()["episodes"]["returns"]
    assert restored.env_steps == collector.env_steps


def test_a_saved_state_stays_as_it_was_saved():
    collector = Collector(ScriptedEnvs(), 10, CPU)
    collector.collect(Onlooker(), 5, FOREVER)
    saved = collector.state_dict()["observations"]
    before = saved.clone()
    collector.collect(Onlooker(), 9, FOREVER)
    assert torch.equal(saved, before)


def test_learners_see_rows_in_memory_order_whatever_the_envs_return():
    """CartPole's arrays are transposed, and a product with a transposed matrix rounds differently: a resumed run, which
    has its first observations from a file, would not end like the uninterrupted one."""

    class Transposed(ScriptedEnvs):
        def _observations(self):
            return np.asfortranarray(super()._observations())

    class Careful(Onlooker):
        def act(self, observations, progress):
            assert observations.is_contiguous()
            return super().act(observations, progress)

    assert not Transposed(5).reset().flags.c_contiguous
    Collector(Transposed(5), 10, CPU).collect(Careful(), 5, FOREVER)


def no_action(observations):
    return torch.zeros(observations.shape[0])


@pytest.mark.parametrize("episodes", [1, 2, 5, 9])
def test_every_env_plays_its_share_so_that_short_episodes_are_not_favoured(episodes):
    envs = ScriptedEnvs(num_envs=2)
    returns, cut = play_episodes(no_action, envs, episodes, CPU)
    assert (len(returns), cut) == (episodes, 0)
    assert sorted(returns) == sorted([6.0] * ((episodes + 1) // 2) + [10.0] * (episodes // 2))


def test_no_env_plays_for_another():
    returns = play_episodes(no_action, ScriptedEnvs(num_envs=5), 5, CPU).returns
    assert sorted(returns) == [6.0, 10.0, 15.0, 21.0, 28.0]


def test_an_episode_that_is_too_long_is_cut_off_and_counted_as_it_stands():
    envs = ScriptedEnvs(num_envs=3)  # whose episodes have 3, 4 and 5 steps
    assert play_episodes(no_action, envs, 3, CPU, longest=4) == ([6.0, 10.0, 10.0], 1)
    assert len(envs.actions_seen) == 4


def test_an_env_whose_episode_was_cut_off_plays_no_more():
    returns, cut = play_episodes(no_action, ScriptedEnvs(num_envs=2), 6, CPU, longest=3)
    assert (sorted(returns), cut) == ([6.0, 6.0, 6.0, 6.0], 1)


def test_who_hears_of_the_episodes_may_end_them():
    heard = []

    def told(finished, steps):
        heard.append((finished, steps))
        if steps == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        play_episodes(no_action, ScriptedEnvs(num_envs=2), 100, CPU, told=told)
    assert heard == [(0, 1), (0, 2), (1, 3), (2, 4), (2, 5)]


def test_buffers_are_not_allocated_again():
    collector = Collector(ScriptedEnvs(), 10, CPU)
    addresses = {collector.collect(Onlooker(), horizon, FOREVER).observations.data_ptr() for horizon in (3, 10, 5)}
    assert len(addresses) == 1


def test_observations_keep_the_dtype_of_the_env():
    class Bytes(ScriptedEnvs):
        def _observations(self):
            return super()._observations().astype(np.uint8)

    assert Collector(Bytes(), 4, CPU).collect(Onlooker(), 2, FOREVER).observations.dtype == torch.uint8
