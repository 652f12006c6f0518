"""Compiled updates are the readable ones: gradients, steps, metrics and stops, held to autograd in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_copies import assert_near, cloned, exact_twin, gradient_seen, update_exactly
from gymnasium import spaces
from hypothesis import given, settings, strategies as st
from policy_learners import CPU, FOREVER, EchoEnvs, JointEnvs, learner_for, rollout_of, weights
from scripted_envs import ScriptedEnvs
from torch import Generator

from swell.collect.collector import Collector
from swell.errors import DivergedError
from swell.types import BatchPlan

pytest.importorskip("numba")
pytestmark = pytest.mark.portable

ENVS = {"discrete": ScriptedEnvs, "joint": JointEnvs, "box": EchoEnvs}
METRICS = ("loss", "gradient_norm", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
PLAIN = {"normalize_observations": True}
"""The observations of scripted envs reach 20, where tanh is flat."""
GRADIENT, CHANGE = 1e-5, 1e-4
"""Parts of the largest entry, and of the largest change of a weight."""


class PictureEnvs(ScriptedEnvs):
    """As MinAtar shows its games, with pixels drawn at random."""

    def __init__(self, num_envs=4, dtype=np.bool_):
        super().__init__(num_envs)
        self.observation_space = spaces.Box(0, 255 if dtype == np.uint8 else 1, (4, 10, 10), dtype)
        self.random = np.random.default_rng(0)

    def _observations(self):
        shape = (self.num_envs, *self.observation_space.shape)
        pixels = self.random.integers(1, 256, shape) if self.observation_space.dtype == np.uint8 else np.ones(shape)
        return (pixels * (self.random.random(shape) < 0.2)).astype(self.observation_space.dtype)


def disturbed(learner, size=0.05):
    """Weights that are not those which acted: ratios are not 1 and values have moved."""
    generator = Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)
    return learner


def both_paths(envs, algorithm="ppo", horizon=20, disturb=0.0, **fields):
    """A compiled learner, its twin in float64, and a rollout of the first."""
    learner = learner_for(envs, algorithm, **{"path": "compiled", **fields})
    rollout = cloned(rollout_of(learner, envs, horizon))
    if "normalize_observations" in fields:
        learner.network.normalizer.observe(rollout.states[rollout.valid_indices])
    if disturb:
        disturbed(learner, disturb)
    return learner, exact_twin(learner, envs, algorithm, **fields), rollout


def assert_same_metrics(metrics, exact, names=METRICS, tolerance=1e-4):
    for name in names:
        assert metrics[name] == pytest.approx(exact[name], rel=tolerance, abs=tolerance), name


def assert_same_change(learner, twin, before, other=None):
    change, exact = weights(learner).double() - before, weights(twin) - before
    assert exact.abs().max().item() > 1e-3
    assert_near(change, exact, CHANGE, None if other is None else weights(other).double() - before)


def assert_same_update(learner, twin, rollout, plan, names=METRICS, other=None):
    """By both paths, and by float32 autograd if its rounding matters; returns the metrics of the compiled one."""
    before = weights(learner).double()
    metrics, exact = learner.update(rollout, plan, 0.0), update_exactly(twin, rollout, plan)
    assert metrics.keys() == exact.keys()
    assert metrics["gradient_steps"] == exact["gradient_steps"]
    assert learner.optimizer.steps == twin.optimizer.steps
    assert_same_metrics(metrics, exact, names)
    if other is not None:
        other.update(rollout, plan, 0.0)
    assert_same_change(learner, twin, before, other)
    return metrics


@pytest.mark.parametrize("kind", list(ENVS))
@pytest.mark.parametrize("norm", ["none", "minibatch", "batch"])
def test_three_epochs_of_ppo_end_where_autograd_ends(kind, norm):
    fields = {"entropy_coefficient": 0.01, "advantage_norm": norm, "max_gradient_norm": 0.5, **PLAIN}
    learner, twin, rollout = both_paths(ENVS[kind](num_envs=8), **fields)
    metrics = assert_same_update(learner, twin, rollout, BatchPlan(20, 3, 5))
    assert metrics["gradient_steps"] == 15 and metrics["approx_kl"] > 0.0


@pytest.mark.parametrize("fields", [{}, {"architecture": "shared"}, {"architecture": "detached"}])
def test_three_epochs_with_every_extra_end_where_autograd_ends(fields):
    fields = {"value_clip_range": 0.1, "clip_range": 0.02, "normalize_rewards": True, "hidden": (20, 12), **fields}
    learner, twin, rollout = both_paths(
        ScriptedEnvs(num_envs=6, next_step=True), norm_over="channels", learning_rate=1e-2, **fields, **PLAIN
    )
    assert not rollout.valid.all()
    metrics = assert_same_update(learner, twin, rollout, BatchPlan(20, 3, 4))
    assert metrics["clip_fraction"] > 0.0


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8])
@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_an_update_on_images_ends_where_autograd_ends(algorithm, dtype):
    learner, twin, rollout = both_paths(PictureEnvs(4, dtype), algorithm, norm_over="channels")
    other = learner_for(PictureEnvs(4, dtype), algorithm, norm_over="channels", path="autograd")
    names = METRICS if algorithm == "ppo" else METRICS[:2]
    assert_same_update(learner, twin, rollout, BatchPlan(20, 1, 3), names, other)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(list(ENVS)),
    clip_range=st.floats(0.01, 1.0),
    value_clip_range=st.none() | st.floats(0.01, 1.0),
    value_coefficient=st.floats(0.0, 2.0),
    entropy_coefficient=st.floats(0.0, 1.0),
    advantage_norm=st.sampled_from(["none", "minibatch", "batch"]),
    max_gradient_norm=st.none() | st.floats(0.01, 10.0),
    architecture=st.sampled_from(["dual", "shared", "detached"]),
    disturb=st.sampled_from([0.01, 0.1, 0.3]),
    horizon=st.integers(1, 40),
)
def test_a_gradient_of_ppo_is_that_of_autograd(kind, horizon, disturb, **fields):
    learner, twin, rollout = both_paths(ENVS[kind](num_envs=3), horizon=horizon, disturb=disturb, **fields, **PLAIN)
    plan = BatchPlan(horizon, 1, 1)
    metrics, exact = learner.update(rollout, plan, 0.0), update_exactly(twin, rollout, plan)
    assert_near(gradient_seen(learner), gradient_seen(twin), GRADIENT)
    assert_same_metrics(metrics, exact, tolerance=2e-5)


@settings(max_examples=15)
@given(
    max_gradient_norm=st.none() | st.floats(0.01, 10.0),
    loss_coefficient=st.floats(0.1, 3.0),
    horizon=st.integers(1, 40),
    norm_over=st.sampled_from(["none", "channels"]),
)
def test_a_gradient_of_pqn_is_that_of_autograd(horizon, **fields):
    learner, twin, rollout = both_paths(ScriptedEnvs(num_envs=3), "pqn", horizon, **fields)
    plan = BatchPlan(horizon, 1, 1)
    metrics, exact = learner.update(rollout, plan, 0.0), update_exactly(twin, rollout, plan)
    assert_near(gradient_seen(learner), gradient_seen(twin), GRADIENT)
    assert_same_metrics(metrics, exact, METRICS[:2], 2e-5)


def rows_at_once(learner):
    part = learner._kernel.part if hasattr(learner, "_kernel") else learner.kernel.both
    return part.room.inputs.shape[0]


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
@pytest.mark.parametrize("kind", ["discrete", "pictures"])
def test_a_minibatch_larger_than_goes_through_at_once_counts_every_row_once(algorithm, kind):
    envs = ScriptedEnvs(num_envs=40) if kind == "discrete" else PictureEnvs(40)
    fields = {"hidden": (512,)} if kind == "discrete" else {}
    if algorithm == "ppo" and kind == "discrete":
        fields |= {**PLAIN, "advantage_norm": "minibatch"}
    learner, twin, rollout = both_paths(envs, algorithm, 23, **fields)
    room = rows_at_once(learner)
    assert 2 * room < 920 and 920 % room
    plan = BatchPlan(23, 1, 1)
    metrics, exact = learner.update(rollout, plan, 0.0), update_exactly(twin, rollout, plan)
    # ReLUs of images: a few of 920 · 1000 may be on the other side in float32.
    assert_near(gradient_seen(learner), gradient_seen(twin), GRADIENT if kind == "discrete" else 1e-4)
    assert_same_metrics(metrics, exact, METRICS if algorithm == "ppo" else METRICS[:2], 2e-5)


def test_the_gradient_of_a_box_is_right_in_parts_too():
    """The deviations are no layer: their gradient is added up beside those of the layers."""
    learner, twin, rollout = both_paths(EchoEnvs(num_envs=40), horizon=21, hidden=(512,), entropy_coefficient=0.1)
    assert rows_at_once(learner) < 840 / 2
    plan = BatchPlan(21, 1, 1)
    learner.update(rollout, plan, 0.0)
    update_exactly(twin, rollout, plan)
    assert_near(gradient_seen(learner), gradient_seen(twin), GRADIENT)
    names = [name for name, _ in learner.network.named_parameters()]
    sizes = [parameter.numel() for parameter in learner.network.parameters()]
    place = names.index("log_std")
    assert_near(gradient_seen(learner).split(sizes)[place], gradient_seen(twin).split(sizes)[place], GRADIENT)


@pytest.mark.parametrize("minibatches", [3, 7, 19, 500])
@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_minibatches_of_uneven_size_are_means_of_their_own(algorithm, minibatches):
    """Down to one row each, where a normalised advantage is 0."""
    fields = {"advantage_norm": "minibatch", **PLAIN} if algorithm == "ppo" else {}
    learner, twin, rollout = both_paths(ScriptedEnvs(num_envs=2), algorithm, 19, **fields)
    metrics = assert_same_update(
        learner, twin, rollout, BatchPlan(19, 1, minibatches), METRICS if algorithm == "ppo" else METRICS[:2]
    )
    assert metrics["gradient_steps"] == min(38, minibatches)


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_reset_rows_leave_no_trace(algorithm):
    envs = ScriptedEnvs(num_envs=3, next_step=True)
    learner = learner_for(envs, algorithm, path="compiled")
    twin = learner_for(envs, algorithm, path="compiled")
    rollout = rollout_of(learner, envs)
    hidden = ~rollout.valid
    assert hidden.any()
    spoiled = replace(
        rollout, rewards=torch.where(hidden, 1e6, rollout.rewards), actions=torch.where(hidden, 1, rollout.actions)
    )
    plan = BatchPlan(20, 2, 4)
    assert learner.update(rollout, plan, 0.0) == twin.update(spoiled, plan, 0.0)
    assert torch.equal(weights(learner), weights(twin))


@pytest.mark.parametrize("epsilon", [1e-8, 1.0])
@pytest.mark.parametrize("epochs", [1, 3, 12])
def test_radam_takes_its_first_steps_by_momentum_and_later_ones_as_autograd_does(epochs, epsilon):
    """With β₂ = 0.999 the sixth step is the first that looks at the squares."""
    learner, twin, rollout = both_paths(ScriptedEnvs(num_envs=4), "pqn", learning_rate=1e-2)
    learner.optimizer.epsilon = twin.optimizer.epsilon = epsilon
    before = weights(learner).double()
    learner.update(rollout, BatchPlan(20, epochs, 2), 0.0)
    update_exactly(twin, rollout, BatchPlan(20, epochs, 2))
    assert learner.optimizer.steps == 2 * epochs
    assert_same_change(learner, twin, before)
    for name in ("mean", "square"):
        assert_near(getattr(learner.optimizer, name), getattr(twin.optimizer, name), 1e-4)


def test_two_updates_go_on_from_the_optimizer_of_the_first():
    envs = ScriptedEnvs(num_envs=4)
    for algorithm, names in (("ppo", METRICS), ("pqn", METRICS[:2])):
        learner, twin, rollout = both_paths(envs, algorithm, **(PLAIN if algorithm == "ppo" else {}))
        for steps in (4, 8):
            metrics = assert_same_update(learner, twin, rollout, BatchPlan(20, 1, 4), names)
            assert metrics["gradient_steps"] == learner.optimizer.steps == steps


@pytest.mark.parametrize("adam_epsilon", [1e-5, 1.0])
def test_the_epsilon_of_adam_is_where_autograd_has_it(adam_epsilon):
    learner, twin, rollout = both_paths(
        ScriptedEnvs(num_envs=4), adam_epsilon=adam_epsilon, learning_rate=0.03, **PLAIN
    )
    assert_same_update(learner, twin, rollout, BatchPlan(20, 3, 2))


def test_the_learning_rate_and_the_betas_of_the_moment_are_used():
    fields = {"anneal_learning_rate": True, "invariance": "on", "invariance_rules": ("learning-rate", "betas")}
    learner, twin, rollout = both_paths(ScriptedEnvs(num_envs=4), reference_batch=20, **fields, **PLAIN)
    before = weights(learner).double()
    for progress in (0.0, 0.5):
        metrics = learner.update(rollout, BatchPlan(20, 1, 4), progress)
        exact = update_exactly(twin, rollout, BatchPlan(20, 1, 4), progress)
        assert metrics["learning_rate"] == exact["learning_rate"]
        assert learner.optimizer.betas == twin.optimizer.betas != (0.9, 0.999)
    assert_same_change(learner, twin, before)


def test_a_value_within_its_clip_keeps_its_slope_whatever_the_rounding():
    """Of unlike values near 0, V_old + (V − V_old) is often not V in float32; the errors then differ by an ulp."""
    envs = ScriptedEnvs(num_envs=30)
    learner = learner_for(envs, path="compiled", value_clip_range=10.0, **PLAIN)
    rollout = cloned(rollout_of(learner, envs, 20))
    learner.network.normalizer.observe(rollout.states)
    generator = Generator().manual_seed(0)
    shape = rollout.recorded["values"].shape
    unlike = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-4, 1, shape, generator=generator)
    small = 0.1 * rollout.rewards / rollout.rewards.max()  # beside large returns an ulp of a value is lost
    spoiled = replace(rollout, rewards=small, recorded={**rollout.recorded, "values": unlike})
    batch = learner.peek(spoiled)
    now = learner.values(batch.states)
    assert (batch.values + (now - batch.values) != now).float().mean() > 0.1, "nothing to be seen here"
    twin = exact_twin(learner, envs, value_clip_range=None, **PLAIN)
    learner.update(spoiled, BatchPlan(20, 1, 1), 0.0)
    update_exactly(twin, spoiled, BatchPlan(20, 1, 1))
    assert_near(gradient_seen(learner), gradient_seen(twin), GRADIENT)


@pytest.mark.parametrize("target_kl", [1e-6, 1e-4, 1e-3, 1e3])
def test_a_target_kl_stops_both_paths_after_the_same_epoch(target_kl):
    learner, twin, rollout = both_paths(ScriptedEnvs(num_envs=4), target_kl=target_kl, **PLAIN)
    metrics = assert_same_update(learner, twin, rollout, BatchPlan(20, 6, 2))
    assert (metrics["epochs"] == 6) == (target_kl == 1e3)
    if target_kl == 1e-3:
        assert metrics["epochs"] > 1


SPOILS = {
    "rewards": lambda rollout: rollout.rewards[0],
    "observations": lambda rollout: rollout.observations[0],
    "values": lambda rollout: rollout.recorded["values"][1],
}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", list(SPOILS))
@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_a_number_that_is_not_finite_stops_the_update_before_its_step(algorithm, where, number):
    """Those before it are taken, and counted, and nothing is left of the one that was not."""
    envs = ScriptedEnvs(num_envs=4)
    fields = {"advantage_norm": "none"} if algorithm == "ppo" else {}
    learner, twin = (learner_for(envs, algorithm, path=path, **fields) for path in ("compiled", "autograd"))
    rollout = cloned(rollout_of(learner, envs))
    SPOILS[where](rollout)[2] = number
    before = weights(learner)
    for each in (learner, twin):
        with pytest.raises(DivergedError, match="no finite update is possible"):
            each.update(rollout, BatchPlan(20, 1, 20), 0.0)
    assert 0 < learner.gradient_steps == learner.optimizer.steps == twin.gradient_steps < 20
    assert_near(weights(learner) - before, weights(twin) - before, CHANGE)
    assert_near(learner.optimizer.mean, twin.optimizer.mean, CHANGE)
    assert_near(learner.optimizer.square, twin.optimizer.square, CHANGE)


def test_a_learner_goes_on_after_an_update_that_was_stopped():
    """Whoever catches the error finds no rest of its gradient."""
    envs = ScriptedEnvs(num_envs=4)
    learner = learner_for(envs, path="compiled", **PLAIN)
    rollout = cloned(rollout_of(learner, envs))
    broken = replace(rollout, rewards=torch.full_like(rollout.rewards, float("nan")))
    with pytest.raises(DivergedError):
        learner.update(broken, BatchPlan(20, 1, 1), 0.0)
    assert learner.gradient_steps == 0 and not learner.optimizer.gradient.any()
    fresh = learner_for(envs, path="compiled", **PLAIN)
    for each in (learner, fresh):
        each.update(rollout, BatchPlan(20, 1, 1), 0.0)
    assert torch.equal(weights(learner), weights(fresh))


EXTRAS = {
    "ppo-ewma": {"advantage_decay": 0.5, "kl_penalty": 0.5},
    "ppg": {"phase_env_steps": 40, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 16},
    "ppg-ewma": {"phase_env_steps": 40, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 16},
    "ess": {"ess_scope": "minibatch"},
}


@pytest.mark.parametrize("kind", list(ENVS))
@pytest.mark.parametrize("algorithm", list(EXTRAS))
def test_learners_that_write_their_losses_in_torch_end_where_autograd_ends(algorithm, kind):
    fields = {"entropy_coefficient": 0.01, **EXTRAS[algorithm], **PLAIN}
    learner, twin, rollout = both_paths(ENVS[kind](num_envs=4), algorithm, **fields)
    names = [name for name in (*METRICS, "auxiliary_loss", "clone_kl", "penalty") if name in learner_metrics(algorithm)]
    # An auxiliary phase starts where the gradient of its KL is 0: Adam then divides what is only rounding.
    other = learner_for(ENVS[kind](num_envs=4), algorithm, **fields, path="autograd")
    other.load_state_dict(learner.state_dict())
    metrics = assert_same_update(learner, twin, rollout, BatchPlan(20, 2, 3), names, other)
    if algorithm.startswith("ppg"):
        assert metrics["gradient_steps"] > 6, "there was no auxiliary phase"


def learner_metrics(algorithm):
    if algorithm == "ess":
        return {*METRICS[:6], "penalty"}
    return {*METRICS, "auxiliary_loss", "clone_kl"} if algorithm.startswith("ppg") else set(METRICS)


@pytest.mark.parametrize("mode", ["behavior", "recent", "decoupled"])
def test_stale_ppo_ends_where_autograd_ends(mode):
    envs = ScriptedEnvs(num_envs=4)
    fields = {"staleness": 2, "staleness_mode": mode, **PLAIN}
    learner = learner_for(envs, path="compiled", **fields)
    collector, plan = Collector(envs, 20, CPU, 2), BatchPlan(20, 2, 3)
    for _ in range(2):
        learner.update(collector.collect(learner, 20, FOREVER), plan, 0.0)
    rollout = cloned(collector.collect(learner, 20, FOREVER))
    batch = learner.peek(rollout)
    assert (batch.recent_log_probs - batch.behavior_log_probs).abs().max() > 1e-3, "nothing is stale"
    twin = exact_twin(learner, envs, **fields)
    twin.optimizer.load_state_dict(learner.optimizer.state_dict())
    twin.shuffle.set_state(learner.shuffle.get_state())
    twin.gradient_steps = learner.gradient_steps
    assert_same_update(learner, twin, rollout, plan)
