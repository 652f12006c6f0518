"""The observation normaliser: its statistics are those of all it was shown, and move only when it is shown more."""

import pytest
import torch

from swell.networks.normalizer import ObservationNormalizer

pytestmark = pytest.mark.portable


def batch(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 3.0 * torch.randn(count, 5, generator=generator) + torch.arange(5.0)


def observed(*batches, shape=(5,)):
    normalizer = ObservationNormalizer(shape)
    for part in batches:
        normalizer.observe(part)
    return normalizer


@pytest.mark.usefixtures("in_float64")
def test_what_was_observed_gets_mean_zero_and_variance_one():
    observations = batch(500)
    normalized = observed(observations)(observations)
    torch.testing.assert_close(normalized.mean(dim=0), torch.zeros(5))
    torch.testing.assert_close(normalized.var(dim=0, correction=0), torch.ones(5))


def test_what_the_network_sees_is_float32_though_the_statistics_are_not():
    assert observed(batch(50))(batch(50).double()).dtype == torch.float32


@pytest.mark.usefixtures("in_float64")
def test_it_is_the_formula():
    observations, others = batch(50), batch(7, seed=1)
    mean, variance = observations.mean(dim=0), observations.var(dim=0, correction=0)
    expected = ((others - mean) / (variance + 1e-8).sqrt()).clamp(-10.0, 10.0)
    torch.testing.assert_close(observed(observations)(others), expected)


@pytest.mark.usefixtures("in_float64")
def test_merging_batches_equals_observing_all_at_once():
    observations = batch(600)
    observations[400:] += 20.0  # parts with different means
    whole, parts = observed(observations), observed(*observations.split([1, 399, 150, 50]))
    for name, statistic in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], statistic)
    assert whole.count == 600


def test_statistics_stay_exact_far_from_zero():
    observations = 1e4 + torch.randn(4096, 5, generator=torch.Generator().manual_seed(3))
    normalizer = observed(*observations.split(64))
    variance = normalizer.squared_deviations / normalizer.count
    torch.testing.assert_close(variance, observations.double().var(dim=0, correction=0), rtol=1e-9, atol=0.0)


def test_before_the_first_observation_it_only_clips():
    assert ObservationNormalizer((3,))(torch.tensor([[-40.0, 0.5, 11.0]])).tolist() == [[-10.0, 0.5, 10.0]]


def test_outliers_are_clipped_at_ten_deviations():
    normalizer = observed(batch(500))
    assert normalizer(torch.full((1, 5), 1e6)).tolist() == [[10.0] * 5]
    assert normalizer(torch.full((1, 5), -1e6)).tolist() == [[-10.0] * 5]


def test_a_constant_element_becomes_zero():
    normalizer = observed(torch.full((64, 1), 0.1), torch.full((3, 1), 0.1), shape=(1,))
    assert normalizer(torch.full((1, 1), 0.1)).abs().item() < 1e-3


def test_normalising_does_not_move_the_statistics():
    normalizer = observed(batch(100))
    before = {name: value.clone() for name, value in normalizer.state_dict().items()}
    normalizer(batch(100, seed=1) + 50.0)
    assert all(value.equal(before[name]) for name, value in normalizer.state_dict().items())


def test_an_empty_batch_changes_nothing():
    normalizer = observed(batch(100), torch.empty(0, 5))
    assert all(value.equal(observed(batch(100)).state_dict()[name]) for name, value in normalizer.state_dict().items())


def test_a_loaded_normaliser_continues_as_the_saved_one():
    saved = observed(batch(100))
    loaded = ObservationNormalizer((5,))
    loaded.load_state_dict(saved.state_dict())
    assert loaded(batch(9, seed=1)).equal(saved(batch(9, seed=1)))
    saved.observe(batch(50, seed=2))
    loaded.observe(batch(50, seed=2))
    assert all(value.equal(loaded.state_dict()[name]) for name, value in saved.state_dict().items())


@pytest.mark.usefixtures("in_float64")
def test_bytes_count_as_shares_and_flags_as_ones():
    pictures = torch.randint(0, 256, (20, 2, 3), dtype=torch.uint8)
    normalizer = observed(pictures, shape=(2, 3))
    torch.testing.assert_close(normalizer.mean, (pictures.double() / 255.0).mean(dim=0))
    assert observed(torch.tensor([[True], [False]]), shape=(1,)).mean.item() == 0.5


def test_statistics_stay_float64_on_the_cpu_when_the_network_moves():
    normalizer = observed(batch(100)).to("meta", torch.float16)
    assert (normalizer.mean.device.type, normalizer.mean.dtype) == ("cpu", torch.float64)
    assert (normalizer.scale.device.type, normalizer.scale.dtype) == ("meta", torch.float16)
    assert set(normalizer.state_dict()) == {"mean", "squared_deviations", "count", "center", "scale"}
