"""A policy that acts: it samples while it trains and takes the mode when it is judged."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from swell.kernels.policy_chain import PolicyChain
from swell.learning.distributions import ActionKind
from swell.networks.actor_critics import ActorCritic


@dataclass(frozen=True)
class ActionSpace:
    """How a policy's distribution meets the actions that an env takes."""

    kind: ActionKind
    shape: tuple[int, ...] = ()
    """Of one env's continuous action."""
    low: Tensor | None = None
    """[d] the smallest continuous action, flattened; None for discrete actions."""
    high: Tensor | None = None

    def for_env(self, actions: Tensor) -> Tensor:
        """Continuous actions are clipped to their box; the policy keeps and learns from the unclipped ones."""
        if self.low is None:
            return actions
        return actions.clamp(self.low, self.high).unflatten(1, self.shape)


class Actor:
    """A policy network with its own source of randomness."""

    def __init__(self, network: ActorCritic, space: ActionSpace, seed: int, micro_batch_size: int) -> None:
        self.network = network
        self.space = space
        self._micro_batch_size = micro_batch_size
        self._exploration = Generator().manual_seed(seed)
        self.chain: PolicyChain | None = None
        """The same network, written out, once somebody has made it: on a few envs it acts in half the time."""

    @torch.inference_mode()
    def act(self, observations: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Sampled actions, and what the update needs of this moment: the distribution itself and the values."""
        parameters, values = self.network(observations) if self.chain is None else self.chain.forward(observations, [])
        sampled = self.space.kind.distribution(parameters).sample(self._exploration)
        recorded = {"values": values, "parameters": parameters}
        if self.space.low is not None:
            recorded["sampled_actions"] = sampled
        return self.space.for_env(sampled), recorded

    @torch.no_grad()
    def greedy_actions(self, observations: Tensor) -> Tensor:
        return self.space.for_env(self.space.kind.distribution(self.parameters(observations)).mode())

    @torch.no_grad()
    def parameters(self, observations: Tensor) -> Tensor:
        """[B, P] of the policy's distributions."""
        return torch.cat([self.network.policy(part) for part in observations.split(self._micro_batch_size)])

    @torch.no_grad()
    def values(self, observations: Tensor) -> Tensor:
        if observations.shape[0] == 0:
            return torch.empty(0, device=observations.device)
        return torch.cat([self.network.value(part) for part in observations.split(self._micro_batch_size)])

    @torch.no_grad()
    def observe(self, observations: Tensor, chosen: Tensor) -> None:
        """Lets the observation normaliser, if there is one, take in the chosen rows of what was seen."""
        if self.network.normalizer is not None:
            self.network.normalizer.observe(observations[chosen])

    def generator_state(self) -> Tensor:
        return self._exploration.get_state()

    def set_generator_state(self, state: Tensor) -> None:
        self._exploration.set_state(state)
