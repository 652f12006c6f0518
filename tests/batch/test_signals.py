"""How far a policy moved, as numbers of what it says before and after: behavioral divergence, KL, sample size."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from tolerances import rounding_of
from torch import Generator

from swell.batch.signals import (
    BehavioralDivergence,
    EffectiveSampleSize,
    KLDivergence,
    PolicyChange,
    behavioral_divergence,
    continuous_divergence,
    effective_sample_size,
    kl_divergence,
)
from swell.errors import ConfigError
from swell.learning.distributions import ActionKind, categorical_view, gaussian_view
from swell.types import PolicyView

pytestmark = pytest.mark.portable

ACTIONS = hnp.arrays("int64", 50, elements=st.integers(0, 3))
NUM_STATES = 100


def choosing(*logits, actions=None):
    """What a policy of three choices says that is the same in every state."""
    return categorical_view(torch.tensor(logits).expand(NUM_STATES, -1), actions)


def aiming(*parameters):
    """The same of a Gaussian policy, whose greedy actions are clipped to [−1, 1]; means, then log deviations."""
    rows = torch.tensor(parameters).expand(NUM_STATES, -1)
    return PolicyView(rows.chunk(2, dim=1)[0].clamp(-1.0, 1.0), rows, ActionKind("gaussian", (2,)))


class Scripted:
    """A policy that says one thing after the other."""

    def __init__(self, *views):
        self.views = list(views)

    def view(self):
        return self.views.pop(0)


def reading_of(signal, before, after):
    return signal.watch(Scripted(before, after))()


@given(ACTIONS, ACTIONS)
def test_divergence_is_the_share_of_changed_actions(before, after):
    before, after = torch.from_numpy(before), torch.from_numpy(after)
    divergence = behavioral_divergence(before, after)
    assert abs(divergence - sum(b != a for b, a in zip(before.tolist(), after.tolist(), strict=True)) / 50) < 1e-6
    assert behavioral_divergence(after, before) == divergence
    assert behavioral_divergence(before, before) == 0.0


def test_one_changed_component_changes_a_joint_action():
    before = torch.tensor([[0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 3, 3]])
    after = torch.tensor([[0, 1, 2], [0, 1, 3], [1, 2, 3], [3, 3, 3]])
    assert behavioral_divergence(before, after) == 0.5


@pytest.mark.usefixtures("in_float64")
def test_a_continuous_action_has_changed_if_it_moved_further_than_the_tolerance():
    before, deviations = torch.tensor([[0.0, 0.5]] * 3), torch.tensor([[0.1, 2.0]] * 3)
    moves = torch.tensor([[0.0, 0.0], [0.01, 0.1], [0.02, -0.5]])  # 0, 0.079 and 0.227 standard deviations
    for tolerance in (0.05, 0.1, 0.3):
        lengths = [math.sqrt(((move[0] / 0.1) ** 2 + (move[1] / 2.0) ** 2) / 2) for move in moves.tolist()]
        expected = sum(length > tolerance for length in lengths) / 3
        assert continuous_divergence(before, before + moves, deviations, tolerance) == pytest.approx(expected)
        views = gaussian_view(before, deviations.log()), gaussian_view(before + moves, (7.0 * deviations).log())
        # The new deviations do not matter.
        assert reading_of(BehavioralDivergence(tolerance), *views) == pytest.approx(expected)
    assert continuous_divergence(before, before, deviations, 1e-9) == 0.0


@given(st.integers(1, 30), st.floats(0.0, 1.0))
def test_one_tolerance_serves_any_number_of_dimensions(dimensions, move):
    one, many = (
        continuous_divergence(torch.zeros(1, count), torch.full((1, count), move), torch.ones(1, count), 0.1)
        for count in (1, dimensions)
    )
    assert one == many or abs(move - 0.1) < 1e-6


@pytest.mark.usefixtures("in_float64")
def test_a_tolerated_move_of_r_is_a_kl_of_half_the_dimensions_times_r_squared():
    before, after = aiming(0.0, 0.0, math.log(0.5), math.log(0.5)), aiming(0.05, 0.05, *[math.log(0.5)] * 2)
    assert reading_of(BehavioralDivergence(0.0999), before, after) == 1.0
    assert reading_of(BehavioralDivergence(0.1001), before, after) == 0.0
    assert reading_of(KLDivergence(), before, after) == pytest.approx(2 * 0.1**2 / 2)


def test_a_mean_that_moves_beyond_the_edge_of_the_action_space_has_not_changed():
    outside, further, inside = (aiming(mean, 0.0, 0.0, 0.0) for mean in (1.5, 9.0, 0.5))
    assert reading_of(BehavioralDivergence(0.1), outside, further) == 0.0
    assert reading_of(BehavioralDivergence(0.1), outside, inside) == 1.0


@pytest.mark.usefixtures("in_float64")
def test_the_kl_signal_is_that_of_the_new_policy_from_the_old():
    old, new = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.7, 0.2, 0.1])
    before, after = choosing(*old.log().tolist()), choosing(*new.log().tolist())
    expected = sum(q * math.log(q / p) for p, q in zip(old.tolist(), new.tolist(), strict=True))
    backwards = sum(p * math.log(p / q) for p, q in zip(old.tolist(), new.tolist(), strict=True))
    assert reading_of(KLDivergence(), before, after) == kl_divergence(before, after) == pytest.approx(expected)
    assert abs(expected - backwards) > 0.01
    assert reading_of(KLDivergence(), before, before) == 0.0


@pytest.mark.usefixtures("in_float64")
def test_the_kl_signal_of_gaussians_matches_the_definition():
    before, after = aiming(0.0, 1.0, math.log(0.5), math.log(2.0)), aiming(0.3, 0.5, 0.0, math.log(1.5))
    moves = [(0.3, 0.5, 1.0), (-0.5, 2.0, 1.5)]
    expected = sum(math.log(old / new) + (new**2 + move**2) / (2 * old**2) - 0.5 for move, old, new in moves)
    assert reading_of(KLDivergence(), before, after) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_rounding_never_makes_a_kl_negative(seed):
    row = torch.randn(3, generator=Generator().manual_seed(seed))
    before, after = choosing(*row.tolist()), choosing(*[logit + 1e-7 for logit in row.tolist()])
    entropy = torch.softmax(row, 0) * torch.log_softmax(row, 0)
    digits = rounding_of(entropy, entropy)  # of Σ p log p − Σ p log q, where p and q are almost the same
    assert 0.0 <= reading_of(KLDivergence(), before, after) < digits


@pytest.mark.usefixtures("in_float64")
def test_the_effective_sample_size_counts_the_actions_taken():
    actions = torch.tensor([0, 0, 1, 2]).repeat(25)
    old, new = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.2, 0.7, 0.1])
    before, after = choosing(*old.log().tolist(), actions=actions), choosing(*new.log().tolist(), actions=actions)
    weights = (new / old)[actions]
    expected = (weights.sum() ** 2 / (100 * weights.square().sum())).item()
    assert reading_of(EffectiveSampleSize(), before, after) == pytest.approx(expected)
    assert effective_sample_size(weights.log()).item() == pytest.approx(expected)
    assert reading_of(EffectiveSampleSize(), before, before) == pytest.approx(1.0)


def test_each_kind_of_action_has_its_own_way_to_look():
    assert reading_of(BehavioralDivergence(0.1), choosing(0.1, 0.0, 0.0), choosing(0.2, 0.0, 0.0)) == 0.0
    assert reading_of(BehavioralDivergence(0.1), choosing(0.1, 0.0, 0.0), choosing(0.0, 0.1, 0.0)) == 1.0
    before, after = aiming(0.0, 0.0, 0.0, 0.0), aiming(0.2, 0.2, 0.0, 0.0)
    assert reading_of(BehavioralDivergence(0.1), before, after) == 1.0
    assert reading_of(BehavioralDivergence(0.3), before, after) == 0.0
    names = [signal.name for signal in (BehavioralDivergence(), KLDivergence(), EffectiveSampleSize())]
    assert names == ["behavioral_divergence", "kl_divergence", "effective_sample_size"]


def test_what_a_policy_does_not_say_is_asked_for_in_one_line():
    greedy = PolicyView(torch.zeros(NUM_STATES, dtype=torch.long))
    with pytest.raises(ConfigError, match="the KL divergence needs a stochastic policy; take BehavioralDivergence"):
        reading_of(KLDivergence(), greedy, greedy)
    with pytest.raises(ConfigError, match="needs the log-probabilities of the actions that were taken"):
        reading_of(EffectiveSampleSize(), choosing(0.0, 0.0, 0.0), choosing(0.0, 0.0, 0.0))
    assert reading_of(BehavioralDivergence(), greedy, greedy) == 0.0


class EntropyChange(PolicyChange):
    """A signal as a user would write it."""

    name = "entropy_change"

    def compare(self, before, after):
        one, other = (view.kind.distribution(view.parameters).entropy().mean() for view in (before, after))
        return abs((other - one).item())


def test_a_signal_of_ones_own_compares_two_views():
    before, after = choosing(0.0, 0.0, 0.0), choosing(50.0, 0.0, 0.0)
    assert reading_of(EntropyChange(), before, after) == pytest.approx(math.log(3))
    assert reading_of(EntropyChange(), before, before) == 0.0
    with pytest.raises(NotImplementedError):
        reading_of(PolicyChange(), before, after)
