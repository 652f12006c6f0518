"""The effective sample size of log-ratios: its definition, its limits, and what it ignores."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from tolerances import rounding_of
from torch import Generator

from swell.batch.signals import effective_sample_size, log_effective_sample_size

pytestmark = pytest.mark.portable

LOG_RATIOS = st.lists(st.floats(-20, 20), min_size=1, max_size=40).map(lambda numbers: torch.tensor(numbers).double())


@pytest.mark.usefixtures("in_float64")
def test_effective_sample_size_of_a_known_batch():
    assert effective_sample_size(torch.tensor([4.0, 1.0, 1.0, 1.0]).log()).item() == pytest.approx(49 / 76)


@given(LOG_RATIOS)
def test_effective_sample_size_matches_the_definition(log_ratios):
    ratios = log_ratios.exp()
    expected = ratios.sum().square() / (len(ratios) * ratios.square().sum())
    torch.testing.assert_close(effective_sample_size(log_ratios), expected)
    torch.testing.assert_close(log_effective_sample_size(log_ratios), expected.log())


@given(LOG_RATIOS, st.floats(-5, 5))
def test_effective_sample_size_ignores_a_common_factor(log_ratios, shift):
    torch.testing.assert_close(effective_sample_size(log_ratios + shift), effective_sample_size(log_ratios))


@given(st.floats(-500, 500, width=32), st.integers(1, 50))
def test_equal_ratios_are_all_effective(log_ratio, count):
    assert effective_sample_size(torch.full((count,), log_ratio).double()).item() == pytest.approx(1.0)


@given(st.integers(1, 20), st.integers(0, 20))
def test_equal_ratios_among_zeros_are_the_effective_ones(count, others):
    log_ratios = torch.cat([torch.zeros(count), torch.full((others,), -math.inf)]).double()
    assert effective_sample_size(log_ratios).item() == pytest.approx(count / (count + others))


@pytest.mark.parametrize(("spread", "expected"), [(0.1, 0.990), (0.2, 0.961), (0.5, 0.779), (1.0, 0.368)])
def test_log_normal_ratios_have_the_sample_size_of_their_spread(spread, expected):
    """Within four standard errors of Σρ², whose terms spread most."""
    noise = torch.randn(1_000_000, generator=Generator().manual_seed(0), dtype=torch.float64)
    error = math.sqrt(math.expm1(4 * spread**2) / len(noise))
    assert effective_sample_size(spread * noise).item() == pytest.approx(math.exp(-(spread**2)), rel=4 * error)
    assert math.exp(-(spread**2)) == pytest.approx(expected, abs=5e-4)


@given(LOG_RATIOS, st.integers(1, 5), st.randoms())
def test_effective_sample_size_depends_on_neither_order_nor_parts(log_ratios, num_parts, random):
    order = random.sample(range(len(log_ratios)), len(log_ratios))
    parts = log_ratios[order].tensor_split(num_parts)
    sums = torch.stack([part.logsumexp(0) for part in parts if len(part)]).logsumexp(0)
    squares = torch.stack([(2 * part).logsumexp(0) for part in parts if len(part)]).logsumexp(0)
    pooled = 2 * sums - squares - math.log(len(log_ratios))
    torch.testing.assert_close(log_effective_sample_size(log_ratios), pooled)
    torch.testing.assert_close(log_effective_sample_size(log_ratios), log_effective_sample_size(log_ratios[order]))


def test_huge_log_ratios_do_not_overflow():
    assert effective_sample_size(torch.tensor([500.0, -500.0, 0.0, 500.0])).item() == pytest.approx(0.5)
    assert effective_sample_size(torch.tensor([-500.0, -500.0])).item() == 1.0


@given(LOG_RATIOS)
def test_effective_sample_size_stays_between_one_sample_and_all(log_ratios):
    """In float32: both ends of the logarithm are clamped, and exp and 1/N round a little more."""
    size = effective_sample_size(log_ratios.float()).item()
    smallest = 1 / len(log_ratios)
    assert smallest - rounding_of(smallest, math.log(len(log_ratios)) * smallest) <= size <= 1.0


@pytest.mark.parametrize("count", [7, 12, 13])
def test_rounding_does_not_lift_the_effective_sample_size_above_all_samples(count):
    nearly_equal = torch.zeros(count)
    nearly_equal[-1] = -(2.0**-12)
    assert effective_sample_size(nearly_equal).item() <= 1.0


def test_effective_sample_size_carries_no_gradient():
    assert not effective_sample_size(torch.zeros(3, requires_grad=True)).requires_grad
