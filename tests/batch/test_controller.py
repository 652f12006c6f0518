"""The batch controller: an adaptive batch around updates that are not ours."""

import json

import pytest
import torch
from torch import distributions, nn

from swell.batch.controller import BatchController
from swell.batch.noise_scale import GradientNoiseScale
from swell.batch.scalers import AdaptiveScaler, FixedScaler, RampScaler
from swell.batch.signals import BehavioralDivergence, EffectiveSampleSize
from swell.errors import ConfigError
from swell.learning.distributions import categorical_view, gaussian_view

pytestmark = pytest.mark.portable

READINGS = [0.9, 0.4, 0.2, 0.1, 0.05, 0.0, 0.3, 0.7]
RULE = {"min_horizon": 16, "max_horizon": 128, "calm_reading": 0.01, "volatile_reading": 0.5, "smoothing": 0.4}
STATES = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))


class Policy(nn.Module):
    """A small policy in plain torch."""

    def __init__(self, outputs=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, outputs))
        self.log_std = nn.Parameter(torch.full((outputs,), -0.5))

    def forward(self, states):
        return self.layers(states)


@pytest.fixture
def policy():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Policy()


def step(policy, size=0.1):
    """Moves every weight, as an optimizer would: in place, outside the view of any graph."""
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7)))


def states_of(policy):
    return STATES.to(next(policy.parameters()).dtype)


def logits_of(policy):
    return lambda: categorical_view(policy(states_of(policy)))


@pytest.mark.parametrize("fields", [RULE, {**RULE, "history": 3, "warmup_readings": 2, "rounding": "truncate"}])
def test_the_horizon_follows_readings_as_that_of_the_adaptive_scaler(fields):
    controller, scaler = BatchController(**fields), AdaptiveScaler(**fields)
    assert controller.horizon == scaler.plan(0.0).horizon == 16
    for reading in READINGS:
        scaler.adjust(reading)
        assert controller.adjust(reading) == scaler.plan(0.0).horizon
        assert controller.plan == scaler.plan(0.0) and controller.reading == reading
    assert controller.scaler.state_dict() == scaler.state_dict()


@pytest.mark.usefixtures("in_float64")
def test_a_watched_update_reads_the_kl_of_the_new_policy_from_the_old(policy):
    controller = BatchController(**RULE)
    old = distributions.Categorical(logits=policy(states_of(policy)).detach())
    with controller.watch(logits_of(policy)):
        step(policy)
    new = distributions.Categorical(logits=policy(states_of(policy)).detach())
    expected = distributions.kl_divergence(new, old).mean().item()
    assert expected > 1e-3 and abs(expected - distributions.kl_divergence(old, new).mean().item()) > 1e-6
    assert controller.reading == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.usefixtures("in_float64")
def test_a_watched_update_of_a_gaussian_policy_reads_its_kl(policy):
    controller = BatchController(**RULE)

    def distribution():
        normal = distributions.Normal(policy(states_of(policy)).detach(), policy.log_std.detach().exp().clone())
        return distributions.Independent(normal, 1)

    old = distribution()
    with controller.watch(lambda: gaussian_view(policy(states_of(policy)), policy.log_std)):
        step(policy)
    expected = distributions.kl_divergence(distribution(), old).mean().item()
    assert expected > 1e-3
    assert controller.reading == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_an_update_that_changes_nothing_reads_exactly_zero_and_one_that_changes_something_does_not(policy):
    controller = BatchController(**RULE)
    with controller.watch(logits_of(policy)):
        pass
    assert controller.reading == 0.0
    assert controller.scaler.state_dict()["horizon"] == pytest.approx(0.6 * 16 + 0.4 * 128)
    with controller.watch(logits_of(policy)):
        step(policy)
    assert controller.reading > 0.0


def test_a_real_gradient_step_is_seen(policy):
    controller = BatchController(**RULE)
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    with controller.watch(logits_of(policy)):
        optimizer.zero_grad()
        policy(STATES).logsumexp(1).mean().backward()
        optimizer.step()
    assert 0.0 < controller.reading < 1.0
    assert all(parameter.grad is not None for parameter in policy.layers.parameters())


def test_watching_draws_no_random_number_and_leaves_gradients_on(policy):
    before = torch.get_rng_state()
    with BatchController(**RULE).watch(logits_of(policy)):
        assert torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in policy.parameters())


def test_every_k_th_update_is_looked_at(policy):
    controller, asked = BatchController(**RULE, every=3), []

    def view():
        asked.append(len(horizons))
        return categorical_view(policy(STATES))

    horizons = []
    for _ in range(7):
        with controller.watch(view):
            step(policy, 1e-4)
        horizons.append(controller.horizon)
    assert asked == [2, 2, 5, 5]  # before and after the third and the sixth
    assert horizons[0] == horizons[1] == 16 < horizons[2] == horizons[3] == horizons[4] < horizons[5] == horizons[6]


def failing_update(controller, policy):
    with controller.watch(logits_of(policy)):
        step(policy)
        raise RuntimeError("the motor is on fire")


def test_an_update_that_fails_adjusts_nothing(policy):
    controller = BatchController(**RULE)
    controller.adjust(0.1)
    before = controller.scaler.state_dict()
    with pytest.raises(RuntimeError, match="the motor is on fire"):
        failing_update(controller, policy)
    assert controller.scaler.state_dict() == before and controller.reading == 0.1
    with controller.watch(logits_of(policy)):
        step(policy)
    assert controller.scaler.state_dict() != before


def test_a_restored_controller_goes_on_exactly(policy):
    fields = {**RULE, "every": 2, "history": 3}
    controller, restored = BatchController(**fields), BatchController(**fields)
    for _ in range(3):
        with controller.watch(logits_of(policy)):
            step(policy, 0.01)
    controller.progress = 0.25
    restored.load_state_dict(json.loads(json.dumps(controller.state_dict())))
    assert restored.state_dict() == controller.state_dict()
    assert (restored.horizon, restored.reading, restored.progress) == (controller.horizon, controller.reading, 0.25)
    for size in (0.0, 0.05, 0.0, 0.1):
        readings = []
        weights = {name: value.clone() for name, value in policy.state_dict().items()}
        for twin in (controller, restored):
            policy.load_state_dict(weights)
            with twin.watch(logits_of(policy)):
                step(policy, size)
            readings.append(twin.reading)
        assert readings[0] == readings[1]
        assert restored.state_dict() == controller.state_dict()


def test_the_gradient_noise_scale_of_a_foreign_policy_is_refused_in_one_line(policy):
    controller = BatchController(signal=GradientNoiseScale())
    with pytest.raises(ConfigError) as caught, controller.watch(logits_of(policy)):
        raise AssertionError("the update was begun")
    (line,) = caught.value.faults
    assert line == "the gradient noise scale needs the losses of Swell's own learners; take another signal"


def test_another_signal_takes_the_place_of_the_kl(policy):
    controller = BatchController(signal=BehavioralDivergence(), **RULE)
    before = policy(STATES).argmax(1)
    with controller.watch(logits_of(policy)):
        step(policy, 0.5)
    share = (policy(STATES).argmax(1) != before).float().mean().item()
    assert controller.reading == pytest.approx(share) and share > 0.0
    actions = torch.zeros(50, dtype=torch.long)
    sizes = BatchController(signal=EffectiveSampleSize(), min_horizon=4, calm_reading=0.9, volatile_reading=0.3)
    with sizes.watch(lambda: categorical_view(policy(STATES), actions)):
        pass
    assert sizes.reading == pytest.approx(1.0)


def test_another_scaler_takes_the_place_of_the_adaptive_one():
    fixed = BatchController(scaler=FixedScaler(horizon=24))
    assert fixed.adjust(0.0) == fixed.horizon == 24
    ramp = BatchController(scaler=RampScaler(ramp_horizons=(10, 30)))
    assert ramp.horizon == 10
    ramp.progress = 0.5
    assert ramp.horizon == 20


def test_settings_beside_a_scaler_of_ones_own_are_refused():
    with pytest.raises(ConfigError) as caught:
        BatchController(scaler=FixedScaler(), max_horizon=4, history=2)
    assert list(caught.value.faults) == ["max_horizon, history: give these to the scaler, which is your own"]


def test_unknown_settings_are_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"^unknown option max_horizn; did you mean max_horizon\?$"):
        BatchController(max_horizn=4)


def test_the_number_of_envs_makes_minibatches_of_a_size():
    assert BatchController(num_envs=32).plan.minibatches == 32 * 16 // 128
    assert BatchController(min_horizon=50).plan.minibatches == 4


@pytest.mark.parametrize("every", [0, -1, 1.5, "often"])
def test_a_wrong_interval_is_refused_in_one_line(every):
    with pytest.raises(ConfigError, match="every must be a whole number of at least 1, got") as caught:
        BatchController(every=every)
    assert len(caught.value.faults) == 1


def test_a_view_outlives_weights_that_are_changed_in_place():
    """A network may hand out its own memory; the view of before must not change with it."""
    memory = torch.zeros(50, 3)
    controller = BatchController(**RULE)
    with controller.watch(lambda: categorical_view(memory)):
        memory[:, 0] = 2.0
    assert controller.reading > 0.1
    means = torch.zeros(50, 2)
    with controller.watch(lambda: gaussian_view(means, torch.zeros(2))):
        means.fill_(0.5)
    assert controller.reading == pytest.approx(0.25)


# Calibration, and measuring alone.

FIRST = [0.04, 0.02, 0.03, 0.01, 0.05]


def test_without_thresholds_they_come_from_the_first_readings():
    controller = BatchController(
        min_horizon=16, max_horizon=128, smoothing=1.0, calibration_readings=3, settling_readings=2
    )
    for reading in FIRST:
        assert controller.thresholds is None
        assert controller.adjust(reading) == 16
    assert controller.thresholds == pytest.approx((0.003, 0.03))
    assert controller.adjust(0.003) == 128 and controller.adjust(0.03) == 16
    given = BatchController(**RULE)
    assert given.thresholds == (0.01, 0.5)
    assert BatchController(scaler=FixedScaler()).thresholds is None


def test_a_calibrated_controller_is_restored_from_json_before_and_after_it_has_thresholds():
    fields = {"min_horizon": 16, "max_horizon": 128, "calibration_readings": 4, "signal": "behavioral_divergence"}
    controller = BatchController(**fields)
    for reading in [*FIRST, 0.002, 0.2]:
        controller.adjust(reading)
        restored = BatchController(**fields)
        restored.load_state_dict(json.loads(json.dumps(controller.state_dict())))
        assert restored.state_dict() == controller.state_dict()
        assert (restored.thresholds, restored.plan) == (controller.thresholds, controller.plan)
    assert controller.thresholds == pytest.approx((0.025 * 0.1**0.5, 0.025)) and controller.horizon > 16


def test_a_calibrated_plan_has_the_epochs_and_minibatches_that_were_asked_for():
    controller = BatchController(min_horizon=64, max_horizon=128, epochs=7, minibatch_size=16, num_envs=2)
    assert (controller.plan.epochs, controller.plan.minibatches) == (7, 8)
    for _ in range(10):
        controller.adjust(0.5)
    assert controller.thresholds == pytest.approx((0.05, 0.5))
    assert (controller.plan.epochs, controller.plan.minibatches) == (7, 8)


def test_measuring_leaves_the_horizon_and_suggests_thresholds():
    controller = BatchController.measuring(100, calibration_readings=5)
    assert controller.summary() == "no readings of kl_divergence"
    for reading in FIRST:
        assert controller.adjust(reading) == 100
    assert (
        controller.summary()
        == "5 readings of kl_divergence from 0.01 to 0.05; calm_reading=0.003, volatile_reading=0.03"
    )
    for reading in (1e-9, 5.0, 1e-5, 0.007):
        assert controller.adjust(reading) == 100
    assert controller.summary().startswith("9 readings of kl_divergence from 1e-09 to 5;")
    few = BatchController.measuring(8)
    few.adjust(0.5)
    assert few.summary() == "1 readings of kl_divergence from 0.5 to 0.5; too few for thresholds"


def test_thresholds_that_no_reading_meets_are_warned_of_once():
    controller = BatchController(**RULE)
    for _ in range(19):
        controller.adjust(0.001)
    with pytest.warns(
        UserWarning, match="none of 20 readings of kl_divergence from 0.001 to 0.9 lies between"
    ) as caught:
        controller.adjust(0.9)
    controller.adjust(0.9)
    assert len(caught) == 1


@pytest.mark.filterwarnings("error")
def test_one_reading_between_the_thresholds_is_enough():
    controller, calibrated = BatchController(**RULE), BatchController(min_horizon=2, max_horizon=9)
    for reading in [0.1, *[0.001] * 30]:
        controller.adjust(reading)
        calibrated.adjust(reading)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"calm_reading": 0.1}, "calm_reading and volatile_reading go together, got only calm_reading"),
        (
            {**RULE, "calibration_readings": 3},
            "calibration_readings: with calm_reading and volatile_reading given there",
        ),
        ({"calibration_readings": 0}, "calibration_readings must be a whole number of at least 1, got 0"),
        ({"settling_readings": 1.5}, "settling_readings must be a whole number of at least 0, got 1.5"),
        (
            {"signal": "surprise"},
            "signal must be one of kl_divergence, behavioral_divergence, effective_sample_size or",
        ),
    ],
)
def test_contradictory_calibration_is_refused_in_one_line(fields, said):
    with pytest.raises(ConfigError) as caught:
        BatchController(**fields)
    (line,) = caught.value.faults
    assert line.startswith(said)


def test_measuring_takes_no_setting_of_a_batch_that_moves():
    with pytest.raises(
        ConfigError, match=r"^smoothing: a controller that only measures takes calibration_readings and"
    ):
        BatchController.measuring(64, smoothing=0.5)


def test_a_state_of_another_rule_is_refused():
    with pytest.raises(ConfigError, match="the state is that of the AdaptiveScaler of kl_divergence and does not fit"):
        BatchController().load_state_dict(BatchController(**RULE).state_dict())


def test_a_restored_horizon_keeps_to_a_narrower_range():
    wide, narrow = BatchController(**RULE), BatchController(**{**RULE, "max_horizon": 20})
    for _ in range(10):
        wide.adjust(0.0001)
    narrow.load_state_dict(wide.state_dict())
    assert wide.horizon > 100 and narrow.horizon == 20
