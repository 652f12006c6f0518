"""Action distributions against torch.distributions, which is slower and knows better; spaces and views of them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Generator, distributions as reference
from torch.distributions import kl_divergence

from swell.batch.signals import kl_divergence as policy_kl
from swell.errors import ConfigError
from swell.learning.distributions import (
    ActionKind,
    ActionSpace,
    categorical_view,
    gaussian_view,
    make_action_space,
)

pytestmark = pytest.mark.portable

SIZES = (3, 2, 5)
KINDS = [ActionKind("categorical", (4,)), ActionKind("multi-categorical", SIZES), ActionKind("gaussian", (3,))]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def parameters_of(kind, batch=7, seed=0):
    generator = Generator().manual_seed(seed)
    return torch.randn(batch, kind.num_parameters, generator=generator, dtype=torch.float64)


def references(kind, parameters):
    """One torch distribution per component; they are independent, so log-probs, entropies and KLs add up."""
    if kind.name == "gaussian":
        mean, log_std = parameters.chunk(2, -1)
        return [reference.Normal(mean[:, i], log_std[:, i].exp()) for i in range(mean.shape[1])]
    return [reference.Categorical(logits=part) for part in parameters.split(kind.sizes, -1)]


def components(kind, actions):
    return [actions] if kind.name == "categorical" else list(actions.unbind(-1))


@each_kind
def test_log_probs_and_their_gradients_are_those_of_the_reference(kind):
    parameters = parameters_of(kind).requires_grad_()
    actions = kind.distribution(parameters).sample(Generator().manual_seed(1))
    pairs = zip(references(kind, parameters), components(kind, actions), strict=True)
    expected = torch.stack([part.log_prob(action) for part, action in pairs]).sum(0)
    actual = kind.distribution(parameters).log_prob(actions)
    assert actual.shape == (7,)
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(total.square().sum(), parameters)[0] for total in (actual, expected)]
    torch.testing.assert_close(*gradients)


@each_kind
def test_entropies_and_their_gradients_are_those_of_the_reference(kind):
    parameters = parameters_of(kind).requires_grad_()
    expected = torch.stack([part.entropy() for part in references(kind, parameters)]).sum(0)
    actual = kind.distribution(parameters).entropy()
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(total.square().sum(), parameters)[0] for total in (actual, expected)]
    torch.testing.assert_close(*gradients)


@each_kind
def test_kl_goes_from_self_to_other(kind):
    ours, theirs = parameters_of(kind), parameters_of(kind, seed=1)
    pairs = zip(references(kind, ours), references(kind, theirs), strict=True)
    expected = torch.stack([kl_divergence(one, other) for one, other in pairs]).sum(0)
    actual = kind.distribution(ours).kl(kind.distribution(theirs))
    torch.testing.assert_close(actual, expected)
    assert not torch.allclose(actual, kind.distribution(theirs).kl(kind.distribution(ours)))


@each_kind
def test_kl_to_itself_is_zero(kind):
    parameters = parameters_of(kind)
    zeros = torch.zeros(7, dtype=torch.float64)
    torch.testing.assert_close(kind.distribution(parameters).kl(kind.distribution(parameters)), zeros)


@each_kind
def test_no_action_is_more_probable_than_the_mode(kind):
    distribution = kind.distribution(parameters_of(kind))
    best = distribution.log_prob(distribution.mode())
    generator = Generator().manual_seed(2)
    for _ in range(200):
        assert (distribution.log_prob(distribution.sample(generator)) <= best).all()


def test_the_mode_of_independent_choices_is_the_best_of_each():
    parameters = torch.tensor([[0.0, 2.0, 1.0, 5.0, 4.0, 0.0, 0.0, 0.0, 0.0, 9.0]])
    assert ActionKind("multi-categorical", SIZES).distribution(parameters).mode().tolist() == [[1, 0, 4]]


def frequencies(actions, size):
    return torch.bincount(actions, minlength=size) / actions.shape[0]


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.name)
def test_choices_are_drawn_as_often_as_their_probability_says(kind):
    count = 40_000
    parameters = parameters_of(kind, batch=1).expand(count, -1)
    actions = kind.distribution(parameters).sample(Generator().manual_seed(3))
    assert actions.dtype == torch.long
    for part, chosen in zip(references(kind, parameters[:1]), components(kind, actions), strict=True):
        expected = part.probs[0]
        standard_error = (expected * (1 - expected) / count).sqrt()
        assert ((frequencies(chosen, len(expected)) - expected).abs() < 4 * standard_error).all()


def test_independent_choices_are_drawn_independently():
    count = 40_000
    actions = ActionKind("multi-categorical", (2, 2)).distribution(torch.zeros(count, 4)).sample(Generator())
    assert ((frequencies(actions @ torch.tensor([2, 1]), 4) - 0.25).abs() < 4 * (3 / 16 / count) ** 0.5).all()


def test_normal_actions_have_the_mean_and_spread_of_their_parameters():
    parameters = torch.tensor([[2.0, -1.0, 0.0, -2.0]], dtype=torch.float64).expand(40_000, -1)
    actions = ActionKind("gaussian", (2,)).distribution(parameters).sample(Generator().manual_seed(4))
    standardized = (actions - parameters[:, :2]) / parameters[:, 2:].exp()
    assert (standardized.mean(0).abs() < 4 / 200).all()
    assert ((standardized.std(0) - 1).abs() < 4 / 200 / 2**0.5).all()
    assert torch.corrcoef(standardized.T)[0, 1].abs() < 4 / 200


@each_kind
def test_samples_depend_on_the_generator_and_on_nothing_else(kind):
    distribution = kind.distribution(parameters_of(kind, batch=64))
    torch.manual_seed(0)
    first = distribution.sample(Generator().manual_seed(5))
    torch.manual_seed(1)
    assert torch.equal(first, distribution.sample(Generator().manual_seed(5)))
    assert not torch.equal(first, distribution.sample(Generator().manual_seed(6)))


@each_kind
def test_samples_carry_no_gradient(kind):
    parameters = parameters_of(kind).requires_grad_()
    assert not kind.distribution(parameters).sample(Generator()).requires_grad


@each_kind
@pytest.mark.parametrize("batch", [1, 5])
def test_one_number_per_state_and_one_action_per_state(kind, batch):
    distribution = kind.distribution(parameters_of(kind, batch).float())
    actions = distribution.sample(Generator())
    assert actions.shape == distribution.mode().shape
    assert actions.shape == ((batch,) if kind.name == "categorical" else (batch, 3))
    assert distribution.log_prob(actions).shape == distribution.entropy().shape == (batch,)


def test_extreme_logits_stay_finite():
    distribution = ActionKind("categorical", (3,)).distribution(torch.tensor([[500.0, -500.0, 0.0]]))
    assert distribution.log_prob(torch.tensor([1])).item() == -1000.0
    assert distribution.entropy().item() == 0.0
    assert distribution.sample(Generator()).item() == 0


@pytest.mark.parametrize(("kind", "count"), list(zip(KINDS, (4, 10, 6), strict=True)))
def test_a_kind_knows_how_many_parameters_it_needs(kind, count):
    assert kind.num_parameters == count


@pytest.mark.parametrize(
    ("space", "name", "sizes"),
    [
        (spaces.Discrete(5), "categorical", (5,)),
        (spaces.MultiDiscrete([3, 2, 4]), "multi-categorical", (3, 2, 4)),
        (spaces.MultiBinary(3), "multi-categorical", (2, 2, 2)),
        (spaces.Box(-1, 1, (6,)), "gaussian", (6,)),
        (spaces.Box(-1, 1, (2, 3), np.float64), "gaussian", (6,)),
    ],
)
def test_each_action_space_has_its_kind_of_distribution(space, name, sizes):
    made = make_action_space(space)
    assert (made.kind.name, made.kind.sizes) == (name, sizes)
    sampled = made.kind.distribution(torch.zeros(4, made.kind.num_parameters)).sample(torch.Generator().manual_seed(0))
    actions = made.for_env(sampled).numpy()
    assert all(space.contains(action.astype(space.dtype)) for action in actions)


def test_a_box_keeps_its_own_bounds_and_shape():
    low, high = np.array([[-1.0, 0.0], [2.0, -np.inf]]), np.array([[1.0, 0.5], [3.0, np.inf]])
    made = make_action_space(spaces.Box(low, high, dtype=np.float64))
    assert made.shape == (2, 2) and made.low.dtype == torch.float32
    assert made.low.tolist() == low.flatten().tolist() and made.high.tolist() == high.flatten().tolist()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 9, (2,), np.int64),
        spaces.Box(0, 255, (2,), np.uint8),
        spaces.Box(-1.0, 1.0, ()),
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))),
        spaces.Dict({"move": spaces.Discrete(2)}),
        spaces.Text(4),
    ],
)
def test_other_actions_are_refused_in_one_line(space):
    with pytest.raises(ConfigError) as caught:
        make_action_space(space)
    (line,) = caught.value.faults
    assert line.startswith("actions must be Discrete, MultiDiscrete, MultiBinary or a Box of floats, got ")


def test_continuous_actions_meet_their_box_in_bounds_and_shape():
    low, high = torch.tensor([-1.0, 0.0, 2.0, -9.0]), torch.tensor([1.0, 0.5, 3.0, 9.0])
    space = ActionSpace(ActionKind("gaussian", (4,)), (2, 2), low, high)
    actions = torch.tensor([[-5.0, 0.25, 9.0, 4.0], [0.5, -1.0, 0.0, -99.0]])
    assert space.for_env(actions).tolist() == [[[-1.0, 0.25], [3.0, 4.0]], [[0.5, 0.0], [2.0, -9.0]]]


def test_discrete_actions_reach_the_env_as_they_are():
    actions = torch.tensor([[2, 0], [1, 1]])
    assert ActionSpace(ActionKind("multi-categorical", (3, 2))).for_env(actions) is actions


def normal(mean, log_std):
    return reference.Independent(reference.Normal(mean, log_std.exp()), 1)


@pytest.mark.usefixtures("in_float64")
def test_views_of_choices_are_those_of_their_logits():
    ours, theirs, actions = torch.randn(7, 4), torch.randn(7, 4), torch.arange(7) % 4
    before, after = categorical_view(ours), categorical_view(theirs, actions)
    expected = kl_divergence(reference.Categorical(logits=theirs), reference.Categorical(logits=ours))
    torch.testing.assert_close(kl_of(after, before), expected)
    assert policy_kl(before, after) == pytest.approx(expected.mean().item())
    torch.testing.assert_close(after.log_probs, reference.Categorical(logits=theirs).log_prob(actions))
    assert torch.equal(after.greedy_actions, theirs.argmax(-1))
    assert before.log_probs is None and before.parameters.equal(ours)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("log_std_shape", [(7, 3), (3,)])
def test_views_of_gaussians_are_those_of_their_means_and_deviations(log_std_shape):
    means, log_stds = torch.randn(2, 7, 3), torch.randn(2, *log_std_shape)
    actions = torch.randn(7, 3)
    before, after = gaussian_view(means[0], log_stds[0]), gaussian_view(means[1], log_stds[1], actions)
    expected = kl_divergence(normal(means[1], log_stds[1].expand(7, 3)), normal(means[0], log_stds[0].expand(7, 3)))
    torch.testing.assert_close(kl_of(after, before), expected)
    assert policy_kl(before, after) == pytest.approx(expected.mean().item())
    torch.testing.assert_close(after.log_probs, normal(means[1], log_stds[1].expand(7, 3)).log_prob(actions))
    assert torch.equal(after.greedy_actions, means[1])
    assert before.log_probs is None


def kl_of(one, other):
    return one.kind.distribution(one.parameters).kl(other.kind.distribution(other.parameters))


@pytest.mark.parametrize("view", [categorical_view, lambda numbers: gaussian_view(numbers, torch.zeros(4))])
def test_a_view_is_a_copy_without_gradient(view):
    numbers = torch.randn(5, 4, requires_grad=True)
    seen = view(numbers)
    parameters, greedy = seen.parameters.clone(), seen.greedy_actions.clone()
    assert not seen.parameters.requires_grad
    with torch.no_grad():
        numbers.neg_()
    assert torch.equal(seen.parameters, parameters) and torch.equal(seen.greedy_actions, greedy)
