"""Suites: names for sets of envs that are compared together."""

from collections.abc import Sequence

from swell.envs.ids import MINATAR_GAMES, PROCGEN_GAMES, minatar_id, procgen_id, resolve_env_id
from swell.errors import ConfigError
from swell.report.reference_scores import ATARI_RANDOM_AND_HUMAN, REGRESSION_WEIGHTS

SUITES: dict[str, tuple[str, ...]] = {
    "atari57": tuple(f"ALE/{game}-v5" for game in ATARI_RANDOM_AND_HUMAN),
    "atari10": tuple(f"ALE/{game}-v5" for game in REGRESSION_WEIGHTS["atari10"]),
    "atari5": tuple(f"ALE/{game}-v5" for game in REGRESSION_WEIGHTS["atari5"]),
    "minatar": tuple(map(minatar_id, MINATAR_GAMES)),
    "classic": ("CartPole-v1", "Acrobot-v1", "LunarLander-v3"),
    "mujoco": ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Humanoid-v5"),
    "procgen": tuple(map(procgen_id, PROCGEN_GAMES)),
}


def resolve_envs(names: Sequence[str]) -> list[str]:
    """The env ids that a list of suites and ids stands for, each once; every fault is named, not only the first."""
    found: dict[str, None] = {}
    faults: list[str] = []
    for name in names:
        for env in SUITES.get(name, (name,)):
            try:
                found[resolve_env_id(env)] = None
            except ConfigError as error:
                hint = "" if "needs" in str(error) else f" (suites: {', '.join(SUITES)})"
                faults.append(f"{error}{hint}")
    if faults:
        raise ConfigError(*dict.fromkeys(faults))
    if not found:
        raise ConfigError(f"name a suite ({', '.join(SUITES)}) or env ids, for example `swell bench classic`")
    return list(found)
