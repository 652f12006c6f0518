"""What holds on every device: on the CPU always, on CUDA where there is one."""

import math
from dataclasses import replace
from itertools import islice

import pytest
import torch
from kill import same, small_config
from plain_collector import contents, plain_rollouts
from policy_learners import CPU, FOREVER, POLICY_ALGORITHMS, weights
from scripted_envs import ScriptedEnvs

from swell.collect import buffer as rollout_buffer
from swell.collect.collector import Collector
from swell.errors import ConfigError
from swell.loop import train
from swell.runs.build import build
from swell.runs.start import run
from swell.runs.state_tree import decode_tree, encode_tree

HORIZONS = (4, 9, 2, 9)


@pytest.fixture(params=["cpu", "staged", "cuda"])
def device(request, monkeypatch):
    """Staged is the CPU, taken for a device whose memory the envs cannot write to."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    if request.param == "staged":
        monkeypatch.setattr(rollout_buffer, "is_host", lambda device: False)
    return torch.device(request.param.replace("staged", "cpu"))


class Follower:
    """Acts on what it is shown, on the device where it is shown."""

    def act(self, observations, progress):
        return (observations[:, 2] % 2).long(), {"values": observations.sum(dim=1), "pairs": observations[:, :2] * 2}


class Blind:
    """Looks at nothing, so it waits for no copy of what it is shown."""

    def act(self, observations, progress):
        return torch.ones(observations.shape[0], dtype=torch.long), {}


def collected(learner, device, read=contents):
    """Several rollouts, so that all memory is used more than once."""
    collector = Collector(ScriptedEnvs(3), max(HORIZONS), device)
    return [read(collector.collect(learner, horizon, FOREVER)) for horizon in HORIZONS]


@pytest.mark.parametrize("learner", [Follower(), Blind()], ids=["follower", "blind"])
def test_a_rollout_is_the_same_on_every_device(device, learner):
    assert same(collected(learner, device), plain_rollouts(ScriptedEnvs(3), learner, HORIZONS))


def test_a_rollout_lies_on_the_device(device):
    rollout = Collector(ScriptedEnvs(3), 20, device).collect(Follower(), 20, FOREVER)
    tensors = [rollout.observations, rollout.actions, rollout.rewards, rollout.terminated, rollout.truncated]
    tensors += [rollout.valid, rollout.final_observations, rollout.final_indices, *rollout.recorded.values()]
    assert {tensor.device.type for tensor in tensors} == {device.type}
    assert len(rollout.final_indices)


class Stream:
    """What a device has been asked to do and will do, in this order, when somebody waits for it."""

    def __init__(self):
        self.work = []

    def drain(self):
        while self.work:
            self.work.pop(0)()


def test_staging_memory_is_not_written_before_it_was_sent(monkeypatch):
    """The device is as late as it may be, and the learner, being blind, never waits for it."""
    stream, found = Stream(), []

    class LateStaging(rollout_buffer.Staging):
        def send(self, target):
            stream.work.append(lambda: target.copy_(self._tensor[: target.shape[0]]))

        def wait(self):
            stream.drain()

    def read(rollout):
        stream.work.append(lambda: found.append(contents(rollout)))

    expected = collected(Blind(), CPU)
    monkeypatch.setattr(rollout_buffer, "is_host", lambda device: False)
    monkeypatch.setattr(rollout_buffer, "Staging", LateStaging)
    collected(Blind(), CPU, read)
    stream.drain()
    assert same(found, expected)


@pytest.mark.parametrize("algorithm", ["pqn", *POLICY_ALGORITHMS])
def test_every_learner_trains_on_every_device_and_is_read_back_on_the_cpu(device, algorithm):
    phase = {"auxiliary_epochs": 1, "phase_env_steps": 64} if algorithm.startswith("ppg") else {}
    config = small_config(algorithm=algorithm, device=device.type, **phase)
    parts, other = build(config), build(replace(config, device="cpu"))
    steps = train(parts.collector, parts.learner, parts.measurement, parts.scaler, config.total_env_steps)
    for iteration in islice(steps, 4):
        assert all(math.isfinite(value) for value in iteration.metrics.values())
    assert {parameter.device.type for parameter in parts.learner.network.parameters()} == {device.type}
    other.load_state_dict(decode_tree(*encode_tree(parts.state_dict())), 0)
    assert torch.equal(weights(other.learner), weights(parts.learner).cpu())
    observations = torch.from_numpy(other.collector.envs.reset())
    ours, theirs = (each.learner.act(observations.to(each.device), 0.0)[1]["values"].cpu() for each in (other, parts))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_a_device_that_is_not_there_is_refused_and_leaves_nothing(tmp_path):
    missing = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(ConfigError, match="device must be one that this machine has"):
        run("CartPole-v1", tmp_path / "run", device=missing, quiet=True)
    assert not (tmp_path / "run").exists()
