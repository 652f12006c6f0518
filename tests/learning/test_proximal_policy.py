"""The average of weights against the explicit weighted sum, and how old what it holds is."""

import copy

import pytest
import torch
from torch import Generator, nn

from swell.learning.proximal_policy import WeightAverage
from swell.runs.state_tree import decode_tree, encode_tree

pytestmark = pytest.mark.portable

DECAY = 8 / 9


class Number(nn.Module):
    """A network of one parameter and one buffer."""

    def __init__(self, value):
        super().__init__()
        self.value = nn.Parameter(torch.tensor([value], dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0))

    def set(self, value):
        with torch.no_grad():
            self.value.fill_(value)


def random_networks(count):
    generator = Generator().manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    networks = [copy.deepcopy(network) for _ in range(count)]
    for parameter in (parameter for network in networks for parameter in network.parameters()):
        parameter.data.normal_(generator=generator)
    return networks


def test_the_average_is_the_explicit_weighted_sum():
    networks = random_networks(51)
    average = WeightAverage(networks[0])
    for network in networks[1:]:
        average.step(network, DECAY)
    weights = torch.tensor([DECAY**age for age in range(50, -1, -1)], dtype=torch.float64)
    for index, parameter in enumerate(average.network.parameters()):
        history = torch.stack([list(network.parameters())[index].detach() for network in networks])
        torch.testing.assert_close(parameter.data, torch.tensordot(weights, history, 1) / weights.sum())
    assert average.weight == pytest.approx(weights.sum().item())


@pytest.mark.parametrize(("steps", "age"), [(1, 0.47), (4, 1.77), (8, 3.23), (16, 5.35), (32, 7.31), (64, 7.97)])
def test_the_average_ages_as_the_reference_table_says(steps, age):
    network = Number(0.0)
    average = WeightAverage(network)
    for step in range(1, steps + 1):
        network.set(step)
        average.step(network, DECAY)
    assert steps - average.network.value.item() == pytest.approx(age, abs=0.005)


def test_a_reset_forgets_all_but_the_present():
    network = Number(0.0)
    average = WeightAverage(network)
    for value in (5.0, 7.0):
        network.set(value)
        average.step(network, DECAY)
    network.set(0.1)
    average.reset(network)
    assert average.network.value.item() == network.value.item() and average.weight == 1.0
    network.set(1.1)
    average.step(network, DECAY)
    assert average.network.value.item() == pytest.approx((DECAY * 0.1 + 1.1) / (DECAY + 1))


def settled_average(decay, steps=2000):
    network = Number(0.0)
    average = WeightAverage(network)
    for _ in range(steps):
        average.step(network, decay)
    return average


def test_a_smaller_decay_forgets_at_its_own_pace_at_once():
    average = settled_average(0.99)
    assert average.weight == pytest.approx(100)
    network = Number(1.0)
    for step in range(1, 6):
        average.step(network, 0.5)
        assert average.network.value.item() == pytest.approx(1 - 0.5**step)
        assert average.weight == pytest.approx(2)


def test_a_larger_decay_keeps_the_weight_gathered_so_far():
    average = settled_average(0.5)
    average.step(Number(1.0), 0.99)
    assert average.weight == pytest.approx(0.99 * 2 + 1)
    assert average.network.value.item() == pytest.approx(1 / (0.99 * 2 + 1))


def test_without_decay_every_sample_counts_the_same():
    network = Number(0.0)
    average = WeightAverage(network)
    for value in range(1, 10):
        network.set(value)
        average.step(network, 1.0)
    assert average.network.value.item() == pytest.approx(4.5)
    assert average.weight == 10


def test_buffers_are_copied_and_not_averaged():
    network = Number(0.0)
    average = WeightAverage(network)
    network.count.fill_(7)
    average.step(network, DECAY)
    assert average.network.count.item() == 7
    network.count.fill_(8)
    assert average.network.count.item() == 7


def test_the_average_is_a_copy_without_gradient_and_leaves_the_network_alone():
    network = Number(3.0)
    average = WeightAverage(network)
    network.set(5.0)
    assert average.network.value.item() == 3.0
    average.step(network, DECAY)
    assert network.value.item() == 5.0 and network.value.requires_grad
    assert not any(parameter.requires_grad for parameter in average.network.parameters())


def test_a_restored_average_goes_on_as_the_original():
    networks = random_networks(20)
    original, restored = WeightAverage(networks[0]), WeightAverage(networks[1])
    for network in networks[:10]:
        original.step(network, DECAY)
    restored.load_state_dict(decode_tree(*encode_tree(original.state_dict())))
    for network in networks[10:]:
        original.step(network, DECAY)
        restored.step(network, DECAY)
    assert original.weight == restored.weight
    pairs = zip(original.network.parameters(), restored.network.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
