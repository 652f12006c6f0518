"""What all learners of a stochastic policy share: acting, batches, gradient steps, state. Subclasses add objectives."""

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import torch
from gymnasium.spaces import Space
from torch import Generator, Tensor, nn

from swell.batch.rules import BatchSizes, Hyperparameters, batch_rules
from swell.config.learners import PolicySettings
from swell.config.seeds import derive_seed
from swell.config.validation import with_fields
from swell.errors import ConfigError
from swell.kernels.factory import compiled_threads, policy_kernel_of
from swell.learning.advantages import RewardNormalizer
from swell.learning.distributions import make_action_space
from swell.learning.optimize import (
    AddGradient,
    FlatAdam,
    StepTaken,
    accumulate_gradients,
    clipped_step,
    flat_parameters,
    summed_over_processes,
    update_report,
)
from swell.learning.policy_batch import PolicyBatch
from swell.learning.precision import in_precision
from swell.learning.targets import rollout_returns
from swell.networks.actor_critics import ActorCritic, make_actor_critic
from swell.networks.encoders import seeded
from swell.networks.parts import structure_of
from swell.ranks import Shares, shared_samples
from swell.types import Actor, BatchPlan, PolicyView, Rollout

if TYPE_CHECKING:
    from swell.kernels.models import CompiledPolicy


class PolicyModel(Protocol):
    """An ActorCritic, or what stands for one."""

    def __call__(self, observations: Tensor) -> tuple[Tensor, Tensor]: ...
    def policy(self, observations: Tensor) -> Tensor: ...
    def value(self, observations: Tensor) -> Tensor: ...
    def auxiliary(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...


SettingsKind = TypeVar("SettingsKind", bound=PolicySettings)


class PolicyLearner(Generic[SettingsKind]):
    """A policy, its Adam and its randomness. It knows no objective, so it cannot learn by itself.

    `settings` are those of its algorithm, and single ones may be given by name. A `network` of your own takes the place
    of the one that they describe. `reference` is the batch that they were tuned at, for rules that carry them over.
    """

    settings_kind: ClassVar[type[PolicySettings]]
    has_auxiliary_head: ClassVar[bool] = False

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        settings: SettingsKind | None = None,
        *,
        network: ActorCritic | str | None = None,
        reference: BatchSizes | None = None,
        seed: int = 1,
        device: torch.device | str = "cpu",
        threads: int = 0,
        **fields: Any,
    ) -> None:
        if isinstance(network, str):
            network, fields["network"] = None, network
        self.settings: SettingsKind = with_fields(self.settings_kind, settings, fields)  # pyright: ignore[reportAttributeAccessIssue]
        self.space = make_action_space(action_space, device)
        if network is None:
            shape, made_of = observation_space.shape or (), structure_of(observation_space)
            made_of |= {"auxiliary_head": self.has_auxiliary_head}
            network = seeded(seed, lambda: make_actor_critic(self.settings, shape, self.space.kind, **made_of))
        self.network: ActorCritic = network.to(device)
        self.micro_batch_size = self.settings.micro_batch_size
        self.gradient_steps = 0
        if reference is None and self.settings.invariance == "on":
            raise ConfigError("invariance on needs `reference`, the BatchSizes at which the settings were tuned")
        self.rules = batch_rules(self.settings, reference or BatchSizes(1.0, 1.0))
        self._flat = flat_parameters(self.network)
        self._observed = observation_space.shape or (), observation_space.dtype
        self.kernel = self.kernel_of(self.network, self._flat)
        self.path = "autograd" if self.kernel is None else "compiled"
        self.model: PolicyModel = self.kernel or in_precision(self.settings.precision, self.network, self._observed[0])
        """What passes go through: the network, or a kernel that stands for it."""
        self.threads = compiled_threads(threads)
        """Of gradient steps that are one call on the compiled path; elsewhere they are torch's."""
        self.optimizer = self.make_adam()
        self._sum_over_time = self._reward_normalizer = sum_rewards = None
        if self.kernel is not None:
            from swell.learning.fused import bootstrapped_returns, running_sums as sum_rewards

            self._sum_over_time = bootstrapped_returns
        if self.settings.normalize_rewards:
            self._reward_normalizer = RewardNormalizer(self.settings.discount, sum_rewards)
        self._exploration = Generator().manual_seed(derive_seed(seed, "learner"))
        self.shuffle = Generator().manual_seed(derive_seed(seed, "learner") + 1)
        self.start()

    def start(self) -> None:
        """Where a subclass makes what it remembers beside all this."""

    def kernel_of(self, network: ActorCritic, flat: nn.Parameter) -> "CompiledPolicy | None":
        """A compiled form of such a network, where there is one and it is wanted."""
        path = "autograd" if self.settings.precision == "bfloat16" else self.settings.path
        kind = self.space.kind
        return policy_kernel_of(network, flat, *self._observed, () if kind.is_continuous else kind.sizes, path)

    @property
    def trained(self) -> list[nn.Parameter]:
        """What the gradient of a loss on the model's outputs is taken by."""
        return list(self.network.parameters()) if self.kernel is None else [self._flat]

    def make_adam(self) -> FlatAdam:
        tuned = self.rules.tuned
        return FlatAdam(self._flat, tuned.learning_rate, tuned.adam_betas, self.settings.adam_epsilon)

    @torch.inference_mode()
    def act(self, observations: Tensor, progress: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Sampled actions, and what the update needs of this moment: the distribution itself and the values."""
        parameters, values = self.model(observations)
        sampled = self.space.kind.distribution(parameters).sample(self._exploration)
        recorded = {"values": values, "parameters": parameters}
        if self.space.kind.is_continuous:
            recorded["sampled_actions"] = sampled
        return self.space.for_env(sampled), recorded

    def actor(self, max_horizon: int, num_envs: int) -> Actor | None:
        if self.kernel is None:
            return None
        from swell.kernels.actors import PolicyActor

        kind, low, high = self.space.kind, self.space.low, self.space.high
        bounds = None if low is None or high is None else (low, high)
        shape = (len(kind.sizes),) if kind.name == "multi-categorical" else self.space.shape
        return PolicyActor(self.kernel, bounds, shape, max_horizon, num_envs, self._exploration)

    @torch.no_grad()
    def greedy_actions(self, observations: Tensor) -> Tensor:
        return self.space.for_env(self.space.kind.distribution(self.parameters(observations)).mode())

    @torch.no_grad()
    def view(self, states: Tensor, actions: Tensor) -> PolicyView:
        parameters, kind = self.parameters(states), self.space.kind
        distribution = kind.distribution(parameters)
        return PolicyView(self.space.for_env(distribution.mode()), parameters, kind, distribution.log_prob(actions))

    @torch.no_grad()
    def parameters(self, observations: Tensor) -> Tensor:
        """[B, P] of the policy's distributions."""
        if self.kernel is not None:  # has parts of its own
            return self.kernel.policy(observations)
        return torch.cat([self.model.policy(part) for part in observations.split(self.settings.micro_batch_size)])

    @torch.no_grad()
    def values(self, observations: Tensor) -> Tensor:
        """[B] of the states' values."""
        if self.kernel is not None:
            return self.kernel.value(observations)
        return torch.cat([self.model.value(part) for part in observations.split(self.settings.micro_batch_size)])

    def prepare(self, rollout: Rollout) -> PolicyBatch:
        """What to train on; the scale of the rewards takes in this rollout first."""
        if self._reward_normalizer is not None:
            ended = rollout.terminated | rollout.truncated
            self._reward_normalizer.observe(rollout.rewards, ended, rollout.valid)
        return self.peek(rollout)

    @torch.no_grad()
    def peek(self, rollout: Rollout) -> PolicyBatch:
        """The same without remembering anything."""
        kind, states = self.space.kind, rollout.states
        actions = rollout.recorded.get("sampled_actions", rollout.actions).flatten(0, 1)
        parameters = rollout.recorded["parameters"].flatten(0, 1)
        behavior_log_probs = kind.distribution(parameters).log_prob(actions)
        recent_log_probs, values = behavior_log_probs, rollout.recorded["values"]
        if self.settings.staleness > 0:
            # All values from one network: mixing those of the past with a bootstrap of today would tear the returns.
            recent_log_probs = kind.distribution(self.parameters(states)).log_prob(actions)
            values = self.values(states).view_as(rollout.rewards)
        rewards = self.settings.reward_scale * rollout.rewards
        if self._reward_normalizer is not None:
            rewards = self._reward_normalizer.normalize(rewards)
        returns = rollout_returns(rollout, rewards, values, self.values, self.settings, self._sum_over_time)
        indices, shares = shared_samples(rollout.valid)
        return PolicyBatch(
            indices=indices,
            shares=shares,
            states=states,
            actions=actions,
            parameters=parameters,
            behavior_log_probs=behavior_log_probs,
            recent_log_probs=recent_log_probs,
            values=values.flatten(),
            advantages=(returns - values).flatten(),
            returns=returns.flatten(),
        )

    def configure(self, batch: PolicyBatch, plan: BatchPlan, progress: float) -> Hyperparameters:
        """Sets the optimizer to this moment and this batch; returns all the numbers that depend on them."""
        now = self.rules.at(BatchSizes(batch.size, batch.size / min(plan.minibatches, batch.size)), progress)
        self.optimizer.learning_rate = now.learning_rate
        self.optimizer.betas = now.adam_betas
        return now

    def gradient_step(
        self, add_gradient: AddGradient, minibatch: Tensor, shares: Shares, optimizer: FlatAdam | None = None
    ) -> StepTaken:
        """One step of the optimizer, or of another one on the same parameters; each process does its share of it."""
        optimizer = optimizer or self.optimizer
        loss, self.micro_batch_size = accumulate_gradients(
            add_gradient, shares.own(minibatch), self.micro_batch_size, optimizer.gradient, minibatch.shape[0]
        )
        loss = summed_over_processes(optimizer.gradient, loss)
        norm = clipped_step(optimizer, self.settings.max_gradient_norm, loss)
        self.gradient_steps += 1
        return StepTaken(loss, norm)

    @torch.no_grad()
    def observe(self, batch: PolicyBatch) -> None:
        """After an update: lets the observation normaliser, if there is one, take in what was seen."""
        if self.network.normalizer is not None:
            self.network.observe(batch.states[batch.own])

    def report(
        self, batch: PolicyBatch, plan: BatchPlan, now: Hyperparameters, steps: list[StepTaken], means: dict[str, float]
    ) -> dict[str, float]:
        """The metrics that every update of a policy has."""
        return {
            **update_report(steps, batch.size, plan),
            **batch.report(),
            **means,
            "gradient_steps": self.gradient_steps,
            "learning_rate": now.learning_rate,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "reward_normalizer": None if self._reward_normalizer is None else self._reward_normalizer.state_dict(),
            "gradient_steps": self.gradient_steps,
            "exploration": self._exploration.get_state(),
            "shuffle": self.shuffle.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self._reward_normalizer is not None:
            self._reward_normalizer.load_state_dict(state["reward_normalizer"])
        self.gradient_steps = state["gradient_steps"]
        self._exploration.set_state(state["exploration"])
        self.shuffle.set_state(state["shuffle"])
