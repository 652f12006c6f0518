"""The gradients of PQN's and PPO's objectives without autograd, for plain networks; None where only autograd can serve.

What the functions here add to `.grad` is what the losses of `losses.py` would, but for rounding; tests hold that.
"""

import torch
from torch import Tensor

from swell.config.learners import PPOSettings
from swell.kernels.written_gradients import Chain, PolicyChain, Tape
from swell.learning.distributions import ActionKind
from swell.learning.losses import clipped_log_ratios, clipped_value_error, clips, distance
from swell.learning.optimize import AddGradient, SampleMeans
from swell.learning.policy_batch import PolicyBatch


def q_gradient(
    chain: Chain | None, states: Tensor, actions: Tensor, targets: Tensor, coefficient: float
) -> AddGradient | None:
    """The gradient of `coefficient` · `q_regression`."""
    if chain is None:
        return None

    @torch.inference_mode()
    def add_gradient(chosen: Tensor, minibatch_size: int) -> float:
        tape: Tape = []
        q_values = chain.forward(states[chosen], tape)
        losses, slopes = q_regression_slopes(q_values, actions[chosen], targets[chosen])
        share = coefficient / minibatch_size
        chain.backward(slopes.mul_(share), tape)
        return losses.sum().item() * share

    return add_gradient


def clipped_policy_gradient(
    chain: PolicyChain | None,
    kind: ActionKind,
    batch: PolicyBatch,
    advantages: Tensor,
    settings: PPOSettings,
    means: SampleMeans | None,
) -> AddGradient | None:
    """The gradient of PPO's objective in its usual form, where one old policy has both roles."""
    behavior, proximal = batch.anchors(settings.staleness_mode)
    if chain is None or proximal is not behavior:
        return None

    @torch.inference_mode()
    def add_gradient(chosen: Tensor, minibatch_size: int) -> float:
        tape: Tape = []
        parameters, values = chain.forward(batch.states[chosen], tape)
        actions, old_log_probs = batch.actions[chosen], behavior[chosen]
        distribution = kind.distribution(parameters)
        log_probs, entropy = distribution.log_prob(actions), distribution.entropy()
        policy_loss, slopes = clipped_surrogate_slopes(
            log_probs, old_log_probs, advantages[chosen], settings.clip_range
        )
        parameter_slopes = slopes.unsqueeze(1) * distribution.score(actions)
        if settings.entropy_coefficient:
            parameter_slopes.sub_(distribution.entropy_slopes(), alpha=settings.entropy_coefficient)
        clip_range = settings.value_clip_range
        old_values = None if clip_range is None else batch.values[chosen]
        value_loss, value_slopes = value_error_slopes(values, batch.returns[chosen], old_values, clip_range or 0.0)
        value_slopes.mul_(settings.value_coefficient / minibatch_size)
        chain.backward(parameter_slopes.div_(minibatch_size), value_slopes, tape)
        if means is not None:
            away = distance(log_probs, old_log_probs, settings.clip_range)
            means.add(policy_loss=policy_loss, value_loss=value_loss, entropy=entropy, **away)
        losses = policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy
        return losses.sum().item() / minibatch_size

    return add_gradient


def q_regression_slopes(q_values: Tensor, actions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The losses of `q_regression`, [B], and their slopes ∂loss/∂Q, [B, A]: 2 (Q(s, a) − G) at a, zero elsewhere."""
    chosen = actions.unsqueeze(1)
    errors = q_values.gather(1, chosen).squeeze(1).sub_(targets)
    slopes = torch.zeros_like(q_values).scatter_(1, chosen, errors.mul(2.0).unsqueeze_(1))
    return errors.square_(), slopes


def clipped_surrogate_slopes(
    log_probs: Tensor, behavior_log_probs: Tensor, advantages: Tensor, clip_range: float
) -> tuple[Tensor, Tensor]:
    """The losses of `clipped_surrogate` and their slopes ∂loss/∂ℓ: −ρA, or 0 where the clip holds the loss."""
    log_ratios = log_probs - behavior_log_probs
    unclipped = log_ratios.exp().mul_(advantages).neg_()
    if not clips(clip_range):
        return unclipped, unclipped
    clipped = clipped_log_ratios(log_ratios, clip_range).exp_().mul_(advantages).neg_()
    return torch.maximum(unclipped, clipped), unclipped * (unclipped >= clipped)


def value_error_slopes(
    values: Tensor, returns: Tensor, old_values: Tensor | None, clip_range: float
) -> tuple[Tensor, Tensor]:
    """The losses of `value_error`, or of `clipped_value_error` given old values, and their slopes ∂loss/∂V."""
    errors = values - returns
    losses, slopes = errors.square(), errors.mul_(2.0)
    if old_values is None:
        return losses, slopes
    clipped = clipped_value_error(values, old_values, returns, clip_range)
    # Inside the range V_c is V but for rounding, so comparing the two losses would drop some of these slopes.
    is_inside = (values - old_values).abs_() <= clip_range
    return clipped, slopes * (is_inside | (losses >= clipped))
