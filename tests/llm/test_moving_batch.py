"""The plan of a moving batch, without a trainer."""

import json

import pytest

from swell.batch.calibration import CalibratedScaler, thresholds_from
from swell.batch.controller import BatchController
from swell.batch.scalers import FixedScaler, HorizonScaler, RampScaler
from swell.errors import ConfigError
from swell.llm.moving_batch import MovingBatch, PromptStream, Shape
from swell.llm.readings import UpdateNoise, corrected, squared_step


class Scripted(HorizonScaler):
    """Horizons as given, one after the other."""

    def __init__(self, horizons):
        super().__init__()
        self.horizons = list(horizons)

    def horizon(self, progress):
        return self.horizons[0]


def shape(**changes):
    fields = {"slice_size": 8, "num_generations": 4, "rule": "count", "updates_per_pass": 1, "slices_per_update": 1}
    return Shape(**{**fields, "passes": 1, **changes})


def moving(scaler, total=10**6, prompts=7, **changes):
    return MovingBatch(shape(**changes), BatchController(scaler=scaler), PromptStream(prompts, seed=3), total)


def do_window(batch):
    prompts = batch.open_window()
    batch.updates_done = batch.window.updates
    return prompts


def test_scripted_sizes_become_slices_and_prompts_in_order():
    scaler = Scripted([1, 3, 2])
    batch = moving(scaler, prompts=11)
    seen = []
    for slices in (1, 3, 2):
        prompts = do_window(batch)
        assert batch.window.slices == batch.window.slices_per_update == slices and batch.window.updates == 1
        assert prompts == [p for p in prompts[::4] for _ in range(4)]
        seen += prompts[::4]
        scaler.horizons.pop(0)
    assert batch.generated == 6 * 8
    assert len(seen) == 12 and sorted(seen[:11]) == list(range(11))  # none skipped or repeated within an epoch


def test_epochs_differ_and_do_not_depend_on_how_prompts_are_taken():
    whole = PromptStream(50, seed=1).take(150)
    parts = PromptStream(50, seed=1)
    assert [prompt for size in (1, 60, 9, 80) for prompt in parts.take(size)] == whole
    epochs = [whole[:50], whole[50:100], whole[100:]]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs) and len({tuple(epoch) for epoch in epochs}) == 3
    assert PromptStream(3, seed=1, shuffle=False).take(7) == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("changes", "horizon", "window"),
    [
        ({}, 5, (5, 5, 1)),
        ({"updates_per_pass": 2}, 5, (4, 2, 2)),  # whole updates: 4 or 6 slices, 4 is nearer by banker's rounding
        ({"updates_per_pass": 2, "passes": 3}, 6, (6, 3, 6)),
        ({"rule": "size", "slices_per_update": 2}, 6, (6, 2, 3)),
        ({"rule": "size", "slices_per_update": 2, "passes": 2}, 6, (6, 2, 6)),
        ({"num_generations": 16}, 5, (4, 4, 1)),  # two slices make a group
        ({"num_generations": 12}, 5, (6, 6, 1)),  # three slices make two groups
    ],
)
def test_what_a_horizon_becomes(changes, horizon, window):
    batch = moving(Scripted([horizon]), **changes)
    do_window(batch)
    assert (batch.window.slices, batch.window.slices_per_update, batch.window.updates) == window


def test_the_budget_is_met_to_the_smallest_batch_and_progress_ends_at_one():
    batch = moving(Scripted([5]), total=100)
    while not batch.finished:
        batch.open_window()
        before = batch.completions
        batch.updates_done = batch.window.updates
        assert before < batch.completions
    assert 100 <= batch.generated < 108 and batch.progress == 1.0


def test_a_window_counts_as_its_updates_are_made():
    batch = moving(Scripted([4]), updates_per_pass=4, passes=2)
    batch.open_window()
    counted = []
    while not batch.window_done:
        counted.append(batch.completions)
        batch.updates_done += 1
    assert counted == [4.0 * done for done in range(8)] and batch.completions == 32


def test_a_window_closed_early_leaves_the_next_in_order():
    batch = moving(Scripted([2]), prompts=100, passes=5)
    first = batch.open_window()
    batch.close_window()
    assert batch.window_done and batch.completions == 16
    assert not set(first) & set(batch.open_window())


def test_the_state_is_json_and_goes_on_where_it_was():
    def make():
        return moving(RampScaler(ramp_horizons=(1, 9)), total=800, prompts=13)

    whole, first = make(), make()
    expected = [do_window(whole) for _ in range(8)]
    assert [do_window(first) for _ in range(4)] == expected[:4]
    second = make()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.window_done and second.completions == first.completions
    assert [do_window(second) for _ in range(4)] == expected[4:]


def test_an_open_window_cannot_be_saved():
    batch = moving(FixedScaler(horizon=2))
    batch.open_window()
    with pytest.raises(AssertionError):
        batch.state_dict()


def test_sizes_that_do_not_come_out_even_are_explained():
    with pytest.raises(ConfigError, match=r"max_generation_batch_size must be a multiple of 16 .* got 24"):
        shape(num_generations=16).slices("max_generation_batch_size", 24)


# Calibration.


def test_thresholds_are_the_median_and_a_tenth_of_its_divergence():
    assert thresholds_from([0.2, 0.1, 0.4], "kl_divergence") == pytest.approx((0.02, 0.2))
    assert thresholds_from([0.2, 0.1, 0.4], "behavioral_divergence") == pytest.approx((0.2 * 0.1**0.5, 0.2))
    assert thresholds_from([0.9, 0.8, 0.95], "effective_sample_size") == pytest.approx((0.99, 0.9))


@pytest.mark.parametrize(
    ("signal", "still"), [("kl_divergence", 0.0), ("behavioral_divergence", 0.0), ("effective_sample_size", 1.0)]
)
def test_a_policy_that_does_not_move_calibrates_nothing(signal, still):
    scaler = CalibratedScaler(signal, calibration_readings=3, min_horizon=1, max_horizon=9)
    for _ in range(5):
        scaler.adjust(still)
    assert scaler.thresholds is None and scaler.horizon(0.5) == 1.0


def test_the_horizon_waits_for_the_thresholds_and_follows_them():
    scaler = CalibratedScaler("kl_divergence", calibration_readings=3, min_horizon=1, max_horizon=9, smoothing=1.0)
    for reading in (0.1, 0.1, 0.1):
        scaler.adjust(reading)
        assert scaler.horizon(0.0) == 1.0
    scaler.adjust(0.01)
    assert scaler.horizon(0.0) == pytest.approx(9.0)
    scaler.adjust(0.1**1.5)
    assert scaler.horizon(0.0) == pytest.approx(5.0)
    again = CalibratedScaler("kl_divergence", calibration_readings=3, min_horizon=1, max_horizon=9, smoothing=1.0)
    again.load_state_dict(json.loads(json.dumps(scaler.state_dict())))
    assert again.horizon(0.0) == scaler.horizon(0.0) and again.thresholds == scaler.thresholds


def test_readings_of_an_unsettled_optimizer_are_left_out():
    scaler = CalibratedScaler(
        "kl_divergence", calibration_readings=3, settling_readings=2, min_horizon=1, max_horizon=9, smoothing=1.0
    )
    for reading in (5.0, 4.0, 0.1, 0.2):
        scaler.adjust(reading)
    assert scaler.thresholds is None
    scaler.adjust(0.3)
    assert scaler.thresholds == pytest.approx((0.02, 0.2)) and scaler.horizon(0.0) == 1.0


# Corrections.


def test_corrections_go_with_the_square_or_with_the_step():
    assert corrected(0.2, "kl_divergence", 4.0) == pytest.approx(0.8)
    assert corrected(0.2, "behavioral_divergence", 4.0) == pytest.approx(0.4)
    assert corrected(0.9, "effective_sample_size", 4.0) == pytest.approx(0.6)
    assert corrected(0.9, "effective_sample_size", 40.0) == 0.0


def test_the_noise_scale_is_found_from_two_batch_sizes():
    noise = UpdateNoise()
    assert noise.scale == 0.0
    for _ in range(3):  # |G|² = 2 and tr Σ = 96: |g_B|² = 2 + 96 / B
        noise.observe(16, 2 + 96 / 16, 128, 2 + 96 / 128)
    assert noise.scale == pytest.approx(48.0)
    noise.observe(16, 8.0, 16, 8.0)  # nothing to compare
    assert noise.scale == pytest.approx(48.0)


def test_without_adam_noise_falls_with_the_batch_and_with_it_steps_grow():
    assert squared_step(48.0, 1 / 32, None, 0.0) == pytest.approx(1 + 48 / 32)
    adam = [squared_step(48.0, 1 / batch, 1 / batch, 0.9) for batch in (32, 64, 128, 256)]
    assert adam == sorted(adam)
    assert adam[1] / adam[0] == pytest.approx(
        ((1 + 48 / 19 / 64) / (1 + 48 / 64)) / ((1 + 48 / 19 / 32) / (1 + 48 / 32))
    )


def test_the_factor_is_one_at_the_reference_and_knows_what_adam_remembers():
    noise = UpdateNoise()
    noise.observe(16, 2 + 96 / 16, 128, 2 + 96 / 128)
    noise.remember(32, 0.999)
    assert noise.factor(32, 32, 0.9, 0.999) == pytest.approx(1.0)
    # Just after the batch grew, Adam still divides by the noise of the small one: the step shrinks.
    assert noise.factor(256, 32, 0.9, 0.999) == pytest.approx((1 + 48 / 19 / 32) / (1 + 48 / 19 / 256))
    for _ in range(20_000):
        noise.remember(256, 0.999)
    settled = squared_step(48.0, 1 / 32, 1 / 32, 0.9) / squared_step(48.0, 1 / 256, 1 / 256, 0.9)
    assert noise.factor(256, 32, 0.9, 0.999) == pytest.approx(settled, rel=1e-3)
    state = json.loads(json.dumps(noise.state_dict()))
    again = UpdateNoise()
    again.load_state_dict(state)
    assert again.factor(64, 32, 0.9, 0.999) == noise.factor(64, 32, 0.9, 0.999)
