"""From a RunConfig to its learner."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from torch import nn

from swell.learning.actor import ActionSpace, Actor
from swell.algorithms.ess import ESSPPO, ESSSettings
from swell.algorithms.ppg import PPG, PPGSettings
from swell.algorithms.ppo import PPO, PPOSettings
from swell.algorithms.ppo_ewma import PPOEWMA
from swell.algorithms.pqn import PQN, PQNSettings
from swell.config.run_config import RunConfig
from swell.learning.proximal_policy import DecoupledSettings
from swell.learning.distributions import ActionKind
from swell.errors import ConfigError
from swell.batch.hyperparameters import hyperparameters
from swell.networks.q_networks import make_q_network
from swell.networks.actor_critics import ActorCritic, make_actor_critic
from swell.learning.policy_batch import Preparation, ReturnSettings
from swell.learning.policy_learner import StepSettings
from swell.config.seeds import derive_seed

AnyLearner = PQN | PPO | PPOEWMA | PPG | ESSPPO


def make_learner(
    config: RunConfig, observation_shape: tuple[int, ...], action_space: Space, device: torch.device
) -> AnyLearner:
    if config.algorithm == "pqn":
        return _make_pqn(config, observation_shape, action_space, device)
    actor = _make_actor(config, observation_shape, action_space, device)
    preparation = Preparation(actor, _return_settings(config), config.num_envs)
    shared = (actor, preparation, hyperparameters(config), _step_settings(config))
    seed = derive_seed(config.seed, "learner") + 1
    match config.algorithm:
        case "ppo":
            return PPO(*shared, _ppo_settings(config), seed)
        case "ppo-ewma":
            return PPOEWMA(*shared, _decoupled_settings(config), seed)
        case "ess":
            return ESSPPO(*shared, _ess_settings(config), seed)
        case _:
            return PPG(*shared, _ppg_settings(config), seed)


def make_action_space(space: Space, env: str, device: torch.device) -> ActionSpace:
    """How a policy sees the actions of an env."""
    if isinstance(space, spaces.Discrete):
        return ActionSpace(ActionKind("categorical", (int(space.n),)))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return ActionSpace(ActionKind("multi-categorical", tuple(map(int, space.nvec))))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return ActionSpace(ActionKind("multi-categorical", (2,) * space.shape[0]))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.shape:
        low, high = (
            torch.from_numpy(bound.astype(np.float32)).flatten().to(device) for bound in (space.low, space.high)
        )
        return ActionSpace(ActionKind("gaussian", (low.numel(),)), space.shape, low, high)
    raise ConfigError(f"{env}: actions must be Discrete, MultiDiscrete, MultiBinary or a Box of floats, got {space}")


def _make_pqn(config: RunConfig, observation_shape: tuple[int, ...], action_space: Space, device: torch.device) -> PQN:
    if not isinstance(action_space, spaces.Discrete):
        way_out = "try --algorithm ppo"
        raise ConfigError(f"pqn needs a Discrete action space, got {action_space} in {config.env}; {way_out}")
    num_actions = int(action_space.n)

    def make() -> nn.Module:
        return make_q_network(
            config.network,
            observation_shape,
            num_actions,
            config.hidden,
            config.norm_over,
            config.multi_skip_head,
            activation=config.activation,
        )

    settings = PQNSettings(
        learning_rate=config.learning_rate,
        anneal_learning_rate=config.anneal_learning_rate,
        learning_rate_rule=config.learning_rate_rule,
        reference_batch=config.reference_batch or config.num_envs * config.horizon,
        epsilon_start=config.epsilon_start,
        epsilon_end=config.epsilon_end,
        epsilon_fraction=config.epsilon_fraction,
        discount=config.discount,
        trace_decay=config.trace_decay,
        max_gradient_norm=config.max_gradient_norm,
        loss_coefficient=config.loss_coefficient,
        reward_scale=config.reward_scale,
        truncation_is_termination=config.truncation_is_termination,
        micro_batch_size=config.micro_batch_size,
        invariance_rules=config.invariance_rules if config.invariance == "on" else (),
        reference_minibatch=hyperparameters(config).reference.optimization,
    )
    return PQN(_seeded(config, make).to(device), num_actions, settings, derive_seed(config.seed, "learner"))


def _make_actor(
    config: RunConfig, observation_shape: tuple[int, ...], action_space: Space, device: torch.device
) -> Actor:
    space = make_action_space(action_space, config.env, device)

    def make() -> ActorCritic:
        return make_actor_critic(
            config.network,
            observation_shape,
            space.kind.name,
            space.kind.num_parameters,
            config.architecture,
            config.hidden,
            config.norm_over,
            config.activation,
            config.initial_log_std,
            config.normalize_observations,
            auxiliary_head=config.algorithm in ("ppg", "ppg-ewma"),
        )

    seed = derive_seed(config.seed, "learner")
    return Actor(_seeded(config, make).to(device), space, seed, config.micro_batch_size)


Network = TypeVar("Network", bound=nn.Module)


def _seeded(config: RunConfig, make: Callable[[], Network]) -> Network:
    """Weights come from their own seed, and leave torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "network"))
        return make()


def _return_settings(config: RunConfig) -> ReturnSettings:
    return ReturnSettings(
        discount=config.discount,
        trace_decay=config.trace_decay,
        reward_scale=config.reward_scale,
        normalize_rewards=config.normalize_rewards,
        truncation_is_termination=config.truncation_is_termination,
        stale=config.staleness > 0,
    )


def _step_settings(config: RunConfig) -> StepSettings:
    return StepSettings(config.adam_epsilon, config.max_gradient_norm, config.micro_batch_size)


def _ppo_settings(config: RunConfig) -> PPOSettings:
    return PPOSettings(
        clip_range=config.clip_range,
        value_clip_range=config.value_clip_range,
        value_coefficient=config.value_coefficient,
        entropy_coefficient=config.entropy_coefficient,
        advantage_norm=config.advantage_norm,
        target_kl=config.target_kl,
        staleness_mode=config.staleness_mode,
    )


def _decoupled_settings(config: RunConfig) -> DecoupledSettings:
    return DecoupledSettings(
        clip_range=config.clip_range,
        kl_penalty=config.kl_penalty,
        value_clip_range=config.value_clip_range,
        value_coefficient=config.value_coefficient,
        entropy_coefficient=config.entropy_coefficient,
        normalize_advantages=config.advantage_norm == "batch",
    )


def _ess_settings(config: RunConfig) -> ESSSettings:
    return ESSSettings(
        scope=config.ess_scope,
        penalty=config.ess_penalty,
        value_clip_range=config.value_clip_range,
        value_coefficient=config.value_coefficient,
        entropy_coefficient=config.entropy_coefficient,
        advantage_norm=config.advantage_norm,
        target_kl=config.target_kl,
    )


def _ppg_settings(config: RunConfig) -> PPGSettings:
    return PPGSettings(
        policy=_decoupled_settings(config),
        staleness_mode=config.staleness_mode,
        averages_policy=config.algorithm == "ppg-ewma",
        phase_env_steps=config.phase_env_steps,
        auxiliary_epochs=config.auxiliary_epochs,
        auxiliary_minibatch_size=config.auxiliary_minibatch_size,
        clone_coefficient=config.clone_coefficient,
    )
