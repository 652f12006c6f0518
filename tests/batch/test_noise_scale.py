"""The gradient noise scale: against problems whose noise and signal are known, and without a trace on training."""

import math
from copy import deepcopy

import pytest
import torch
from scripted_envs import ScriptedEnvs
from torch import Generator, nn

from swell.algorithms.pqn import PQN
from swell.batch.noise_scale import (
    LARGEST_NOISE_SCALE,
    GradientNoiseScale,
    flat_gradient,
    noise_and_signal,
    noise_scale,
)
from swell.batch.scalers import NoiseScaleScaler
from swell.collect.collector import Collector
from swell.config.learners import PQNSettings
from swell.measurement import Measurement
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

CPU = torch.device("cpu")


def signal_of(num_microbatches=8, averaging=0.0, micro_batch_size=1024, seed=0):
    return GradientNoiseScale(num_microbatches, averaging, micro_batch_size, seed)


class Of:
    """A learner's policy on a rollout, as a signal sees it."""

    def __init__(self, learner, rollout):
        self.learner, self.rollout = learner, rollout

    def gradient_probe(self):
        return self.learner.gradient_probe(self.rollout)


def terms_of(signal, policy):
    """The estimates of noise and signal of one look, before they are averaged."""
    return signal._noise_and_signal(*policy.gradient_probe())


class Mean(nn.Module):
    """Two numbers; with the loss ½‖w − x‖² the gradient of a sample x ~ N(μ, σ²) is N(w − μ, σ²) in each."""

    def __init__(self, distance):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), distance))
        self.unused = nn.Parameter(torch.ones(5))


class MeanLearner:
    """Samples come from N(0, σ²) afresh at each look, so tr Σ = 2σ² and |G|² = 2 · distance²."""

    def __init__(self, distance, deviation, samples, seed=0):
        self.network = Mean(distance)
        self._deviation = deviation
        self._samples = samples
        self._generator = Generator().manual_seed(seed)

    def gradient_probe(self):
        drawn = self._deviation * torch.randn(self._samples, 2, generator=self._generator)
        losses = lambda chosen: 0.5 * (self.network.weight - drawn[chosen]).square().sum(1)  # noqa: E731
        return torch.arange(self._samples), losses, list(self.network.parameters())


def test_the_estimates_match_the_definition():
    gradients = list(torch.randn(6, 10, generator=Generator().manual_seed(0), dtype=torch.float64))
    noise, signal = noise_and_signal(iter(gradients), microbatch_size=3)
    mean = torch.stack(gradients).mean(dim=0)
    expected = 3 * sum((gradient - mean).square().sum().item() for gradient in gradients) / 5
    assert noise == pytest.approx(expected)
    assert signal == pytest.approx(mean.square().sum().item() - expected / 18)


def test_a_small_noise_is_not_lost_beside_a_large_signal():
    gradients = [torch.tensor([1000.0, step * 1e-2]) for step in range(4)]
    noise, _ = noise_and_signal(gradients, microbatch_size=1)
    assert noise == pytest.approx(1e-4 * torch.arange(4.0).var().item(), rel=1e-3)


def test_both_estimates_are_unbiased_where_the_truth_is_known():
    learner, signal = MeanLearner(distance=0.5, deviation=3.0, samples=64), signal_of()
    looks = torch.tensor([terms_of(signal, learner) for _ in range(3000)])
    errors = looks.std(dim=0) / math.sqrt(3000)
    for mean, truth, error in zip(looks.mean(dim=0), (2 * 3.0**2, 2 * 0.5**2), errors, strict=True):
        assert abs(mean - truth) < 4 * error
    assert (errors / torch.tensor([18.0, 0.5]) < 0.03).all()  # so the line above says something


def test_the_averaged_reading_converges_to_the_noise_scale():
    learner, signal = MeanLearner(distance=0.5, deviation=3.0, samples=256), signal_of(averaging=0.99)
    for _ in range(2000):
        reading = signal.watch(learner)()
    assert reading == pytest.approx(18.0 / 0.5, rel=0.15)


def test_noise_and_signal_are_averaged_before_they_are_divided(monkeypatch):
    signal, terms = signal_of(averaging=0.5), []
    monkeypatch.setattr(signal, "_noise_and_signal", lambda *probe: terms.pop())

    def reading_of(*found):
        terms.append(found)
        return signal.watch(MeanLearner(0.0, 0.0, 2))()

    assert reading_of(8.0, 2.0) == pytest.approx(4.0)  # the first reading counts in full
    # Weights 1 and 2: noise (8 + 2 · 2) / 3, signal (2 + 2 · 0.5) / 3.
    assert reading_of(2.0, 0.5) == pytest.approx(12.0 / 3.0)
    # One unlucky estimate below zero lowers the averaged signal and does not make it infinite.
    assert 4.0 < reading_of(4.0, -0.1) < LARGEST_NOISE_SCALE


@pytest.mark.parametrize("terms", [(1.0, 0.0), (1.0, -1.0), (1.0, 1e-30), (0.0, 0.0)])
def test_a_vanishing_signal_is_the_largest_noise_scale(terms):
    assert noise_scale(*terms) == LARGEST_NOISE_SCALE


def test_without_a_signal_the_batch_grows_to_its_maximum():
    learner, signal = MeanLearner(distance=0.0, deviation=1.0, samples=32), signal_of()
    rule = {"min_horizon": 8, "max_horizon": 128, "smoothing": 1.0, "minibatch_rule": "count", "minibatches": 4}
    scaler = NoiseScaleScaler(num_envs=4, **rule)
    horizons = {}
    for _ in range(50):
        reading = signal.watch(learner)()
        scaler.adjust(reading)
        horizons[reading] = scaler.plan(0.0).horizon
    assert horizons[LARGEST_NOISE_SCALE] == 128


def test_without_noise_the_noise_scale_is_zero():
    learner, signal = MeanLearner(distance=2.0, deviation=0.0, samples=32), signal_of()
    assert signal.watch(learner)() == 0.0


def test_parameters_outside_the_loss_count_as_zeros():
    network = Mean(3.0)
    assert flat_gradient(network.weight.sum(), list(network.parameters())).tolist() == [1.0, 1.0, 0, 0, 0, 0, 0]


@pytest.mark.usefixtures("in_float64")
def test_a_limit_on_memory_does_not_change_the_estimates():
    looks = [
        terms_of(signal_of(num_microbatches=4, micro_batch_size=size), MeanLearner(0.5, 1.0, 64))
        for size in (1, 5, 1024)
    ]
    assert looks[0] == pytest.approx(looks[2])
    assert looks[1] == pytest.approx(looks[2])


class Recorder(MeanLearner):
    """Notes which samples were asked for together."""

    def __init__(self, samples):
        super().__init__(1.0, 1.0, samples)
        self.asked = []

    def gradient_probe(self):
        indices, sample_losses, parameters = super().gradient_probe()

        def noted(chosen):
            self.asked.append(chosen.tolist())
            return sample_losses(chosen)

        return indices, noted, parameters


def test_microbatches_are_shuffled_disjoint_and_of_equal_size():
    learner = Recorder(samples=103)
    signal_of(num_microbatches=10).watch(learner)
    assert [len(chosen) for chosen in learner.asked] == [10] * 10
    together = [index for chosen in learner.asked for index in chosen]
    assert len(set(together)) == 100
    assert all(max(chosen) - min(chosen) > 10 for chosen in learner.asked)  # no slice of time


@pytest.mark.parametrize(("samples", "microbatches"), [(8, 8), (5, 5), (2, 2)])
def test_a_short_rollout_makes_fewer_microbatches(samples, microbatches):
    learner = Recorder(samples)
    assert signal_of().watch(learner)() is not None
    assert len(learner.asked) == microbatches


def test_a_single_transition_has_no_noise_to_measure():
    learner, signal = Recorder(samples=1), signal_of()
    assert signal.watch(learner)() is None


def pqn(envs):
    settings = PQNSettings(
        network="mlp",
        hidden=(32,),
        norm_over="map",
        learning_rate=1e-3,
        anneal_learning_rate=False,
        epsilon_start=1.0,
        epsilon_end=0.1,
        epsilon_fraction=0.5,
        discount=0.9,
        trace_decay=0.5,
        max_gradient_norm=10.0,
        reward_scale=1.0,
        micro_batch_size=64,
    )
    return PQN(envs.observation_space, envs.action_space, settings, seed=0)


def trained(measured):
    envs = ScriptedEnvs(next_step=True)
    learner, collector = pqn(envs), Collector(envs, 20, CPU)
    meter = Measurement(signal_of(num_microbatches=4, averaging=0.9), every=1, unit="iterations")
    readings = []
    for _ in range(5):
        rollout = collector.collect(learner, 20, 10**9)
        look = meter.observe(learner, rollout) if measured else None
        learner.update(rollout, BatchPlan(20, 2, 4), 0.0)
        readings += [meter.compare(look, learner)] if measured else []
    return learner, readings


def test_measuring_the_noise_scale_of_pqn_does_not_change_training():
    (plain, _), (measured, readings) = trained(measured=False), trained(measured=True)
    assert all(0.0 < reading <= LARGEST_NOISE_SCALE for reading in readings) and len(readings) == 5
    for name, state in plain.network.state_dict().items():
        assert torch.equal(state, measured.network.state_dict()[name])
    assert torch.equal(plain.state_dict()["shuffle"], measured.state_dict()["shuffle"])
    assert torch.equal(plain.state_dict()["exploration"], measured.state_dict()["exploration"])


def test_a_look_leaves_no_gradient_behind():
    envs = ScriptedEnvs()
    learner = pqn(envs)
    rollout = Collector(envs, 20, CPU).collect(learner, 20, 10**9)
    before = torch.get_rng_state()
    signal_of().watch(Of(learner, rollout))
    assert not any(parameter.grad.any() for parameter in learner.network.parameters())
    learner.network(rollout.states).sum().backward()
    gradients = [parameter.grad.clone() for parameter in learner.network.parameters()]
    signal_of().watch(Of(learner, rollout))
    for parameter, gradient in zip(learner.network.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("in_float64")
def test_the_noise_of_pqn_is_that_of_its_samples():
    """One microbatch per transition: the noise is then the plain sample variance of the transitions' gradients."""
    envs = ScriptedEnvs(next_step=True)
    learner = pqn(envs)
    rollout = Collector(envs, 10, CPU).collect(learner, 10, 10**9)
    indices, sample_losses, _ = learner.gradient_probe(rollout)
    parameters = list(learner.network.parameters())
    single = torch.stack([flat_gradient(sample_losses(index.view(1)).sum(), parameters) for index in indices])
    noise, signal = terms_of(signal_of(num_microbatches=10**6), Of(learner, rollout))
    variance = single.var(dim=0).sum().item()
    assert noise == pytest.approx(variance)
    assert signal == pytest.approx(single.mean(dim=0).square().sum().item() - variance / len(indices))


def test_a_restored_noise_scale_goes_on_exactly():
    learner, signal = MeanLearner(0.5, 3.0, samples=50), signal_of(averaging=0.9)
    signal.watch(learner)()
    restored = signal_of(averaging=0.9, seed=7)
    restored.load_state_dict(deepcopy(signal.state_dict()))
    twin = deepcopy(learner)
    assert restored.watch(twin)() == signal.watch(learner)()
