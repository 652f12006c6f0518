"""Tianshou: a fixed plan changes nothing, a moving one is trained on rightly, and its own traps are guarded."""

import copy
import json

import numpy as np
import pytest
import torch
from refusals import refusal
from sb3_models import Scripted, advantages_by_hand
from tianshou.algorithm.optim import LRSchedulerFactory, LRSchedulerFactoryLinear
from tianshou.trainer import OnPolicyTrainer
from tianshou_trainings import NUM_ENVS, training, weights
from torch import distributions

from swell.batch.controller import BatchController
from swell.plugins.tianshou import AdaptiveTrainer, BatchTrainer, MeasureTrainer

ENVS = ["CartPole-v1", "Pendulum-v1"]
PLAN = (16, 48, 7, 64, 20)


def are_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("schedule", [None, LRSchedulerFactoryLinear(1, 256, 64)], ids=["constant", "linear"])
def test_a_fixed_plan_trains_to_the_bit_as_without_it(env, schedule):
    def trained(make):
        algorithm, params = training(env, schedule=schedule)
        trainer = make(algorithm, params)
        trainer.run()
        return weights(algorithm), torch.get_rng_state(), np.random.get_state()[1].copy(), trainer

    plain = trained(OnPolicyTrainer)
    for make in (
        lambda *both: MeasureTrainer(*both, every=1),
        lambda *both: AdaptiveTrainer(*both, min_steps=16, max_steps=16, every=1),
    ):
        found = trained(make)
        assert are_equal(plain[0], found[0])
        assert torch.equal(plain[1], found[1]) and np.array_equal(plain[2], found[2])
        assert found[3].controller.reading > 0.0


class Watching(BatchTrainer):
    """Compares what each update is given with what it should be."""

    def __init__(self, algorithm, params, *plan):
        super().__init__(algorithm, params, BatchController(scaler=Scripted(*plan)), max_steps=max(plan))
        self.lengths, self.env_steps, self.minibatches, self.kls = [], [], [], []
        self.largest_advantage = 0.0
        inner = algorithm._update_with_batch
        forward = algorithm.policy.forward

        def counting(batch, *others, **named):
            self.minibatches[-1].append(len(batch))
            return forward(batch, *others, **named)

        def watched(batch, batch_size, repeat):
            self.minibatches.append([])
            self._compare(batch)
            algorithm.policy.forward = counting
            found = inner(batch, batch_size, repeat)
            algorithm.policy.forward = forward
            return found

        algorithm._update_with_batch = watched

    def _compare(self, batch):
        """Rows come env by env."""
        steps = len(batch) // NUM_ENVS
        self.lengths.append(steps)
        self.env_steps.append(self._env_steps_with_this)

        def by_time(values):
            return np.asarray(values, dtype=np.float64).reshape(NUM_ENVS, steps).T

        with torch.no_grad():
            values, following = (
                by_time(self.algorithm.critic(seen).double().flatten()) for seen in (batch.obs, batch.obs_next)
            )
        ended, terminated = (by_time(flags).astype(bool) for flags in (batch.done, batch.terminated))
        found = by_time(batch.adv)
        by_hand = advantages_by_hand(by_time(batch.rew), values, following * ~terminated, ended, 0.98, 0.9)
        scale = np.abs(by_hand).max() + np.abs(values).max() + np.abs(batch.rew).max()
        np.testing.assert_allclose(found, by_hand, atol=2.0**-18 * scale, rtol=0)
        self.largest_advantage = max(self.largest_advantage, np.abs(by_hand).max() / scale)

    def _update_step(self, collect_stats=None):
        buffer = self.params.training_collector.buffer
        observations = buffer.get(buffer.sample_indices(0), "obs")
        old = copy.deepcopy(self.algorithm.policy)
        stats = super()._update_step(collect_stats)
        with torch.no_grad():
            pair = [policy.dist_fn(policy.actor(observations)[0]) for policy in (self.algorithm.policy, old)]
            self.kls.append(distributions.kl_divergence(*pair).mean().item())
        return stats


@pytest.mark.parametrize("env", ENVS)
def test_a_moving_plan_has_the_right_counts_advantages_minibatches_and_readings(env):
    algorithm, params = training(env, total=NUM_ENVS * sum(PLAN))
    trainer = Watching(algorithm, params, *PLAN)
    trainer.run()
    assert tuple(trainer.lengths) == PLAN
    assert trainer.env_steps == list(NUM_ENVS * np.cumsum(PLAN))
    assert trainer.largest_advantage > 0.05
    for length, sizes in zip(PLAN, trainer.minibatches, strict=True):
        assert sum(sizes) == 2 * NUM_ENVS * length and min(sizes) >= min(28, NUM_ENVS * length)
    readings = trainer.controller.scaler.readings
    assert readings == pytest.approx(trainer.kls, rel=1e-3, abs=2e-7) and max(readings) > 1e-4


def test_the_horizon_follows_the_policy_and_its_state_is_plain():
    def trainer():
        return AdaptiveTrainer(
            *training(total=3_000), min_steps=8, max_steps=64, calm_reading=0.01, volatile_reading=0.1
        )

    first = trainer()
    first.run()
    assert first.controller.horizon > 8
    second = trainer()
    assert second.params.collection_step_num_env_steps == 8 * NUM_ENVS
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    assert second.params.collection_step_num_env_steps == first.controller.horizon * NUM_ENVS


def test_the_linear_schedule_follows_env_steps_and_never_goes_below_zero():
    planned = LRSchedulerFactoryLinear(1, 640, 160)  # four updates of 40 steps of each env

    def rates_of(make):
        algorithm, params = training(steps=40, total=640, schedule=planned)
        rates, optimizer = [], algorithm.optim._optim
        trainer = make(algorithm, params)
        update = trainer._update_step
        trainer._update_step = lambda stats: (update(stats), rates.append(optimizer.param_groups[0]["lr"]))[0]
        trainer.run()
        return rates

    def halved(algorithm, params):
        params.collection_step_num_env_steps //= 2
        return OnPolicyTrainer(algorithm, params)

    assert min(rates_of(halved)) == pytest.approx(-0.003)  # what is guarded against
    rates = rates_of(lambda *both: AdaptiveTrainer(*both, min_steps=20, max_steps=20))
    assert rates == pytest.approx([0.003 * (1 - update / 8) for update in range(1, 9)])
    longer = rates_of(lambda *both: AdaptiveTrainer(*both, min_steps=60, max_steps=60))
    assert longer == pytest.approx([0.003 * max(0, 1 - update * 60 / 160) for update in range(1, 4)])


def test_another_schedule_is_warned_of():
    class Steps(LRSchedulerFactory):
        def create_scheduler(self, optim):
            return torch.optim.lr_scheduler.StepLR(optim, 10)

    algorithm, params = training(schedule=Steps())
    with pytest.warns(UserWarning, match="StepLR counts updates, and a batch that moves makes another number of them"):
        AdaptiveTrainer(algorithm, params, min_steps=8, max_steps=64)


def test_it_logs_what_it_does():
    algorithm, params = training()
    trainer = AdaptiveTrainer(algorithm, params, min_steps=8, max_steps=64, every=1)
    written = []
    trainer._logger.write = lambda kind, step, data: written.append((kind, step, data))
    trainer.run()
    rows = [(step, data) for kind, step, data in written if kind == "batch/env_step"]
    assert [step for step, _ in rows] == list(range(32, 257, 32))
    assert all(
        data["batch/n_steps"] == 8 and data["batch/size"] == 32 and data["batch/reading"] > 0 for _, data in rows
    )


@pytest.mark.parametrize(("steps", "every", "readings"), [(16, None, 4), (16, 1, 32), (16, 8, 4), (128, None, 4)])
def test_rollouts_shorter_than_512_env_steps_share_a_reading_unless_updates_are_counted(steps, every, readings):
    algorithm, params = training(steps=steps, total=2_048)
    trainer = MeasureTrainer(algorithm, params, every=every)
    trainer.run()
    assert trainer.controller.summary().startswith(f"{readings} readings")


def test_wrong_use_is_refused_in_one_line():
    wanted = {"min_steps": 8, "max_steps": 64}
    assert refusal(AdaptiveTrainer, *training(buffer=252), **wanted) == (
        "max_steps must fit into the buffer, got 64 and room for 63 steps of each env; "
        "make it a VectorReplayBuffer of 256"
    )
    AdaptiveTrainer(*training(buffer=256), **wanted)
    algorithm, params = training()
    assert refusal(AdaptiveTrainer, object(), params, **wanted).startswith(
        "AdaptiveTrainer needs an on-policy algorithm"
    )
    line = refusal(AdaptiveTrainer, algorithm, params, min_steps=9, max_steps=8)
    assert line == "min_steps must be at most max_steps, got 9 and 8"
    episodes = training(collection_step_num_env_steps=None, collection_step_num_episodes=3)
    for make in (MeasureTrainer, lambda *both: AdaptiveTrainer(*both, **wanted)):
        assert refusal(make, *episodes).startswith("collection_step_num_env_steps must be set")
    algorithm.policy = torch.nn.Linear(1, 1)
    assert "a policy with an actor and a dist_fn, got Linear" in refusal(AdaptiveTrainer, algorithm, params, **wanted)
