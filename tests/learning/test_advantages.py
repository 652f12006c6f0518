"""Normalised advantages and scaled rewards against slow, obvious statistics."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from tolerances import rounding_of
from torch import Generator

from swell.learning.advantages import AdvantageMoments, RewardNormalizer, normalized
from swell.runs.state_tree import decode_tree, encode_tree

pytestmark = pytest.mark.portable

DISCOUNT = 0.9


def batches(count, sizes, seed=0):
    generator = Generator().manual_seed(seed)
    return [3 * torch.randn(sizes[i % len(sizes)], generator=generator) + i for i in range(count)]


def digits(batch, spread):
    """Of (A − mean) / spread in float32, where A and the mean are at most as large as the largest A."""
    largest = batch.abs().max()
    return rounding_of(largest, largest, roundings=2) / spread.item()


def through_a_checkpoint(state):
    return decode_tree(*encode_tree(state))


def test_normalized_advantages_have_mean_zero_and_unbiased_spread_one():
    result = normalized(torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64))
    assert result.mean().item() == pytest.approx(0, abs=1e-12)
    assert result.std(unbiased=True).item() == pytest.approx(1)
    assert result.argsort().tolist() == [0, 1, 2]


def test_a_single_advantage_is_only_centred():
    assert normalized(torch.tensor([3.0])).tolist() == [0.0]


def test_equal_advantages_become_zero():
    assert normalized(torch.full((5,), 3.0)).tolist() == [0.0] * 5
    assert AdvantageMoments().normalize(torch.full((5,), 3.0), 0.0).tolist() == [0.0] * 5


def test_without_decay_the_moments_are_those_of_the_batch():
    moments = AdvantageMoments()
    for batch in batches(5, (100, 30)):
        exact = batch.double()
        expected = (exact - exact.mean()) / exact.std(unbiased=False)
        result = moments.normalize(batch, 0.0)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), expected, rtol=0.0, atol=digits(batch, exact.std()))


def test_a_batch_counts_by_its_size_and_its_age():
    moments, decay, history = AdvantageMoments(), 0.7, batches(6, (100, 10, 400))
    results = [moments.normalize(batch, decay) for batch in history]
    values = torch.cat(history).double()
    weights = torch.cat([torch.full((len(batch),), decay ** (5 - i)) for i, batch in enumerate(history)]).double()
    mean = (weights * values).sum() / weights.sum()
    variance = (weights * (values - mean).square()).sum() / weights.sum()
    expected = (history[-1].double() - mean) / variance.sqrt()
    torch.testing.assert_close(results[-1].double(), expected, rtol=0.0, atol=digits(history[-1], variance.sqrt()))


def test_the_current_batch_is_included():
    moments = AdvantageMoments()
    moments.normalize(torch.zeros(4), 0.5)
    assert moments.normalize(torch.full((2,), 6.0), 0.5).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_with_batches_of_one_size_the_span_is_that_of_the_decay(decay):
    """The number of equal batches whose mean would be as precise: one over the sum of the squared shares.

    Among zeros, a batch of ones with the share p is normalised to √((1 − p)/p), and one of zeros to −√(p/(1 − p)).
    """
    moments = AdvantageMoments()
    for _ in range(400):
        moments.normalize(torch.zeros(8).double(), decay)
    latest = moments.normalize(torch.ones(8).double(), decay)[0].item() ** 2
    shares = [1 / (1 + latest)]
    for _ in range(400):
        odds = moments.normalize(torch.zeros(8).double(), decay)[0].item() ** 2
        shares.append(odds / (1 + odds))
    assert sum(shares) == pytest.approx(1)
    assert 1 / sum(share**2 for share in shares) == pytest.approx(2 / (1 - decay) - 1)


def test_large_advantages_of_small_spread_keep_their_spread():
    advantages = torch.tensor([10_000.0, 10_000.5, 10_001.0])
    expected = torch.tensor([-1.0, 0.0, 1.0]) * (3 / 2) ** 0.5
    torch.testing.assert_close(AdvantageMoments().normalize(advantages, 0.0), expected, rtol=1e-4, atol=1e-4)


def test_restored_moments_go_on_as_the_original():
    original, restored = AdvantageMoments(), AdvantageMoments()
    first, second = batches(2, (50,))
    original.normalize(first, 0.5)
    restored.load_state_dict(through_a_checkpoint(original.state_dict()))
    assert torch.equal(original.normalize(second, 0.5), restored.normalize(second, 0.5))


@st.composite
def rollouts(draw):
    """(rewards, ended, valid) of any pattern of ends; some ends are followed by a reset row with a wild reward."""
    shape = draw(st.integers(2, 12)), draw(st.integers(1, 3))
    rewards = draw(hnp.arrays(np.float64, shape, elements=st.floats(-5, 5, width=32)))
    ended, has_reset_row = draw(hnp.arrays(np.bool_, shape)), draw(hnp.arrays(np.bool_, shape))
    valid = np.ones(shape, dtype=bool)
    for step in range(1, shape[0]):
        valid[step] = ~(valid[step - 1] & ended[step - 1] & has_reset_row[step])
    ended &= valid
    rewards[~valid] = 1e6
    return tuple(map(torch.from_numpy, (rewards, ended, valid)))


def slow_returns(rewards, ended, valid):
    found = []
    for env in range(rewards.shape[1]):
        running = 0.0
        for step in range(rewards.shape[0]):
            if valid[step, env]:
                running = rewards[step, env].item() + DISCOUNT * running
                found.append(running)
            if ended[step, env] or not valid[step, env]:
                running = 0.0
    return found


def scaler_after(*rollouts):
    scaler = RewardNormalizer(DISCOUNT)
    for rollout in rollouts:
        scaler.observe(*rollout)
    return scaler


@given(rollouts())
def test_rewards_are_divided_by_the_spread_of_running_returns(rollout):
    scaler = scaler_after(rollout)
    expected = rollout[0].numpy() / (np.std(slow_returns(*rollout)) + 1e-8)
    np.testing.assert_allclose(scaler.normalize(rollout[0]).numpy(), expected.clip(-10, 10), rtol=1e-6, atol=1e-6)


@given(rollouts(), st.data())
def test_a_rollout_in_two_parts_counts_as_one(rollout, data):
    cut = data.draw(st.integers(1, rollout[0].shape[0] - 1))
    parts = [tuple(part[:cut] for part in rollout), tuple(part[cut:] for part in rollout)]
    whole, split = scaler_after(rollout), scaler_after(*parts)
    torch.testing.assert_close(split.normalize(rollout[0]), whole.normalize(rollout[0]), rtol=1e-6, atol=1e-6)


def random_rollout(horizon, num_envs, seed):
    generator = Generator().manual_seed(seed)
    rewards = torch.randn(horizon, num_envs, generator=generator) + 1
    ended = torch.rand(horizon, num_envs, generator=generator) < 0.1
    return rewards, ended, torch.ones_like(ended)


@pytest.mark.usefixtures("in_float64")
def test_statistics_are_of_all_time():
    parts = [random_rollout(50, 3, seed) for seed in range(4)]
    together = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
    rewards = together[0]
    expected = rewards / np.std(slow_returns(*together))
    torch.testing.assert_close(scaler_after(*parts).normalize(rewards), expected.clamp(-10, 10))


def test_a_restored_scaler_goes_on_as_the_original():
    original, restored = scaler_after(random_rollout(20, 3, 0)), RewardNormalizer(DISCOUNT)
    restored.load_state_dict(through_a_checkpoint(original.state_dict()))
    following = random_rollout(20, 3, 1)
    original.observe(*following)
    restored.observe(*following)
    assert torch.equal(original.normalize(following[0]), restored.normalize(following[0]))


def test_a_saved_state_does_not_change_with_its_scaler():
    scaler = scaler_after(random_rollout(20, 3, 0))
    saved = scaler.state_dict()
    kept = saved["returns"].clone()
    scaler.observe(*random_rollout(20, 3, 1))
    assert torch.equal(saved["returns"], kept)


def test_before_any_observation_rewards_stay_as_they_are():
    rewards = torch.tensor([[100.0, -0.5]])
    assert torch.equal(RewardNormalizer(DISCOUNT).normalize(rewards), rewards)
    nothing = torch.zeros(1, 2, dtype=torch.bool)
    assert torch.equal(scaler_after((rewards, nothing, nothing)).normalize(rewards), rewards)


def test_scaling_changes_no_statistic_and_keeps_signs():
    scaler = scaler_after(random_rollout(50, 2, 0))
    rewards = torch.tensor([[1e9, -1e9], [0.1, -0.1]])
    first = scaler.normalize(rewards)
    assert torch.equal(first, scaler.normalize(rewards))
    assert torch.equal(first.sign(), rewards.sign())
    assert first[0].tolist() == [10.0, -10.0]
