"""Runs on what the user brings: functions, masks, images next to vectors; what Python gets wrong is told in a line."""

import gymnasium
import numpy as np
import own_envs
import pytest
import torch
from own_envs import BEST, Camera, TwoDoors, TwoLocks, make_cartpole

import swell
from swell.config.run_config import RunConfig
from swell.errors import ConfigError, EnvironmentFailedError, SwellError
from swell.runs.agent import evaluate, load_policy
from swell.runs.checkpoint import load_newest
from swell.runs.run_directory import read_json
from swell.runs.sealed import write_sealed
from swell.runs.start import resume, run

SMALL = {
    "total_env_steps": 1200,
    "num_envs": 4,
    "scaler": "fixed",
    "horizon": 32,
    "hidden": (16,),
    "evaluation_episodes": 2,
    "checkpoint_every": 256,
    "threads": 1,
    "max_episode_steps": 50,
}


def final_learner(directory):
    return load_newest(directory / "checkpoints", print)[1]["learner"]


def assert_same_tensors(first, second):
    assert first["network"].keys() == second["network"].keys()
    assert all(torch.equal(first["network"][name], second["network"][name]) for name in first["network"])


def breaking(make, at):
    """A function of no module, whose envs fail once together they have made so many steps."""
    taken = {"steps": 0}

    class Breaking(gymnasium.Wrapper):
        def step(self, action):
            taken["steps"] += 1
            if taken["steps"] == at:
                raise RuntimeError("the power is gone")
            return self.env.step(action)

    return lambda: Breaking(make())


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (make_cartpole, {}),
        (TwoDoors, {}),
        (TwoDoors, {"algorithm": "ppo"}),
        (TwoLocks, {"algorithm": "ppo-ewma"}),
        (Camera, {}),
    ],
    ids=["function", "masks-pqn", "masks-ppo", "masks-choices", "parts"],
)
def test_a_run_on_an_object_that_is_handed_in_again_ends_as_if_it_had_not_stopped(tmp_path, make, fields):
    settings = {**SMALL, **fields}
    run(lambda: make(), tmp_path / "whole", quiet=True, **settings)
    with pytest.raises(EnvironmentFailedError, match="the power is gone"):
        run(breaking(make, at=900), tmp_path / "broken", quiet=True, **settings)
    assert read_json(tmp_path / "broken" / "config.json")["resume"].startswith("exact")
    with pytest.raises(ConfigError, match=r"hand it in again, in Python: swell.resume\(directory, make_env\)"):
        resume(tmp_path / "broken", quiet=True)
    summary = resume(tmp_path / "broken", breaking(make, at=-1), quiet=True)
    assert summary["status"] == "done"
    assert_same_tensors(final_learner(tmp_path / "whole"), final_learner(tmp_path / "broken"))
    assert len(evaluate(tmp_path / "broken", 3, make_env=make)["returns"]) == 3


def test_the_run_says_that_only_python_can_resume_it(tmp_path, capfd):
    run(lambda: make_cartpole(), tmp_path / "run", **SMALL)
    shown = "".join(capfd.readouterr())
    assert "<lambda> is in no module: only `swell.resume(" in " ".join(shown.split())


def test_a_named_function_is_found_again_without_being_handed_in(tmp_path):
    run(make_cartpole, tmp_path / "run", quiet=True, env_kwargs={"length": 0.75}, wrappers=[own_envs.Doubled], **SMALL)
    stored = read_json(tmp_path / "run" / "config.json")["config"]
    assert (stored["env"], stored["env_kwargs"]) == ("own_envs:make_cartpole", ["length=0.75"])
    assert stored["wrappers"] == ["own_envs:Doubled"]
    assert resume(tmp_path / "run", total_env_steps=1500, quiet=True, trust=True)["env_steps"] >= 1500
    assert all(score % 2 == 0 for score in evaluate(tmp_path / "run", 3, trust=True)["returns"])


WRONG = [
    (lambda: run(gymnasium.make("CartPole-v1")), "env must be made anew for each of num_envs, got one TimeLimit"),
    (lambda: run("CartPole-v1", steps=100), "unknown option steps; did you mean total_env_steps?"),
    (lambda: run("CartPole-v1", gamma=0.9), "unknown option gamma; did you mean discount?"),
    (lambda: run("CartPole-v1", learning_rte=1.0), "unknown option learning_rte; did you mean learning_rate?"),
    (lambda: RunConfig("CartPole-v1", learning_rte=1.0), "unknown option learning_rte; did you mean learning_rate?"),
    (lambda: run("CartPole-v1", 100_000), "out must be a path, got 100000; options go by name"),
    (lambda: run(None), "env must be an id, or a function or a class that makes one, got None"),
    (lambda: swell.make_envs("CartPole-v1", n_envs=3), "unknown option n_envs; did you mean num_envs?"),
]


@pytest.mark.parametrize(("call", "line"), WRONG, ids=[line for _, line in WRONG])
def test_a_wrong_argument_is_an_error_of_ours_with_a_hint(call, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SwellError) as caught:
        call()
    assert line in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_handing_in_what_is_not_needed_or_cannot_make_an_env_is_refused(tmp_path):
    run("CartPole-v1", tmp_path / "run", quiet=True, **SMALL)
    with pytest.raises(ConfigError, match="make_env must be left out: the env of this run is CartPole-v1"):
        resume(tmp_path / "run", make_cartpole)
    with pytest.raises(ConfigError, match="make_env must be a function or a class that makes an env, got 2000"):
        resume(tmp_path / "run", 2000)


QUICK = {"hidden": (32,), "discount": 0.5, "learning_rate": 2e-3, "epochs": 4, "threads": 1}
"""Of tasks in which an action pays at once."""
MORE_STEPS = {"pqn": {"num_envs": 8, "minibatch_size": 32, "trace_decay": 0.0}, "ppo": {}}
"""Gradient steps: a Q-network learns a whole function where a policy only has to lean to one side."""


@pytest.mark.portable
@pytest.mark.parametrize("algorithm", ["pqn", "ppo"])
def test_with_masks_it_learns_what_cannot_be_learned_without(tmp_path, algorithm):
    fields = {
        "total_env_steps": 20_000,
        "algorithm": algorithm,
        **QUICK,
        **MORE_STEPS[algorithm],
        "evaluation_episodes": 100,
    }
    masked = run(TwoDoors, tmp_path / "masked", quiet=True, **fields)
    blind = run(TwoDoors, tmp_path / "blind", quiet=True, env_kwargs={"masked": False}, **fields)
    assert masked["evaluation_return"] > 0.9 * BEST > 3 * blind["evaluation_return"]
    assert masked["path"] == "autograd"


@pytest.mark.portable
@pytest.mark.parametrize("algorithm", ["pqn", "ppo"])
def test_it_learns_from_the_image_next_to_a_vector(tmp_path, algorithm):
    fields = {
        "total_env_steps": 8000,
        "algorithm": algorithm,
        **QUICK,
        **MORE_STEPS[algorithm],
        "evaluation_episodes": 20,
    }
    summary = run(Camera, tmp_path / "run", quiet=True, **fields)
    assert summary["evaluation_return"] > 0.95 * own_envs.STEPS


def test_a_policy_is_loaded_without_its_env(tmp_path):
    run(Camera, tmp_path / "run", quiet=True, **SMALL)
    described = read_json(tmp_path / "run" / "config.json")
    described["config"]["env"] = "not_installed:Camera"
    write_sealed(tmp_path / "run" / "config.json", described)
    policy = load_policy(tmp_path / "run")
    observations = [Camera.observation_space.sample() for _ in range(4)]
    actions = policy(observations)
    assert actions.shape == (4,) and policy(observations[0]) == actions[0]
    assert sum(each.numel() for each in policy.network.parameters()) > 1000
    assert set(np.stack([policy.sample(observations) for _ in range(50)]).ravel().tolist()) == {0, 1}
    with pytest.raises(ConfigError, match="other observations than its env has"):
        policy({"camera": 3})


@pytest.mark.parametrize("algorithm", ["pqn", "ppo"])
def test_a_loaded_policy_keeps_to_the_mask(tmp_path, algorithm):
    run(TwoDoors, tmp_path / "run", quiet=True, **SMALL, algorithm=algorithm)
    policy, observation = load_policy(tmp_path / "run"), np.zeros(2, np.float32)
    masks = np.eye(8, dtype=np.int8)
    assert [int(policy(observation, mask)) for mask in masks] == list(range(8))
    assert policy(np.zeros((8, 2), np.float32), masks).tolist() == list(range(8))
    assert [int(policy.sample(observation, mask)) for mask in masks] == list(range(8))
    with pytest.raises(ConfigError, match="needs action_mask"):
        policy(observation)


@pytest.mark.parametrize("algorithm", ["pqn", "ppo"])
def test_gymnasiums_taxi_is_played_with_its_masks(tmp_path, algorithm):
    summary = run("Taxi-v4", tmp_path / "run", quiet=True, **SMALL, algorithm=algorithm)
    stored = read_json(tmp_path / "run" / "config.json")["spaces"]
    assert summary["status"] == "done" and stored["action_mask"] and stored["observation"]["n"] == 500
