"""Chooses how the envs of a Gymnasium id are run together."""

from swell.envs.contract import EnvSettings, VectorEnv
from swell.envs.entry_point import EntryPointEnvs, has_entry_point
from swell.envs.looped import LoopedEnvs


def make_gymnasium_envs(settings: EnvSettings) -> VectorEnv:
    """In worker processes if asked for; else the env's own vectorised version; else one after the other."""
    if settings.asynchronous:
        from swell.envs.workers import WorkerEnvs

        return WorkerEnvs(settings)
    if has_entry_point(settings):
        return EntryPointEnvs(settings)
    return LoopedEnvs(settings)
