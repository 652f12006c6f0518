"""Which path a learner takes, what is written of it, and what a resumed run makes of it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import short_trainings
import torch
from gymnasium import spaces
from kill import outcome, run_and_kill, same, small_config
from policy_learners import POLICY_ALGORITHMS, learner_for, practise, rollout_of, weights
from scripted_envs import ScriptedEnvs
from torch import nn

from swell.algorithms.ppo import PPO
from swell.algorithms.pqn import PQN
from swell.errors import ConfigError
from swell.kernels import factory
from swell.learning import precision
from swell.networks.encoders import VectorEncoder
from swell.runs import driver
from swell.runs.checkpoint import load_newest
from swell.runs.run_directory import read_json
from swell.runs.start import resume, run
from swell.types import BatchPlan

pytest.importorskip("numba")

NUMBERS, IMAGES = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(0, 255, (4, 84, 84), np.uint8)
TWO = spaces.Discrete(2)
NONE_OF_THESE = "path compiled is for plain networks on a CPU, and this is none; try --path auto"
NO_NUMBA = 'path compiled needs the fast extra: pip install "swell-rl[fast]"'


@pytest.fixture
def without_numba(monkeypatch):
    monkeypatch.setattr(factory, "find_spec", lambda package: None if package == "numba" else object())


class LoudLinear(nn.Linear):
    """A layer that does something else than the kind it inherits from."""

    def forward(self, inputs):
        return 2.0 * super().forward(inputs)


class LoudEncoder(VectorEncoder):
    def forward(self, observations):
        return 2.0 * super().forward(observations)


def frozen(network):
    network[0].weight.requires_grad_(False)
    return network


def plain(*middle, last=None):
    return nn.Sequential(nn.Linear(3, 8), *(middle or [nn.ReLU()]), last or nn.Linear(8, 2))


OTHERS = {
    "a subclassed layer": lambda: plain(last=LoudLinear(8, 2)),
    "a subclassed encoder": lambda: nn.Sequential(LoudEncoder(3, (8,)), nn.Linear(8, 2)),
    "a frozen parameter": lambda: frozen(plain()),
    "a layer without bias": lambda: plain(last=nn.Linear(8, 2, bias=False)),
    "a norm without scale": lambda: plain(nn.LayerNorm(8, elementwise_affine=False)),
    "a norm without shift": lambda: plain(nn.LayerNorm(8, bias=False)),
    "a norm after the activation": lambda: plain(nn.ReLU(), nn.LayerNorm(8)),
    "an activation twice": lambda: plain(nn.Tanh(), nn.ReLU()),
    "a norm twice": lambda: plain(nn.LayerNorm(8), nn.LayerNorm(8)),
    "an activation first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 2)),
    "another activation": lambda: plain(nn.GELU()),
    "dropout": lambda: plain(nn.ReLU(), nn.Dropout(0.5)),
    "a weight that is computed": lambda: plain(last=nn.utils.parametrizations.weight_norm(nn.Linear(8, 2))),
}


@pytest.mark.parametrize("name", list(OTHERS))
def test_other_networks_are_left_to_autograd(name):
    make = OTHERS[name]
    assert PQN(NUMBERS, TWO, network=make()).path == "autograd"
    with pytest.raises(ConfigError) as error:
        PQN(NUMBERS, TWO, network=make(), path="compiled")
    assert str(error.value) == NONE_OF_THESE


def test_a_plain_network_of_ones_own_is_compiled():
    learner = PQN(NUMBERS, TWO, network=plain(nn.LayerNorm(8), nn.Tanh()))
    assert learner.path == "compiled"
    observations = torch.randn(5, 3)
    with torch.no_grad():
        torch.testing.assert_close(learner.model(observations), learner.network(observations))


@pytest.mark.parametrize("network", ["nature-cnn", "impala-cnn"])
@pytest.mark.parametrize("kind", [PPO, PQN])
def test_large_networks_are_left_to_autograd(kind, network):
    assert kind(IMAGES, TWO, network=network).path == "autograd"
    with pytest.raises(ConfigError, match=NONE_OF_THESE):
        kind(IMAGES, TWO, network=network, path="compiled")


def test_pqn_l_is_left_to_autograd():
    assert PQN(IMAGES, TWO, network="pqn-l").path == "autograd"
    with pytest.raises(ConfigError, match=NONE_OF_THESE):
        PQN(IMAGES, TWO, network="pqn-l", path="compiled")


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 1, (4, 10, 10), np.float32),
        spaces.Box(0, 1, (10, 10, 3), np.uint8),
        spaces.Box(0, 255, (4, 10, 10), np.int64),
    ],
    ids=["of floats", "with the channels behind", "of integers"],
)
def test_images_that_the_convolution_does_not_take_are_left_to_autograd(space):
    for kind in (PPO, PQN):
        assert kind(space, TWO).path == "autograd"


def test_a_subclassed_policy_is_left_to_autograd():
    class Own(type(PPO(NUMBERS, TWO).network)):
        pass

    network = PPO(NUMBERS, TWO).network
    network.__class__ = Own
    assert PPO(NUMBERS, TWO, network=network).path == "autograd"
    with pytest.raises(ConfigError, match=NONE_OF_THESE):
        PPO(NUMBERS, TWO, network=network, path="compiled")


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("algorithm", [*POLICY_ALGORITHMS, "pqn"])
def test_float64_is_left_to_autograd(algorithm):
    assert learner_for(ScriptedEnvs(), algorithm).path == "autograd"
    with pytest.raises(ConfigError, match=NONE_OF_THESE):
        learner_for(ScriptedEnvs(), algorithm, path="compiled")


@pytest.mark.parametrize("algorithm", [*POLICY_ALGORITHMS, "pqn"])
def test_auto_takes_the_kernels_where_there_are_some(algorithm):
    taken = {path: learner_for(ScriptedEnvs(), algorithm, path=path).path for path in ("auto", "autograd", "compiled")}
    assert taken == {"auto": "compiled", "autograd": "autograd", "compiled": "compiled"}


@pytest.mark.usefixtures("without_numba")
@pytest.mark.parametrize("algorithm", [*POLICY_ALGORITHMS, "pqn"])
def test_without_numba_all_is_left_to_autograd(algorithm):
    learner = learner_for(ScriptedEnvs(), algorithm)
    assert learner.path == "autograd"
    practise(learner, ScriptedEnvs(), BatchPlan(8, 1, 2), 2)
    with pytest.raises(ConfigError) as error:
        learner_for(ScriptedEnvs(), algorithm, path="compiled")
    assert str(error.value) == f"scripted: {NO_NUMBA}"


@pytest.mark.parametrize("package", ["numba", "scipy", "threadpoolctl"])
def test_every_package_of_the_extra_is_needed(monkeypatch, package):
    monkeypatch.setattr(factory, "find_spec", lambda name: None if name == package else object())
    assert not factory.can_compile()


def test_nothing_of_numba_is_imported_where_autograd_is_asked_for():
    code = (
        "import sys; from swell.algorithms.pqn import PQN; from swell.algorithms.ppo import PPO;"
        "from gymnasium.spaces import Box, Discrete;"
        "[kind(Box(-1, 1, (3,)), Discrete(2), path='autograd') for kind in (PPO, PQN)];"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


@pytest.mark.parametrize("algorithm", [*POLICY_ALGORITHMS, "pqn"])
def test_a_state_of_one_path_may_go_on_by_the_other(algorithm):
    envs = ScriptedEnvs()
    learner, other = (learner_for(envs, algorithm, path=path) for path in ("compiled", "autograd"))
    practise(learner, envs, BatchPlan(8, 1, 2), 2)
    assert learner.state_dict()["path"] == "compiled" and other.state_dict()["path"] == "autograd"
    other.load_state_dict(learner.state_dict())
    assert torch.equal(weights(learner), weights(other))
    rollout = rollout_of(learner, envs, 8)
    before = weights(learner)
    for each in (learner, other):
        each.update(rollout, BatchPlan(8, 1, 2), 0.0)
    change = weights(learner) - before
    torch.testing.assert_close(weights(other) - before, change, rtol=0, atol=1e-3 * change.abs().max().item())


def trained_in_a_process(cache):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, short_trainings.__file__], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_code_from_the_cache_gives_the_same_bits_as_code_just_compiled(tmp_path):
    compiled = trained_in_a_process(tmp_path)
    kept = sorted(tmp_path.rglob("*.nbc"))
    assert kept, "nothing was kept"
    times = [path.stat().st_mtime_ns for path in kept]
    assert trained_in_a_process(tmp_path) == compiled
    assert sorted(tmp_path.rglob("*.nbc")) == kept and [path.stat().st_mtime_ns for path in kept] == times
    assert len(compiled) == 64


def test_training_again_in_one_process_gives_the_same_bits(capsys):
    printed = []
    for _ in range(2):
        short_trainings.main()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


POLICIES = {"scaler": "adaptive", "min_horizon": 4, "max_horizon": 16, "measure_every": 2, "hidden": (16,)}
PHASES = {"phase_env_steps": 300, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 64}
RESUMED = {
    "pqn": {"algorithm": "pqn"},
    "ppo": {"algorithm": "ppo", **POLICIES},
    "ppg-ewma": {"algorithm": "ppg-ewma", **POLICIES, **PHASES},
}
SHORT = {"total_env_steps": 1200, "checkpoint_every": 200, "evaluate_every": 0, "evaluation_episodes": 2}


@pytest.mark.parametrize("path", ["auto", "autograd"])
def test_the_path_is_in_all_that_a_run_leaves(tmp_path, path):
    taken = "compiled" if path == "auto" else "autograd"
    run(small_config(path=path, **SHORT), tmp_path / "run", quiet=True)
    assert read_json(tmp_path / "run" / "config.json")["path"] == taken
    assert read_json(tmp_path / "run" / "config.json")["config"]["path"] == path
    assert read_json(tmp_path / "run" / "summary.json")["path"] == taken
    assert load_newest(tmp_path / "run" / "checkpoints", print)[1]["learner"]["path"] == taken


@pytest.fixture(scope="module")
def killed_on(tmp_path_factory):
    """A run that was killed on its way, once per path."""
    made: dict[str, Path] = {}

    def directory(path, **fields):
        key = f"{path} {fields}"
        if key not in made:
            made[key] = tmp_path_factory.mktemp("killed") / "run"
            assert run_and_kill(small_config(path=path, **SHORT, **fields), made[key], driver.Run, "_log", 9)
        return made[key]

    return directory


@pytest.mark.parametrize("name", list(RESUMED))
def test_a_killed_run_by_autograd_ends_like_an_uninterrupted_one(tmp_path, killed_on, name):
    """By kernels: tests/runs/test_resume.py, where `auto` takes them."""
    directory = killed_on("autograd", **RESUMED[name])
    run(small_config(path="autograd", **SHORT, **RESUMED[name]), tmp_path / "whole", quiet=True)
    resume(directory, quiet=True)
    assert same(outcome(directory), outcome(tmp_path / "whole"))


@pytest.mark.parametrize("path", ["auto", "compiled"])
def test_a_run_by_kernels_goes_on_without_numba_and_says_so(killed_on, path, monkeypatch, capsys):
    directory = killed_on(path)
    assert read_json(directory / "config.json")["path"] == "compiled"
    monkeypatch.setattr(factory, "find_spec", lambda package: None if package == "numba" else object())
    summary = resume(directory)
    lines = capsys.readouterr().out.splitlines()
    assert any("path was compiled and is autograd: the run continues, but not bit for bit" in line for line in lines)
    assert summary["status"] == "done" and summary["path"] == "autograd"


def test_a_run_begun_without_numba_stays_on_its_path(tmp_path, monkeypatch, capsys):
    """Where kernels have come in the meantime they would change bits."""
    config, directory = small_config(**SHORT), tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factory, "find_spec", lambda package: None)
        run(config, tmp_path / "whole", quiet=True)
        assert run_and_kill(config, directory, driver.Run, "_log", 9)
    assert learner_for(ScriptedEnvs()).path == "compiled"
    assert resume(directory)["path"] == "autograd"
    assert "bit for bit" not in capsys.readouterr().out
    assert same(outcome(directory), outcome(tmp_path / "whole"))


SMALL_IMAGES = spaces.Box(0, 255, (4, 40, 40), np.uint8)
VECTORS_REFUSED = "precision bfloat16 is for images; this network takes vectors, try --precision float32"


@pytest.fixture
def bfloat16_everywhere(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: True)


@pytest.mark.usefixtures("bfloat16_everywhere")
@pytest.mark.parametrize("kind", [PPO, PQN])
def test_half_precision_is_refused_for_vectors(kind):
    with pytest.raises(ConfigError) as error:
        kind(NUMBERS, TWO, precision="bfloat16")
    assert str(error.value) == VECTORS_REFUSED


@pytest.mark.parametrize("kind", [PPO, PQN])
def test_half_precision_is_refused_where_the_machine_has_none(kind, monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    with pytest.raises(
        ConfigError, match="bfloat16 needs arithmetic that this cpu does not have; try float32"
    ) as error:
        kind(SMALL_IMAGES, TWO, precision="bfloat16")
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("bfloat16_everywhere")
@pytest.mark.parametrize("kind", [PPO, PQN])
@pytest.mark.parametrize("space", [SMALL_IMAGES, spaces.Box(0, 1, (4, 10, 10), np.bool_)], ids=["bytes", "minatar"])
def test_half_precision_changes_passes_and_nothing_else(kind, space):
    half, full = (kind(space, TWO, precision=name, path="auto") for name in ("bfloat16", "float32"))
    assert half.path == "autograd"
    random = np.random.default_rng(0)
    high = 2 if space.dtype == np.bool_ else 256
    observations = torch.from_numpy(random.integers(0, high, (6, *space.shape)).astype(space.dtype))
    outputs, exact = (
        made if isinstance(made, tuple) else (made,) for made in (half.model(observations), full.model(observations))
    )
    for output, right in zip(outputs, exact, strict=True):
        assert output.dtype == torch.float32
        distance = (output - right).abs().max().item()
        assert 0.0 < distance < 0.05 * max(1.0, right.abs().max().item())
    outputs[0].square().sum().backward()
    gradients = [parameter.grad for parameter in half.network.parameters()]
    assert all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients)
    assert sum(gradient.abs().sum().item() for gradient in gradients) > 0.0
    assert {parameter.dtype for parameter in half.network.parameters()} == {torch.float32}


@pytest.mark.usefixtures("bfloat16_everywhere")
@pytest.mark.parametrize("algorithm", [*POLICY_ALGORITHMS, "pqn"])
def test_every_learner_trains_in_half_precision(algorithm):
    envs = ImageEnvs()
    learner = learner_for(envs, algorithm, precision="bfloat16")
    before = weights(learner)
    metrics = practise(learner, envs, BatchPlan(4, 1, 2), 2)[-1]
    assert np.isfinite(metrics["loss"]) and weights(learner).dtype == torch.float32
    assert not torch.equal(before, weights(learner))


class ImageEnvs(ScriptedEnvs):
    """Shows the numbers of ScriptedEnvs as grey images."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (3, 10, 10), np.uint8)

    def _observations(self):
        grey = super()._observations() * 9 + 20
        return np.broadcast_to(grey[:, :, None, None], (self.num_envs, 3, 10, 10)).astype(np.uint8)
