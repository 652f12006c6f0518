"""Compiled networks are the modules that they stand for: outputs and gradients, held to autograd in float64."""

import numpy as np
import pytest
import torch
from exact_copies import (
    assert_near,
    away_from_kinks,
    by_autograd,
    exact_outputs,
    gap,
    laid_out,
    outputs_of,
    randomised,
    weighted,
)
from hypothesis import given, settings, strategies as st
from torch import Generator, nn

from swell.config.learners import PolicySettings, PQNSettings
from swell.kernels.factory import policy_kernel_of, q_kernel_of
from swell.learning.distributions import ActionKind
from swell.learning.optimize import flat_parameters
from swell.learning.proximal_policy import WeightAverage
from swell.networks.actor_critics import make_actor_critic
from swell.networks.encoders import ImageEncoder, VectorEncoder
from swell.networks.q_networks import make_q_network

pytest.importorskip("numba")
pytestmark = pytest.mark.portable

TOLERANCE = 3e-5
"""Of the largest entry. Most are within 1e-6; a narrow norm of nearly equal sums makes rounding larger (1.3e-5)."""
ROUNDING = 1e-5
"""Of one kernel beside itself with and without a gradient: sums of up to 70 terms, each to 6e-8."""
KINDS = {
    "discrete": ActionKind("categorical", (4,)),
    "joint": ActionKind("multi-categorical", (3, 1, 2)),
    "box": ActionKind("gaussian", (3,)),
}
VECTORS = {
    "hidden": st.lists(st.integers(1, 70), min_size=1, max_size=3).map(tuple),
    "activation": st.sampled_from(["relu", "tanh"]),
    "norm_over": st.sampled_from(["none", "channels"]),
}
SIZES = {"inputs": st.integers(1, 20), "batch": st.integers(1, 300), "seed": st.integers(0, 10**6)}


def compiled_policy(kind="discrete", shape=(5,), dtype=np.float32, auxiliary_head=True, seed=0, **fields):
    """An ActorCritic with random weights, and what is compiled of it."""
    kind = KINDS[kind]
    network = make_actor_critic(PolicySettings(**fields), shape, kind, auxiliary_head=auxiliary_head)
    randomised(network, seed)
    if network.normalizer is not None:
        network.normalizer.observe(3.0 * torch.randn(50, *shape, generator=Generator().manual_seed(seed)) - 1.0)
    sizes = () if kind.is_continuous else kind.sizes
    kernel = policy_kernel_of(network, flat_parameters(network), shape, dtype, sizes, "compiled")
    assert kernel is not None
    return network, kernel


def compiled_q(shape=(5,), dtype=np.float32, num_actions=3, seed=0, **fields):
    network = randomised(make_q_network(PQNSettings(**fields), shape, num_actions), seed)
    kernel = q_kernel_of(network, flat_parameters(network), shape, dtype, "compiled")
    assert kernel is not None
    return network, kernel


def numbers(batch, inputs, seed=0):
    return 2.0 * torch.randn(batch, inputs, generator=Generator().manual_seed(seed))


def assert_is_the_module(network, kernel, observations, methods, seed=0):
    """Outputs and gradients by each method; samples at a kink of a ReLU have no slope."""
    generator = Generator().manual_seed(seed)
    clear = away_from_kinks(network, observations).float()
    for method in methods:
        with torch.no_grad():
            plain = outputs_of(kernel, method, observations)
        slopes = [torch.randn(output.shape, generator=generator) for output in plain]
        slopes = [slope * clear.view(-1, *[1] * (slope.dim() - 1)) for slope in slopes]
        exact, exact_gradient = exact_outputs(network, method, observations, slopes)
        outputs = outputs_of(kernel, method, observations)
        (gradient,) = torch.autograd.grad(weighted(outputs, slopes), [kernel.flat])
        rough, rough_gradient = by_autograd(network, method, observations, slopes)
        for output, without, right, other in zip(outputs, plain, exact, rough, strict=True):
            assert output.requires_grad and not without.requires_grad
            assert output.dtype == without.dtype == torch.float32
            assert_near(output.detach(), right, TOLERANCE, other)
            assert_near(without, output.detach(), ROUNDING)
        assert_near(gradient, exact_gradient, TOLERANCE, rough_gradient)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(list(KINDS)),
    architecture=st.sampled_from(["dual", "shared", "detached"]),
    normalize_observations=st.booleans(),
    **VECTORS,
    **SIZES,
)
def test_a_compiled_policy_is_its_module(kind, inputs, batch, seed, **fields):
    network, kernel = compiled_policy(kind, (inputs,), seed=seed, **fields)
    methods = ["forward", "policy", "auxiliary"]
    if fields["architecture"] != "detached":
        methods.append("value")
    assert_is_the_module(network, kernel, numbers(batch, inputs, seed), methods, seed)


@pytest.fixture
def memory_full_of_nan():
    """What torch leaves open, so that whoever reads what was never written is found out."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("memory_full_of_nan")
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("architecture", ["dual", "shared", "detached"])
def test_nothing_is_read_that_was_not_written(kind, architecture):
    network, kernel = compiled_policy(kind, architecture=architecture)
    assert_is_the_module(network, kernel, numbers(70, 5), ["forward", "policy", "auxiliary"])


@pytest.mark.usefixtures("memory_full_of_nan")
def test_values_alone_teach_a_detached_trunk_nothing():
    network, kernel = compiled_policy(architecture="detached", activation="tanh")
    assert_is_the_module(network, kernel, numbers(70, 5), ["value"])


@settings(max_examples=40)
@given(num_actions=st.integers(1, 6), **VECTORS, **SIZES)
def test_a_compiled_q_network_is_its_module(num_actions, inputs, batch, seed, **fields):
    network, kernel = compiled_q((inputs,), num_actions=num_actions, seed=seed, **fields)
    assert_is_the_module(network, kernel, numbers(batch, inputs, seed), ["forward"], seed)


def pictures(batch, dtype, shape=(4, 10, 10), share=0.2):
    generator = Generator().manual_seed(batch)
    shown = torch.rand(batch, *shape, generator=generator) < share
    if dtype == np.bool_:
        return shown
    return torch.where(shown, torch.randint(1, 256, shown.shape, generator=generator), 0).to(torch.uint8)


@pytest.mark.parametrize("norm_over", ["channels", "map", "none"])
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8])
@pytest.mark.parametrize("architecture", ["dual", "shared", "detached"])
def test_a_compiled_policy_of_images_is_its_module(norm_over, dtype, architecture):
    network, kernel = compiled_policy(shape=(4, 10, 10), dtype=dtype, norm_over=norm_over, architecture=architecture)
    methods = ["forward", "policy", "auxiliary"]
    if architecture != "detached":
        methods.append("value")
    assert_is_the_module(network, kernel, pictures(70, dtype), methods)


@pytest.mark.parametrize("norm_over", ["channels", "map", "none"])
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8])
@pytest.mark.parametrize(("shape", "batch"), [((4, 10, 10), 65), ((1, 5, 8), 1), ((7, 3, 3), 20)])
def test_a_compiled_q_network_of_images_is_its_module(norm_over, dtype, shape, batch):
    network, kernel = compiled_q(shape, dtype, norm_over=norm_over)
    assert_is_the_module(network, kernel, pictures(batch, dtype, shape), ["forward"])


def test_pictures_without_a_single_dark_pixel_are_seen_too():
    network, kernel = compiled_q((3, 6, 6), np.uint8)
    assert_is_the_module(network, kernel, pictures(9, np.uint8, (3, 6, 6), share=2.0), ["forward"])


def one_convolution(filters, size, stride):
    encoder = ImageEncoder((2, 9, 11), [(filters, size, stride)], 8, "channels")
    return randomised(nn.Sequential(encoder, nn.Linear(encoder.features, 3)))


@pytest.mark.parametrize(("filters", "size"), [(5, 4), (3, 2), (6, 1), (2, 7)])
def test_convolutions_of_other_sizes_are_seen_too(filters, size):
    network = one_convolution(filters, size, 1)
    kernel = q_kernel_of(network, flat_parameters(network), (2, 9, 11), np.bool_, "compiled")
    assert_is_the_module(network, kernel, pictures(30, np.bool_, (2, 9, 11)), ["forward"])


def test_a_convolution_with_a_stride_is_left_to_autograd():
    network = one_convolution(5, 4, 2)
    assert q_kernel_of(network, flat_parameters(network), (2, 9, 11), np.bool_, "auto") is None


@pytest.mark.parametrize(("dtype", "kind"), [(torch.uint8, np.uint8), (torch.bool, np.bool_), (torch.float64, float)])
def test_vectors_of_other_dtypes_are_seen_as_the_module_sees_them(dtype, kind):
    network, kernel = compiled_policy(shape=(6,), dtype=kind)
    observations = (200 * torch.rand(40, 6, generator=Generator().manual_seed(0))).to(dtype)
    assert_is_the_module(network, kernel, observations, ["forward"])


def test_images_that_go_into_dense_layers_are_flattened():
    network, kernel = compiled_q((2, 3, 3), np.uint8, network="mlp", hidden=(7,))
    assert_is_the_module(network, kernel, pictures(12, np.uint8, (2, 3, 3)), ["forward"])


def test_observations_that_are_not_contiguous_are_seen_too():
    network, kernel = compiled_q((6,))
    observations = numbers(6, 40).T
    assert not observations.is_contiguous()
    assert_is_the_module(network, kernel, observations, ["forward"])


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_more_rows_than_go_through_at_once_all_come_out(extra):
    network, kernel = compiled_q((6,), hidden=(70, 70))
    observations = numbers(2 * kernel.part.room.inputs.shape[0] + extra, 6)
    assert_is_the_module(network, kernel, observations, ["forward"])


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_empty_batch_gives_empty_outputs(kind):
    network, kernel = compiled_policy(kind)
    with torch.no_grad():
        for method in ("forward", "policy", "value", "auxiliary"):
            found, wanted = (outputs_of(model, method, numbers(0, 5)) for model in (kernel, network))
            assert [output.shape for output in found] == [output.shape for output in wanted]


def test_an_empty_batch_has_a_gradient_of_zero():
    network, kernel = compiled_policy()
    outputs = kernel(numbers(0, 5))
    assert [output.shape for output in outputs] == [output.shape for output in network(numbers(0, 5))]
    (gradient,) = torch.autograd.grad(outputs[0].sum() + outputs[1].sum(), [kernel.flat])
    assert not gradient.any()


def test_a_network_without_auxiliary_head_says_so():
    _, kernel = compiled_policy(auxiliary_head=False)
    with pytest.raises(RuntimeError, match="this network has no auxiliary head"):
        kernel.auxiliary(numbers(2, 5))


def test_an_infinite_or_missing_number_is_not_hidden():
    """So that a step with it is stopped."""
    for activation in ("relu", "tanh"):
        for norm_over in ("none", "channels"):
            _, kernel = compiled_q((3,), activation=activation, norm_over=norm_over)
            observations = numbers(4, 3)
            observations[1, 2] = float("nan")
            finite = kernel(observations).isfinite().all(1)
            assert finite.tolist() == [True, False, True, True], (activation, norm_over)


def test_weights_changed_in_place_are_seen():
    network, kernel = compiled_policy()
    observations = numbers(20, 5)
    before, _ = outputs_of(kernel, "forward", observations)
    with torch.no_grad():
        network.policy_head.bias += 1.0
    after, _ = outputs_of(kernel, "forward", observations)
    torch.testing.assert_close(after, before + 1.0)
    network.load_state_dict(compiled_policy(seed=1)[0].state_dict())
    assert_is_the_module(network, kernel, observations, ["forward", "policy", "value", "auxiliary"])


def test_a_copy_has_weights_of_its_own():
    network, kernel = compiled_policy()
    observations = numbers(20, 5)
    average = WeightAverage(network, lambda copied, flat: kernel_like(kernel, copied, flat))
    assert type(average.model) is type(kernel)
    before = kernel.policy(observations).detach()
    with torch.no_grad():
        torch.testing.assert_close(average.model.policy(observations), before, rtol=0, atol=0)
        network.policy_head.bias += 1.0
        assert gap(average.model.policy(observations), before) == 0.0
        average.step(network, decay=0.5)  # W = 1.5: a third of the first weights
        torch.testing.assert_close(average.model.policy(observations), before + 2.0 / 3.0)
        torch.testing.assert_close(average.model.policy(observations), average.network.policy(observations))
        average.reset(network)
        torch.testing.assert_close(average.model.policy(observations), kernel.policy(observations))


def kernel_like(kernel, network, flat):
    return policy_kernel_of(network, flat, kernel.shape, np.float32, KINDS["discrete"].sizes, "compiled")


def test_an_average_takes_over_the_statistics_of_observations():
    network, kernel = compiled_policy(normalize_observations=True)
    average = WeightAverage(network, lambda copied, flat: kernel_like(kernel, copied, flat))
    observations = numbers(20, 5)
    network.normalizer.observe(10.0 + numbers(50, 5))
    with torch.no_grad():
        assert gap(average.model.policy(observations), kernel.policy(observations)) > 1e-2
        average.copy_buffers(network)
        torch.testing.assert_close(average.model.policy(observations), kernel.policy(observations))


def test_a_layer_that_is_there_twice_learns_from_both_places():
    encoder = VectorEncoder(4, (6, 6, 6), "none", "tanh")
    encoder.blocks[2] = encoder.blocks[1]
    network = randomised(nn.Sequential(encoder, nn.Linear(6, 2)))
    kernel = q_kernel_of(network, flat_parameters(network), (4,), np.float32, "auto")
    if kernel is not None:  # it may also be left to autograd
        assert_is_the_module(network, kernel, numbers(30, 4), ["forward"])


def test_gradients_of_several_passes_add_up():
    """As micro-batches do."""
    network, kernel = compiled_policy("box", activation="tanh")
    observations = numbers(50, 5)
    slopes = [torch.ones(50, 6), torch.ones(50)]
    _, exact = exact_outputs(network, "forward", observations, slopes)
    kernel.flat.grad.zero_()
    for rows in (slice(0, 20), slice(20, 50)):
        weighted(kernel(observations[rows]), [slope[rows] for slope in slopes]).backward()
    assert_near(kernel.flat.grad, exact, TOLERANCE)
    assert_near(laid_out(network, [parameter.grad for parameter in network.parameters()]), exact, TOLERANCE)
