"""Policies and values of states: one or two encoders with heads."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from swell.config.learners import Architecture, PolicySettings
from swell.config.validation import is_import
from swell.errors import ConfigError
from swell.networks.encoders import IMPALA_HEAD_NORM, ChannelsFirst, orthogonal, rescale_units
from swell.networks.normalizer import ObservationNormalizer
from swell.networks.parts import allowed_only, without_masks
from swell.networks.q_networks import (
    MULTI_SKIP_BLOCKS,
    Parts,
    channels_first,
    is_channels_last,
    make_encoder,
    resolve_network,
)
from swell.types import DistributionKind

POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


class ActorCritic(nn.Module):
    """From observations [B, ...] to the parameters [B, P] of the policy's distributions and to values [B].

    A Gaussian policy has parameters mean ‖ log_std, where log_std is learned but does not depend on the observation.
    """

    def __init__(
        self,
        policy_encoder: nn.Module,
        value_encoder: nn.Module | None,
        policy_head: nn.Linear,
        value_head: nn.Linear,
        auxiliary_head: nn.Linear | None,
        log_std: nn.Parameter | None,
        normalizer: ObservationNormalizer | None,
        architecture: Architecture,
        masks: int = 0,
    ) -> None:
        super().__init__()
        self.policy_encoder = policy_encoder
        self.value_encoder = value_encoder
        self.policy_head = policy_head
        self.value_head = value_head
        self.auxiliary_head = auxiliary_head
        self.log_std = log_std
        self.normalizer = normalizer
        self.architecture: Architecture = architecture
        self.masks = masks
        """So many numbers at the end of an observation say which actions are allowed."""

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Policy parameters [B, P] and values [B]."""
        inputs = self._normalized(observations)
        features = self.policy_encoder(inputs)
        values = self._values(self._value_features(inputs, features))
        return self._policy_parameters(features, observations), values

    def policy(self, observations: Tensor) -> Tensor:
        """Policy parameters [B, P] alone."""
        return self._policy_parameters(self.policy_encoder(self._normalized(observations)), observations)

    def value(self, observations: Tensor) -> Tensor:
        """Values [B] alone."""
        encoder = self.policy_encoder if self.value_encoder is None else self.value_encoder
        return self._values(encoder(self._normalized(observations)))

    def auxiliary(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Policy parameters [B, P], values [B] and the values [B] of the auxiliary head on the policy's encoder."""
        if self.auxiliary_head is None:
            raise RuntimeError("this network has no auxiliary head; make it with auxiliary_head=True")
        inputs = self._normalized(observations)
        features = self.policy_encoder(inputs)
        return (
            self._policy_parameters(features, observations),
            self._values(self._value_features(inputs, features)),
            self.auxiliary_head(features).squeeze(1),
        )

    def observe(self, observations: Tensor) -> None:
        """Lets the normaliser, if there is one, take in what was seen."""
        if self.normalizer is not None:
            self.normalizer.observe(self._seen(observations))

    def _seen(self, observations: Tensor) -> Tensor:
        """What is not the allowed actions."""
        return observations[:, : -self.masks] if self.masks else observations

    def _normalized(self, observations: Tensor) -> Tensor:
        seen = self._seen(observations)
        return seen if self.normalizer is None else self.normalizer(seen)

    def _policy_parameters(self, features: Tensor, observations: Tensor) -> Tensor:
        outputs = self.policy_head(features)
        if self.masks:
            return allowed_only(outputs, observations, self.masks)
        return outputs if self.log_std is None else torch.cat((outputs, self.log_std.expand_as(outputs)), dim=1)

    def _value_features(self, inputs: Tensor, policy_features: Tensor) -> Tensor:
        return policy_features if self.value_encoder is None else self.value_encoder(inputs)

    def _values(self, features: Tensor) -> Tensor:
        if self.architecture == "detached":
            features = features.detach()
        return self.value_head(features).squeeze(1)


def make_actor_critic(
    settings: PolicySettings,
    shape: Sequence[int],
    kind: DistributionKind,
    *,
    auxiliary_head: bool = False,
    parts: Parts = (),
    masks: int = 0,
) -> ActorCritic:
    """A policy whose distributions are of a `kind`, and a value, for observations [B, *shape].

    Flat observations may be made of `parts`, and end in `masks` numbers that say which actions are allowed.

    Weights are orthogonal with gain √2, 0.01 for the policy head, so that the first policy is almost uniform, and 1 for
    the value heads; the impala-cnn has rows of fixed length instead, 0.1 in every head. Biases start at zero. Without
    being asked for, there is no auxiliary head: a parameter that no loss reaches would have no gradient.
    """
    shape = without_masks(shape, masks)
    name = resolve_network(settings.network, shape, parts)
    if name in MULTI_SKIP_BLOCKS:
        raise ConfigError(f"network {name} is a Q-network; for ppo choose mlp, minatar-cnn, nature-cnn or impala-cnn")

    def encoder() -> tuple[nn.Module, int]:
        turned = is_channels_last(shape) and not is_import(name)
        made = make_encoder(name, settings, channels_first(shape) if turned else shape, parts)
        if name != "impala-cnn" and not is_import(name):
            made.apply(orthogonal)
        return nn.Sequential(ChannelsFirst(), made) if turned else made, made.features

    def head(inputs: int, outputs: int, gain: float) -> nn.Linear:
        made = nn.Linear(inputs, outputs)
        if name == "impala-cnn":
            rescale_units(made, IMPALA_HEAD_NORM)
        else:
            orthogonal(made, gain)
        return made

    outputs = kind.num_parameters // 2 if kind.is_continuous else kind.num_parameters
    policy_encoder, features = encoder()
    return ActorCritic(
        policy_encoder=policy_encoder,
        value_encoder=encoder()[0] if settings.architecture == "dual" else None,
        policy_head=head(features, outputs, POLICY_GAIN),
        value_head=head(features, 1, VALUE_GAIN),
        auxiliary_head=head(features, 1, VALUE_GAIN) if auxiliary_head else None,
        log_std=nn.Parameter(torch.full((outputs,), settings.initial_log_std)) if kind.is_continuous else None,
        normalizer=ObservationNormalizer(shape) if settings.normalize_observations else None,
        architecture=settings.architecture,
        masks=masks,
    )
