"""Environments: Gymnasium, MuJoCo, Atari, MinAtar and Procgen behind one convention. Nothing here imports torch."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from swell.config.own_envs import env_name
from swell.config.runs import EnvSettings
from swell.config.validation import with_fields
from swell.envs.contract import EnvBatch, EnvStep, ResumeTier, VectorEnv
from swell.envs.ids import EnvFamily, env_family, is_compiled, resolve_env_id, uses_envpool
from swell.errors import ConfigError

__all__ = [
    "EnvBatch",
    "EnvFamily",
    "EnvSettings",
    "EnvStep",
    "ResumeTier",
    "VectorEnv",
    "env_family",
    "make_envs",
    "resolve_env_id",
]


def make_envs(
    env: str | EnvSettings | Callable[..., Any],
    *,
    seed: int = 1,
    threads: int = 0,
    render_mode: str | None = None,
    **options: Any,
) -> VectorEnv:
    """A batch of envs, of an id, of a function that makes one, or of settings.

    Single settings are taken by name, such as `num_envs`.

    A wrong id or a missing extra raises ConfigError before anything is built.
    """
    asked = env if isinstance(env, EnvSettings) else EnvSettings(env_name(env))
    known = {field.name: getattr(asked, field.name) for field in fields(EnvSettings)}
    of_batch = {"seed": seed, "threads": threads, "render_mode": render_mode}
    settings = with_fields(EnvBatch, None, {**known, **of_batch, **options})
    settings = with_fields(EnvBatch, settings, {"env": resolve_env_id(settings.env, settings.backend)})
    _require_single_envs(settings)
    if uses_envpool(settings.env, settings.backend):
        from swell.envs.envpool_envs import EnvPoolEnvs

        return EnvPoolEnvs(settings)
    if is_compiled(settings.env, settings.backend):
        from swell.envs.compiled_envs import CompiledEnvs

        return CompiledEnvs(settings)
    family = env_family(settings.env)
    if family == "atari":
        from swell.envs.atari import AtariEnvs

        return AtariEnvs(settings)
    if family == "minatar":
        from swell.envs.minatar import MinAtarEnvs

        return MinAtarEnvs(settings)
    from swell.envs.gymnasium_envs import make_gymnasium_envs

    return make_gymnasium_envs(settings)


def _require_single_envs(settings: EnvBatch) -> None:
    """Arguments and wrappers are for envs that Gymnasium makes one by one."""
    whole = uses_envpool(settings.env, settings.backend) or is_compiled(settings.env, settings.backend)
    if whole or env_family(settings.env) in ("atari", "minatar"):
        given = [name for name in ("env_kwargs", "wrappers") if getattr(settings, name)]
        if given:
            raise ConfigError(*(f"{name} is for envs of Gymnasium and your own, not {settings.env}" for name in given))
