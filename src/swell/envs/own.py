"""Envs of the user's own: a function or a class of theirs makes each, and wrappers of theirs may go around any env."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from swell.config.imports import HandedIn, imported_maker
from swell.config.own_envs import kwargs_of
from swell.config.validation import is_import
from swell.envs.contract import EnvBatch
from swell.errors import ConfigError

AnyEnv = gymnasium.Env[Any, Any]


def own_maker(env_id: str) -> Callable[..., Any] | None:
    """What makes this env, if it is the user's own; None for an id that is registered with Gymnasium."""
    if isinstance(env_id, HandedIn):
        return env_id.make
    if not is_import(env_id):
        return None
    module, _, name = env_id.partition(":")
    importlib.import_module(module)  # which may register the name
    return None if name in gymnasium.registry else imported_maker(env_id, "env")


def make_own(maker: Callable[..., Any], settings: EnvBatch) -> AnyEnv:
    """One env of the user's, with the time limit of the settings if there is one."""
    arguments = kwargs_of(settings.env_kwargs)
    if settings.render_mode is not None:
        if not _takes(maker, "render_mode"):
            raise ConfigError(
                f"{settings.env} cannot be shown: it takes no argument render_mode, as Gymnasium's envs do"
            )
        arguments["render_mode"] = settings.render_mode
    made = _required_env(maker(**arguments), f"env {settings.env}")
    return made if settings.max_episode_steps is None else TimeLimit(made, settings.max_episode_steps)


def wrapped(env: AnyEnv, wrappers: tuple[str, ...]) -> AnyEnv:
    """The env with these around it, the first one innermost."""
    for name in wrappers:
        env = _required_env(imported_maker(name, "wrappers")(env), f"wrapper {name}")
    return env


def require_distinct(envs: list[AnyEnv], env_id: str) -> None:
    """A function that returns one env again and again would have all of them step each other."""
    if len({id(env.unwrapped) for env in envs}) < len(envs):
        raise ConfigError(f"{env_id} must make a new env at each call, and returned the same one again")


def _required_env(made: Any, who: str) -> AnyEnv:
    if not isinstance(made, gymnasium.Env):
        raise ConfigError(f"{who} must return a gymnasium.Env, got {type(made).__name__}")
    return made


def _takes(maker: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(maker).parameters.values()
    return any(each.name == name or each.kind == inspect.Parameter.VAR_KEYWORD for each in parameters)
