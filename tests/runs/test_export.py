"""Exported policies do what the policy does, in the runtime that they were made for."""

import json
import sys

import numpy as np
import pytest
import torch
from full_disk import files_limited_to
from own_envs import Camera, TwoDoors

import swell.runs.export as exporting
from swell.errors import ConfigError, StorageError
from swell.networks.parts import FORBIDDEN
from swell.runs.agent import load_policy
from swell.runs.export import export, made_up_observations
from swell.runs.start import run

SMALL = {
    "total_env_steps": 640,
    "num_envs": 4,
    "scaler": "fixed",
    "horizon": 32,
    "hidden": (16,),
    "evaluation_episodes": 2,
    "threads": 1,
    "max_episode_steps": 50,
}
RUNS = {
    "pqn": ("CartPole-v1", {}),
    "masks": (TwoDoors, {"algorithm": "ppo", "normalize_observations": True}),
    "parts": (Camera, {}),
    "continuous": ("Pendulum-v1", {"algorithm": "ppo", "normalize_observations": True}),
    "planes": ("MinAtar/Breakout-v1", {}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    made = {}
    for name, (env, fields) in RUNS.items():
        made[name] = tmp_path_factory.mktemp("export") / name
        run(env, made[name], quiet=True, **{**SMALL, **fields})
    return made


def run_file(path, observations):
    if path.suffix == ".pt":
        return [output.detach().numpy() for output in torch.jit.load(path)(torch.from_numpy(observations))]
    from onnxruntime import InferenceSession

    return InferenceSession(str(path)).run(None, {"observations": observations})


@pytest.mark.parametrize(
    ("name", "format"),
    [*((name, "torchscript") for name in RUNS), *((name, "onnx") for name in ("pqn", "masks", "planes"))],
)
def test_an_exported_file_acts_as_the_policy_on_a_thousand_observations(runs, name, format):
    path = export(runs[name], format)
    policy = load_policy(runs[name], device="cpu")
    observations = made_up_observations(policy.spaces.observation, policy.spaces.masks, 1000)
    actions, outputs = run_file(path, observations)
    expected = policy(observations)
    # Where two actions are as good as each other, the last bit decides.
    clear = np.ones(1000, bool)
    if actions.ndim == 1:
        best = np.sort(outputs, axis=1)[:, -2:]
        clear = best[:, 1] - best[:, 0] > 1e-4 * np.abs(outputs[outputs > FORBIDDEN]).max()
    assert clear.mean() > 0.98
    np.testing.assert_allclose(actions[clear], expected[clear], atol=1e-4)
    assert actions.shape == expected.shape and outputs.shape[0] == 1000


def test_the_state_dict_holds_the_network(runs):
    from safetensors.torch import load_file

    weights, policy = load_file(export(runs["continuous"], "state-dict")), load_policy(runs["continuous"])
    assert all(torch.equal(value, weights[name]) for name, value in policy.network.state_dict().items())


def test_the_card_says_what_it_is(runs, tmp_path):
    path = export(runs["continuous"], "torchscript", tmp_path / "out")
    card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
    summary = json.loads((runs["continuous"] / "summary.json").read_text())
    assert path == tmp_path / "out" / "policy.pt" and "`Pendulum-v1`" in card
    assert f"{summary['evaluation_return']:.2f} ± {summary['evaluation_std']:.2f} over 2 greedy episodes" in card
    assert "built in: observations are centred and scaled by the moments of training" in card
    assert "1000 of 1000 actions" in card and '"algorithm": "ppo"' in card


def test_a_file_that_does_something_else_is_not_kept(runs, tmp_path, monkeypatch):
    def write_other(policy, module, path, example):
        path.write_bytes(b"something")
        return lambda observations: (np.zeros(len(observations)), np.zeros((len(observations), 2), np.float32))

    monkeypatch.setitem(exporting.WRITERS, "onnx", write_other)
    with pytest.raises(StorageError, match="was not kept: of 1000 actions"):
        export(runs["pqn"], "onnx", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", exporting.FILES)
def test_a_full_disk_ends_an_export_in_a_line_and_leaves_no_half_a_file(runs, tmp_path, format):
    with files_limited_to(100), pytest.raises(StorageError, match=r"cannot write .*policy.*: File too large"):
        export(runs["pqn"], format, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_told_in_a_line(runs, monkeypatch):
    with pytest.raises(ConfigError, match="format must be one of onnx, torchscript, state-dict, got 'pickle'"):
        export(runs["pqn"], "pickle")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'needs the onnx extra: pip install "swell-rl\[onnx\]"'):
        export(runs["pqn"])
