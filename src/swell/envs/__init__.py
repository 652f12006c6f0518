"""Environments: Gymnasium, Atari and MinAtar behind one convention. Nothing here imports torch."""

from dataclasses import replace

from swell.envs.base import EnvSettings, EnvStep, ResumeTier, VectorEnv
from swell.envs.ids import EnvFamily, env_family, resolve_env_id

__all__ = [
    "EnvFamily",
    "EnvSettings",
    "EnvStep",
    "ResumeTier",
    "VectorEnv",
    "env_family",
    "make_envs",
    "resolve_env_id",
]


def make_envs(settings: EnvSettings) -> VectorEnv:
    """Builds a batch of envs; a wrong id or a missing extra raises ConfigError before anything is built."""
    settings = replace(settings, env=resolve_env_id(settings.env))
    family = env_family(settings.env)
    if family == "atari":
        from swell.envs.atari import AtariEnvs

        return AtariEnvs(settings)
    if family == "minatar":
        from swell.envs.minatar import MinAtarEnvs

        return MinAtarEnvs(settings)
    from swell.envs.gymnasium_envs import make_gymnasium_envs

    return make_gymnasium_envs(settings)
