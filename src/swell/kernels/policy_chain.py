"""The gradient of a policy and its values, written out; see written_gradients.py."""

import torch
from torch import Tensor, nn

from swell.kernels.written_gradients import Chain, Tape, chain_of
from swell.networks.actor_critics import ActorCritic


class PolicyChain:
    """An ActorCritic as chains: two of them, or a common trunk with two heads."""

    def __init__(self, network: ActorCritic, trunk: Chain | None, policy: Chain, value: Chain) -> None:
        self._network = network
        self._trunk = trunk
        self._policy = policy
        self._value = value
        self._values_train_trunk = network.architecture == "shared"

    def forward(self, observations: Tensor, tape: Tape) -> tuple[Tensor, Tensor]:
        """Policy parameters [B, P] and values [B]."""
        network = self._network
        inputs = observations if network.normalizer is None else network.normalizer(observations)
        if self._trunk is not None:
            inputs = self._trunk.forward(inputs, tape)
        parameters = self._policy.forward(inputs, tape)
        if network.log_std is not None:
            parameters = torch.cat((parameters, network.log_std.expand_as(parameters)), dim=1)
        return parameters, self._value.forward(inputs, tape).squeeze(1)

    def backward(self, parameter_slopes: Tensor, value_slopes: Tensor, tape: Tape) -> None:
        """Adds to the gradients, from ∂loss/∂parameters [B, P] and ∂loss/∂values [B]."""
        wanted = self._trunk is not None
        from_values = self._value.backward(value_slopes.unsqueeze(1), tape, wanted)
        if self._network.log_std is not None:
            parameter_slopes, log_std_slopes = parameter_slopes.chunk(2, 1)
            gradient = self._network.log_std.grad
            assert gradient is not None
            gradient.add_(log_std_slopes.sum(0))
        from_policy = self._policy.backward(parameter_slopes, tape, wanted)
        if self._trunk is not None:
            self._trunk.backward(from_policy + from_values if self._values_train_trunk else from_policy, tape)


def policy_chain_of(network: ActorCritic) -> PolicyChain | None:
    """None if a part of it is of a kind that only autograd can do."""

    def chain(*modules: nn.Module | None) -> Chain | None:
        return chain_of(*(module for module in modules if module is not None))

    is_dual = network.value_encoder is not None
    trunk = None if is_dual else chain(network.policy_encoder)
    policy = chain(network.policy_encoder if is_dual else None, network.policy_head)
    value = chain(network.value_encoder, network.value_head)
    if policy is None or value is None or not (is_dual or trunk):
        return None
    return PolicyChain(network, trunk, policy, value)
