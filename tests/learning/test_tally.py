"""Means over all samples of an update."""

import pytest
import torch

from swell.learning.tally import Tally

pytestmark = pytest.mark.portable


def test_every_sample_counts_the_same_whatever_its_minibatch():
    tally = Tally()
    tally.add(loss=torch.tensor([1.0, 2.0, 3.0]), kl=torch.tensor([4.0]))
    tally.add(loss=torch.tensor([10.0]))
    assert tally.mean("loss") == pytest.approx(4.0)
    assert tally.means() == pytest.approx({"loss": 4.0, "kl": 4.0})


def test_a_tally_keeps_no_graph():
    tally, losses = Tally(), torch.ones(3, requires_grad=True)
    tally.add(loss=losses.square())
    assert not tally._sums["loss"].requires_grad


def test_what_was_never_counted_is_absent():
    assert Tally().means() == {}
