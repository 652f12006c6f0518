"""A trained agent read back: it acts and scores as the learner that was saved."""

import numpy as np
import pytest
import torch
from policy_learners import POLICY_ALGORITHMS
from tolerances import rounding_of

from swell.errors import ConfigError, StorageError
from swell.presets import make_config
from swell.runs.agent import evaluate, load_policy
from swell.runs.build import build
from swell.runs.checkpoint import load_newest
from swell.runs.driver import Run
from swell.runs.first_checks import resolve
from swell.runs.sealed import write_sealed
from swell.runs.start import describe_run

SMALL = {
    "total_env_steps": 640,
    "num_envs": 4,
    "scaler": "fixed",
    "horizon": 32,
    "epochs": 2,
    "minibatches": 4,
    "hidden": (16,),
    "learning_rate": 1e-2,
    "max_episode_steps": 60,
    "evaluation_episodes": 3,
    "checkpoint_every": 10**6,
    "threads": 1,
}
RUNS = [
    *(("CartPole-v1", algorithm, {}) for algorithm in ("pqn", *POLICY_ALGORITHMS)),
    ("Pendulum-v1", "ppo", {"normalize_observations": True, "normalize_rewards": True}),
    ("Pendulum-v1", "ppg-ewma", {"normalize_observations": True, "architecture": "shared"}),
]


def finished_run(directory, env, algorithm, fields):
    """The parts of a run that went to its end in `directory`, still alive."""
    phase = {"phase_env_steps": 256} if algorithm.startswith("ppg") else {}
    config = resolve(make_config(env, algorithm=algorithm, **{**SMALL, **phase, **fields}))
    parts = build(config)
    directory.mkdir()
    described = describe_run(config, parts)
    write_sealed(directory / "config.json", described)
    Run(config, directory, parts, True, described).drive()
    return parts


def observations_of(env, count=64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, {"CartPole-v1": 4, "Pendulum-v1": 3}[env], generator=generator)


@pytest.mark.parametrize(("env", "algorithm", "fields"), RUNS, ids=[f"{env}-{name}" for env, name, _ in RUNS])
def test_a_loaded_policy_acts_and_scores_as_the_learner_that_was_saved(tmp_path, env, algorithm, fields):
    directory = tmp_path / "run"
    learner = finished_run(directory, env, algorithm, fields).learner
    policy, observations = load_policy(directory), observations_of(env)
    expected = learner.greedy_actions(observations).numpy()
    assert len(np.unique(expected)) > 1
    assert np.array_equal(policy(observations), expected) and policy(observations).dtype == expected.dtype
    # A product of one row may round differently from the same row in a product of many; features lie in [−1, 1].
    head = learner.network.policy_head if env == "Pendulum-v1" else None
    digits = rounding_of(head.weight, roundings=head.in_features) if head is not None else 0.0
    np.testing.assert_allclose(policy(observations[5].numpy()), expected[5], rtol=0.0, atol=digits)
    found = load_newest(directory / "checkpoints", print)
    assert policy.env_steps == found[0] >= 640
    score = evaluate(directory, episodes=3)
    assert len(score["returns"]) == score["episodes"] == 3 and score["env_steps"] == policy.env_steps
    assert evaluate(directory, episodes=3)["returns"] == score["returns"]


def test_continuous_actions_of_a_loaded_policy_lie_within_the_action_space(tmp_path):
    finished_run(tmp_path / "run", "Pendulum-v1", "ppo", {})
    policy = load_policy(tmp_path / "run")
    actions = policy(1000.0 * observations_of("Pendulum-v1"))
    assert actions.shape == (64, 1) and actions.dtype == np.float32
    assert np.abs(actions).max() <= 2.0


def test_a_run_without_a_checkpoint_has_no_policy_yet(tmp_path):
    config = resolve(make_config("CartPole-v1", algorithm="ppo", **SMALL))
    write_sealed(tmp_path / "config.json", describe_run(config, build(config)))
    with pytest.raises(StorageError, match="no checkpoint yet"):
        load_policy(tmp_path)


def test_no_episodes_are_no_evaluation(tmp_path):
    with pytest.raises(ConfigError, match="episodes must be at least 1, got 0"):
        evaluate(tmp_path, episodes=0)
