"""Environments: Gymnasium, MuJoCo, Atari, MinAtar and Procgen behind one convention. Nothing here imports torch."""

from dataclasses import fields
from typing import Any

from swell.config.runs import EnvSettings
from swell.config.validation import with_fields
from swell.envs.contract import EnvBatch, EnvStep, ResumeTier, VectorEnv
from swell.envs.ids import EnvFamily, env_family, is_compiled, resolve_env_id, uses_envpool

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
    env: str | EnvSettings, *, seed: int = 1, threads: int = 0, render_mode: str | None = None, **options: Any
) -> VectorEnv:
    """A batch of envs, of an id or of settings; single settings are taken by name, such as `num_envs`.

    A wrong id or a missing extra raises ConfigError before anything is built.
    """
    asked = EnvSettings(env) if isinstance(env, str) else env
    known = {field.name: getattr(asked, field.name) for field in fields(EnvSettings)}
    of_batch = {"seed": seed, "threads": threads, "render_mode": render_mode}
    settings = with_fields(EnvBatch, None, {**known, **of_batch, **options})
    settings = with_fields(EnvBatch, settings, {"env": resolve_env_id(settings.env, settings.backend)})
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
