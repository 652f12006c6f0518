"""Starting from trained weights, and changing a run in the middle."""

import pytest
import torch

from swell.errors import ConfigError
from swell.presets import make_config
from swell.runs.agent import load_policy
from swell.runs.build import build
from swell.runs.changes import CHANGEABLE
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import read_json
from swell.runs.start import resume, run
from swell.runs.weights import take_weights

SMALL = {
    "total_env_steps": 640,
    "num_envs": 4,
    "scaler": "fixed",
    "horizon": 32,
    "hidden": (16,),
    "evaluation_episodes": 0,
    "threads": 1,
    "max_episode_steps": 50,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trained") / "ppo"
    run("Pendulum-v1", directory, quiet=True, algorithm="ppo", normalize_observations=True, **SMALL)
    return directory


@pytest.mark.parametrize("algorithm", ["ppo", "ppo-ewma"])
def test_a_learner_starts_with_the_network_and_the_normalisation_that_were_trained(trained, algorithm):
    fields = {"algorithm": algorithm, "normalize_observations": True, "seed": 7}
    learner = build(make_config("Pendulum-v1", **SMALL, **fields)).learner
    take_weights(learner, str(trained))
    expected = load_policy(trained).network.state_dict()
    for network in (learner.network, *([learner.average.network] if algorithm == "ppo-ewma" else [])):
        state = network.state_dict()
        assert all(torch.equal(state[name], expected[name]) for name in expected)
    assert expected["normalizer.count"] > 0 and learner.gradient_steps == 0


def test_a_run_records_where_its_weights_came_from(trained, tmp_path):
    run(
        "Pendulum-v1",
        tmp_path / "run",
        quiet=True,
        algorithm="ppo",
        weights_from=str(trained),
        normalize_observations=True,
        **SMALL,
    )
    assert read_json(tmp_path / "run" / "config.json")["config"]["weights_from"] == str(trained)
    assert resume(tmp_path / "run", total_env_steps=800, quiet=True)["env_steps"] >= 800


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"hidden": (8,), "normalize_observations": True}, "is \\[16, 3\\] there and \\[8, 3\\] here"),
        ({"normalize_observations": False}, "normalizer.center is \\[3\\] there and missing here"),
        ({"weights_from": "nowhere"}, "'nowhere' holds no run"),
    ],
)
def test_weights_that_do_not_fit_are_one_line_and_no_directory(trained, tmp_path, fields, line):
    fields = {**SMALL, "algorithm": "ppo", "weights_from": str(trained), **fields}
    with pytest.raises(ConfigError, match=line) as caught:
        run("Pendulum-v1", tmp_path / "run", quiet=True, **fields)
    assert len(caught.value.faults) == 1 and not (tmp_path / "run").exists()


def test_a_change_in_the_middle_holds_from_then_on_and_is_recorded(tmp_path):
    directory = tmp_path / "run"
    run("Acrobot-v1", directory, quiet=True, anneal_learning_rate=False, **SMALL)
    resume(directory, total_env_steps=1280, learning_rate=1e-5, epsilon_end=0.2, quiet=True)
    rates = [(row["env_steps"] <= 640, row["learning_rate"]) for row in read_jsonl(directory / "metrics.jsonl")]
    assert set(rates) == {(True, 5e-4), (False, 1e-5)}
    described = read_json(directory / "config.json")
    (change,) = described["changes"]
    assert described["config"]["learning_rate"] == 1e-5
    assert change == {
        "env_steps": 640,
        "total_env_steps": [640, 1280],
        "learning_rate": [5e-4, 1e-5],
        "epsilon_end": [0.05, 0.2],
    }


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"num_envs": 8}, "num_envs cannot be changed in the middle: the checkpoint holds these envs as they were"),
        ({"hidden": (8,)}, "hidden cannot be changed in the middle: the weights have its shape"),
        ({"discount": 0.9}, "discount cannot be changed in the middle: what was learned so far depends on it"),
        ({"learning_rte": 0.9}, "unknown option learning_rte; did you mean learning_rate?"),
        ({"clip_range": 0.1}, "clip_range is not read by pqn, got 0.1; it belongs to"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number of more than 0, got -1.0"),
        ({"learning_rate": 1e-4}, "is done: to change learning_rate, also give it more steps"),
        ({"total_env_steps": 300}, "steps must be at least the 640 that are done, got 300"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_reason(tmp_path, fields, line):
    directory = tmp_path / "run"
    run("Acrobot-v1", directory, quiet=True, **SMALL)
    before = (directory / "config.json").read_bytes()
    with pytest.raises(ConfigError) as caught:
        resume(directory, quiet=True, **fields)
    assert line in str(caught.value)
    assert (directory / "config.json").read_bytes() == before


def test_the_docs_list_what_can_be_changed():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    (listed,) = [line for line in page.splitlines() if line.startswith("`swell resume DIR --set` takes")]
    assert {word.strip("`., ") for word in listed.split()[5:]} == CHANGEABLE
