"""The loop: measuring is harmless, seeds decide everything, stopping between iterations costs nothing."""

import math
import random
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from kill import config_with

from swell.loop import train
from swell.presets import make_config
from swell.runs.build import build
from swell.runs.logs import read_jsonl
from swell.runs.start import run


def parts_of(**fields):
    defaults = {"total_env_steps": 4000, "num_envs": 8, "min_horizon": 4, "max_horizon": 16, "measure_every": 3}
    config = config_with("CartPole-v1", defaults, fields)
    return config, build(config)


def iterations_of(config, parts):
    return train(parts.collector, parts.learner, parts.measurement, parts.scaler, config.total_env_steps)


def trained(**fields):
    config, parts = parts_of(**fields)
    return list(iterations_of(config, parts)), parts


def weights(parts):
    return torch.cat([parameter.detach().flatten() for parameter in parts.learner.network.parameters()])


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    (first, one), (second, two), (_, three) = trained(), trained(), trained(seed=2)
    assert first == second
    assert torch.equal(weights(one), weights(two))
    assert not torch.equal(weights(one), weights(three))


def test_readings_of_a_few_states_follow_the_seed():
    (first, _), (second, _) = trained(probe_states=16), trained(probe_states=16)
    assert [iteration.reading for iteration in first] == [iteration.reading for iteration in second]


def test_nobody_draws_from_a_global_generator():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    trained(total_env_steps=1000)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


@pytest.mark.parametrize(
    ("algorithm", "signal"),
    [
        ("pqn", "behavioral_divergence"),
        ("pqn", "gradient_noise_scale"),
        ("ppo", "behavioral_divergence"),
        ("ppo", "kl_divergence"),
        ("ppo", "effective_sample_size"),
        ("ppo", "gradient_noise_scale"),
    ],
)
def test_measuring_does_not_change_training(algorithm, signal):
    fields = {"algorithm": algorithm, "scaler": "fixed", "signal": signal, "horizon": 32, "total_env_steps": 2000}
    _, never = trained(**fields, measure_every=10**6)
    iterations, often = trained(**fields, measure_every=1)
    assert all(iteration.reading is not None for iteration in iterations)
    assert torch.equal(weights(never), weights(often))


def test_stopping_between_two_iterations_continues_the_same_run():
    _, uninterrupted = trained()
    config, parts = parts_of()
    for _ in islice(iterations_of(config, parts), 7):
        pass
    for _ in iterations_of(config, parts):
        pass
    assert torch.equal(weights(parts), weights(uninterrupted))


def test_training_ends_at_the_total_to_within_one_vector_step():
    iterations, parts = trained(total_env_steps=1003)
    assert 1003 <= parts.collector.env_steps < 1003 + 8
    assert iterations[-1].env_steps == parts.collector.env_steps


def test_readings_come_every_k_iterations_and_move_the_horizon():
    iterations, _ = trained(smoothing=1.0)
    measured = [iteration.number for iteration in iterations if iteration.reading is not None]
    assert measured == list(range(3, iterations[-1].number + 1, 3))
    assert len({iteration.plan.horizon for iteration in iterations}) > 1


@pytest.mark.portable
def test_a_batch_that_follows_the_noise_scale_follows_it():
    """Eight envs and four minibatches: a horizon of 2 noise scales makes each minibatch 4 of them."""
    fields = {"scaler": "noise-scale", "smoothing": 1.0, "minibatch_rule": "count", "minibatches": 4}
    iterations, _ = trained(**fields, batch_per_noise_scale=4.0, measure_every=1)
    assert len({iteration.plan.horizon for iteration in iterations}) > 1
    for before, after in pairwise(iterations):
        assert after.plan.horizon == min(max(math.floor(2 * before.reading + 0.5), 4), 16)


def test_a_ramp_replays_the_horizons_of_another_run_and_with_its_seed_the_whole_run(tmp_path):
    fields = {"total_env_steps": 4000, "num_envs": 8, "min_horizon": 4, "max_horizon": 16, "measure_every": 3}
    fields |= {"smoothing": 0.5, "evaluation_episodes": 0}
    config = make_config("CartPole-v1", **fields)
    run(config, tmp_path / "adaptive", quiet=True)
    run(config, tmp_path / "replay", quiet=True, scaler="ramp", ramp_from=str(tmp_path / "adaptive"))
    first, second = (
        [(row["horizon"], row["loss"]) for row in read_jsonl(tmp_path / name / "metrics.jsonl")]
        for name in ("adaptive", "replay")
    )
    assert len({horizon for horizon, _ in first}) > 3
    assert second == first


@pytest.mark.portable
def test_a_cartpole_agent_learns_within_seconds():
    iterations, parts = trained(total_env_steps=30_000, num_envs=16)
    first = sum(iteration.metrics["q_mean"] for iteration in iterations[:5]) / 5
    last = parts.collector.episodes.summary()["episode_return"]
    assert last > 60, f"random play returns about 22; q began at {first}"


@pytest.mark.parametrize("rule", ["count", "size"])
def test_gradient_steps_per_sample_follow_the_minibatch_rule(rule):
    fields = {"scaler": "fixed", "minibatch_rule": rule, "minibatches": 4, "minibatch_size": 16, "epochs": 2}
    (short, _), (long, _) = (trained(horizon=horizon, total_env_steps=2048, **fields) for horizon in (8, 32))
    ratio = short[-1].metrics["gradient_steps"] / long[-1].metrics["gradient_steps"]
    assert ratio == pytest.approx(4.0 if rule == "count" else 1.0, rel=0.1)
