"""Schedules of progress, and crossings of a growing count."""

import pytest
from hypothesis import given, strategies as st

from swell.learning.schedules import Every, linear

pytestmark = pytest.mark.portable


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_linear_schedule_stays_between_its_ends(start, end, fraction, progress):
    low, high = min(start, end), max(start, end)
    assert low - 1e-12 <= linear(start, end, fraction, progress) <= high + 1e-12


def test_a_linear_schedule_meets_both_ends_exactly():
    assert linear(1.0, 0.05, 0.1, 0.0) == 1.0
    assert linear(1.0, 0.05, 0.1, 0.1) == 0.05
    assert linear(1.0, 0.05, 0.1, 1.0) == 0.05
    assert linear(1.0, 0.05, 0.0, 0.0) == 0.05


@given(st.integers(1, 50), st.lists(st.integers(1, 120), max_size=60))
def test_every_multiple_that_is_stepped_over_is_noticed_once(interval, steps):
    every, count, noticed = Every(interval), 0, 0
    for step in steps:
        before, count = count, count + step
        crossed = every.crossed(count)
        assert crossed == (count // interval > before // interval)
        noticed += crossed
        assert not every.crossed(count)
    assert noticed <= count // interval


def test_a_restored_counter_does_not_notice_the_same_boundary_again():
    every = Every(10)
    assert every.crossed(25)
    restored = Every(10)
    restored.load_state_dict(every.state_dict())
    assert not restored.crossed(29)
    assert restored.crossed(30)
