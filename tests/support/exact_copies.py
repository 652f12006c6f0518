"""Copies of networks and learners in float64, by autograd: what the compiled path is held to."""

import copy
from dataclasses import replace

import torch
from float64 import everything_in_float64
from policy_learners import learner_for
from torch import Generator, nn

NEAR_A_KINK = 1e-4
"""Sums this near to zero may be on the other side of it in float32."""
FEW = 8.0
"""How many times as far from the truth as float32 autograd the compiled path may be."""


def randomised(network, seed=0):
    """All parameters drawn anew: biases of zero and scales of one would hide mistakes."""
    generator = Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            spread = parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.3
            drawn = spread * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn + 1.0 if is_scale(network, parameter) else drawn)
    return network


def is_scale(network, parameter):
    return any(isinstance(module, nn.LayerNorm) and module.weight is parameter for module in network.modules())


def in_float64(network):
    """A copy; call it within `everything_in_float64`."""
    return copy.deepcopy(network).double()


def away_from_kinks(network, observations):
    """[B] whether float32 sees all ReLUs of these samples on the same side as float64 does."""
    clear = torch.ones(observations.shape[0], dtype=torch.bool)

    def watch(module, inputs, outputs):
        near = (outputs.abs() < NEAR_A_KINK) & (outputs != 0.0)
        clear.logical_and_(~near.flatten(1).any(1))

    exact = in_float64(network)
    for module in exact.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm | nn.Conv2d):
            module.register_forward_hook(watch)
    with everything_in_float64(), torch.no_grad():
        exact(observations)
    return clear


def outputs_of(model, method, observations):
    """A tuple of tensors, whatever the method returns."""
    outputs = model(observations) if method == "forward" else getattr(model, method)(observations)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def exact_outputs(network, method, observations, slopes):
    """Outputs and the gradient of Σ slope · output, flat, of a float64 copy."""
    exact = in_float64(network)
    with everything_in_float64():
        return by_autograd(exact, method, observations, [slope.double() for slope in slopes])


def by_autograd(network, method, observations, slopes):
    outputs = outputs_of(network, method, observations)
    network.zero_grad(set_to_none=True)
    weighted(outputs, slopes).backward()
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in network.parameters()]
    return tuple(output.detach() for output in outputs), laid_out(network, gradients)


def weighted(outputs, slopes):
    return sum((output * slope).sum() for output, slope in zip(outputs, slopes, strict=True))


def laid_out(network, tensors):
    """One vector, each tensor in the order in which its parameter lies in memory: that of `flat_parameters`."""
    parts = []
    for parameter, tensor in zip(network.parameters(), tensors, strict=True):
        order = sorted(range(parameter.dim()), key=lambda axis: -parameter.stride(axis))
        parts.append(tensor.detach().permute(order).flatten())
    return torch.cat(parts)


def gap(one, exact):
    """The largest difference, as a part of the largest entry."""
    largest = exact.abs().max().item() if exact.numel() else 0.0
    if largest == 0.0:
        return one.abs().max().item() if one.numel() else 0.0
    return (one.double() - exact.double()).abs().max().item() / largest


def assert_near(one, exact, tolerance, other=None):
    """Within the tolerance, or not much further away than `other`, what float32 autograd says."""
    allowed = tolerance if other is None else max(tolerance, FEW * gap(other, exact))
    assert one.shape == exact.shape
    assert gap(one, exact) <= allowed, f"{gap(one, exact):.2g} > {allowed:.2g} of the largest entry"


def in_doubles(rollout):
    """The same numbers; observations stay in the env's dtype."""
    recorded = {name: value.double() for name, value in rollout.recorded.items()}
    actions = rollout.actions.double() if rollout.actions.is_floating_point() else rollout.actions
    return replace(rollout, rewards=rollout.rewards.double(), actions=actions, recorded=recorded)


def cloned(rollout):
    """Its own memory: the next collection overwrites what a rollout shows."""
    tensors = {name: value.clone() for name, value in vars(rollout).items() if isinstance(value, torch.Tensor)}
    return replace(rollout, **tensors, recorded={name: value.clone() for name, value in rollout.recorded.items()})


def exact_twin(learner, envs, algorithm="ppo", **fields):
    """The same learner on the autograd path in float64, with the weights of `learner`; use it in that context."""
    with everything_in_float64():
        twin = learner_for(envs, algorithm, **{**fields, "path": "autograd"})
        assert twin.path == "autograd" and learner.path == "compiled"
        twin.network.load_state_dict(learner.network.state_dict())
        if hasattr(twin, "average") and twin.average is not None:
            twin.average.load_state_dict(learner.average.state_dict())
    assert next(twin.network.parameters()).dtype == torch.float64
    return twin


def update_exactly(twin, rollout, plan, progress=0.0):
    with everything_in_float64():
        return twin.update(in_doubles(rollout), plan, progress)


def gradient_seen(learner):
    """That of the first step, after clipping, out of Adam's mean."""
    return learner.optimizer.mean / (1.0 - learner.optimizer.betas[0])
