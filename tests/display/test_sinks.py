"""The picture that rows add up to, sparklines, and TensorBoard's curves."""

import math
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from swell.display import sinks as metrics
from swell.display.sinks import SPARKS, History, RunSoFar, TensorBoardSink, sparkline
from swell.errors import ConfigError

finite_floats = st.floats(min_value=-1e9, max_value=1e9)


@given(st.lists(finite_floats), st.integers(min_value=0, max_value=40))
@example([1.0, 2.0, 3.0], 2)
@example([1.0], 0)
def test_a_sparkline_has_a_mark_per_value_up_to_its_width(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == min(len(values), width)


@given(st.lists(finite_floats), st.integers(min_value=1, max_value=40))
def test_the_sparkline_of_a_growing_series_never_falls(values: list[float], width: int) -> None:
    heights = [SPARKS.index(mark) for mark in sparkline(sorted(values), width)]
    assert heights == sorted(heights)


def test_a_sparkline_reaches_from_the_lowest_mark_to_the_highest() -> None:
    assert sparkline(range(8), 8) == SPARKS


def test_a_sparkline_with_bounds_draws_values_at_their_height_between_them() -> None:
    assert sparkline([16, 64, 16, 200], 8, low=16, high=64) == "▁█▁█"
    assert sparkline([40, 40], 8, low=16, high=64) == "▅▅"


def test_a_sparkline_leaves_out_what_is_not_finite() -> None:
    assert sparkline([0.0, math.nan, math.inf, 1.0, -math.inf], 8) == "▁█"
    assert sparkline([math.nan], 8) == ""


def test_a_constant_series_is_a_level_line() -> None:
    assert len(set(sparkline([3.0] * 5, 8))) == 1


def test_a_long_history_stays_short_and_keeps_its_shape() -> None:
    history = History(capacity=64)
    for value in range(10_000):
        history.append(float(value))
    values = history.values()
    assert 32 <= len(values) <= 64
    assert values == sorted(values)
    assert values[0] < 320
    assert values[-1] > 9_680


def test_a_history_shorter_than_its_capacity_is_exact() -> None:
    history = History(capacity=64)
    for value in (1.0, math.nan, None, 2.0):
        history.append(value)
    assert history.values() == [1.0, 2.0]


def test_speed_is_recent_and_not_since_the_start() -> None:
    run = RunSoFar(total_env_steps=10_000)
    for second in range(100):
        run.add({"env_steps": 10 * second, "wall_seconds": float(second)})
    for second in range(100, 120):
        run.add({"env_steps": 1_000 + 200 * (second - 100), "wall_seconds": float(second)})
    assert run.steps_per_second() == 200
    assert run.seconds_left() == (10_000 - 4_800) / 200


def test_speed_is_unknown_before_the_first_row() -> None:
    run = RunSoFar(total_env_steps=100)
    assert run.steps_per_second() is None
    assert run.seconds_left() is None


def test_a_metric_that_a_row_lacks_keeps_its_last_value() -> None:
    run = RunSoFar(total_env_steps=100)
    run.add({"env_steps": 10, "episode_return": 5.0})
    run.add({"env_steps": 20})
    assert run.latest["episode_return"] == 5.0


def test_a_rollout_cut_short_at_the_end_does_not_count_as_a_smaller_horizon() -> None:
    run = RunSoFar(total_env_steps=100)
    run.add({"horizon": 16, "next_horizon": 20})
    run.add({"horizon": 7, "next_horizon": 20})
    assert run.horizons.values() == [16, 20]


def test_phase_shares_add_up_and_name_the_unclaimed_rest() -> None:
    run = RunSoFar(total_env_steps=100)
    run.add({"wall_seconds": 10.0, "seconds_act": 1.0, "seconds_env": 2.0, "seconds_update": 4.0})
    shares = run.phase_shares()
    assert shares == {"act": 0.1, "env": 0.2, "update": 0.4, "measure": 0.0, "other": 0.3}


def test_tensorboard_gets_every_number_over_env_steps(tmp_path: Path) -> None:
    sink = _tensorboard_sink(tmp_path)
    sink.write({"env_steps": 128, "horizon": 16, "loss": 0.5, "signal": "behavioral_divergence", "reading": None})
    sink.evaluation({"env_steps": 128, "mean_return": 21.0, "returns": [21.0]})
    sink.close()
    curves = _curves(tmp_path)
    assert curves == {"batch/horizon": {128: 16}, "learning/loss": {128: 0.5}, "evaluation/mean_return": {128: 21.0}}


def test_a_resumed_tensorboard_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    first = _tensorboard_sink(tmp_path)
    for env_steps in (100, 200, 300):
        first.write({"env_steps": env_steps, "loss": 1.0})
    first.close()
    resumed = _tensorboard_sink(tmp_path, purge_step=201)
    resumed.write({"env_steps": 250, "loss": 2.0})
    resumed.close()
    assert _curves(tmp_path)["learning/loss"] == {100: 1.0, 200: 1.0, 250: 2.0}


def test_a_missing_tensorboard_extra_is_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "tensorboard_available", lambda: False)
    with pytest.raises(ConfigError, match=r"swell-rl\[tensorboard\]"):
        TensorBoardSink(tmp_path, say=print)


def _tensorboard_sink(directory: Path, purge_step: int | None = None) -> TensorBoardSink:
    pytest.importorskip("tensorboard")
    return TensorBoardSink(directory, print, purge_step)


def _curves(directory: Path) -> dict[str, dict[int, float]]:
    accumulators: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(directory)).Reload()
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_a_folder_that_disappears_costs_the_curves_and_not_the_run(tmp_path):
    pytest.importorskip("tensorboard")
    said: list[str] = []
    sink = TensorBoardSink(tmp_path / "curves", said.append)
    sink.write({"env_steps": 1, "loss": 0.5})

    def fail(*arguments, **keywords):
        raise FileNotFoundError("gone")

    sink._writer.add_scalar = fail
    sink.write({"env_steps": 2, "loss": 0.5})
    sink.write({"env_steps": 3, "loss": 0.5})
    sink.close()
    assert said == ["TensorBoard stops here: gone"]


def test_a_deleted_folder_has_tensorboards_thread_print_nothing_and_others_are_heard(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    heard: list[str] = []
    monkeypatch.setattr(threading, "excepthook", before := lambda failure: heard.append(str(failure.exc_value)))
    sink = TensorBoardSink(tmp_path / "curves", lambda _: None)
    shutil.rmtree(tmp_path / "curves")
    for step in range(100):
        sink.write({"env_steps": step, "loss": 1.0})
    other = threading.Thread(target=lambda: int("no number"))
    other.start()
    other.join()
    sink.close()
    assert len(heard) == 1 and "no number" in heard[0]
    assert threading.excepthook == before
