"""Environments: Gymnasium, MuJoCo, Atari, MinAtar and Procgen behind one convention. Nothing here imports torch."""

from dataclasses import replace

from swell.envs.contract import Backend, EnvSettings, EnvStep, ResumeTier, VectorEnv
from swell.envs.ids import EnvFamily, env_family, resolve_env_id, uses_envpool

__all__ = [
    "Backend",
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
    settings = replace(settings, env=resolve_env_id(settings.env, settings.backend))
    if uses_envpool(settings.env, settings.backend):
        from swell.envs.envpool_envs import EnvPoolEnvs

        return EnvPoolEnvs(settings)
    family = env_family(settings.env)
    if family == "atari":
        from swell.envs.atari import AtariEnvs

        return AtariEnvs(settings)
    if family == "minatar":
        from swell.envs.minatar import MinAtarEnvs

        return MinAtarEnvs(settings)
    from swell.envs.gymnasium_envs import make_gymnasium_envs

    return make_gymnasium_envs(settings)
