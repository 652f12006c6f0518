"""Env ids: from what a user types to the id of a backend, or one line that says what is wrong."""

import difflib
import importlib
import re
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import product
from typing import Any, Literal

from swell.config.imports import HANDED_IN, HandedIn
from swell.config.runs import Backend
from swell.config.validation import is_import
from swell.errors import ConfigError

EnvFamily = Literal["atari", "minatar", "classic", "mujoco", "procgen", "other"]

# The single-player games in ale-py 0.12, among them the 57 that papers report.
ATARI_GAMES = tuple(
    """
    adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon bank_heist basic_math
    battle_zone beam_rider berzerk blackjack bowling boxing breakout carnival casino centipede chopper_command
    crazy_climber crossbow darkchambers defender demon_attack donkey_kong double_dunk earthworld elevator_action enduro
    entombed et fishing_derby flag_capture freeway frogger frostbite galaxian gopher gravitar hangman haunted_house hero
    human_cannonball ice_hockey jamesbond journey_escape kaboom kangaroo keystone_kapers king_kong klax koolaid krull
    kung_fu_master laser_gates lost_luggage mario_bros miniature_golf montezuma_revenge mr_do ms_pacman name_this_game
    othello pacman phoenix pitfall pitfall2 pong pooyan private_eye qbert riverraid road_runner robotank seaquest
    sir_lancelot skiing solaris space_invaders space_war star_gunner superman surround tennis tetris tic_tac_toe_3d
    time_pilot trondead turmoil tutankham up_n_down venture video_checkers video_chess video_cube video_pinball
    wizard_of_wor word_zapper yars_revenge zaxxon
    """.split()  # noqa: SIM905 - a hundred quoted names would be harder to read
)
MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
CLASSIC_NAMES = ("CartPole", "Acrobot", "MountainCar", "MountainCarContinuous", "Pendulum")
MUJOCO_NAMES = tuple(
    """
    Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum Pusher Reacher Swimmer
    Walker2d
    """.split()  # noqa: SIM905
)
PROCGEN_GAMES = tuple(
    """
    bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot heist jumper leaper maze miner ninja plunder
    starpilot
    """.split()  # noqa: SIM905
)
PROCGEN_MODES = ("hard", "easy")
"""The first is the one that a name without a mode stands for."""

SHIPPED_FAMILIES: dict[str, EnvFamily] = {"ALE/": "atari", "MinAtar/": "minatar", "Procgen/": "procgen"}
ENVPOOL_FAMILIES: tuple[EnvFamily, ...] = ("atari", "mujoco", "procgen")
COMPILED_IDS = tuple(
    "Acrobot-v1 CartPole-v0 CartPole-v1 MountainCar-v0 MountainCarContinuous-v0 Pendulum-v1".split()  # noqa: SIM905
)

# The package that a family needs and the extra of ours that brings it.
EXTRAS: dict[EnvFamily, tuple[str, str]] = {
    "atari": ("ale_py", "atari"),
    "minatar": ("minatar", "minatar"),
    "mujoco": ("mujoco", "mujoco"),
    "procgen": ("envpool", "procgen"),
}

# Gymnasium's own families that need a package which Gymnasium itself does not install: (package, requirement).
GYMNASIUM_EXTRAS = {
    "box2d": ("Box2D", "swell-rl[box2d]"),
    "phys2d": ("jax", "gymnasium[jax]"),
    "tabular": ("jax", "gymnasium[jax]"),
}


def env_family(env_id: str) -> EnvFamily:
    """Which family an id belongs to, by its name alone: quick, and true even where the extra is missing."""
    known_id = _shipped_id(env_id) or env_id
    for start, family in SHIPPED_FAMILIES.items():
        if known_id.startswith(start):
            return family
    name = _squashed(_without_version(known_id))
    if name in map(_squashed, MUJOCO_NAMES):
        return "mujoco"
    return "classic" if name in map(_squashed, CLASSIC_NAMES) else "other"


def resolve_env_id(env_id: str, backend: Backend = "auto") -> str:
    """The full id for what a user typed: `pong` -> `ALE/Pong-v5`, `minatar/breakout` -> `MinAtar/Breakout-v1`.

    Raises ConfigError, in one line, if there is no such env, if the backend does not have it, or if a package that it
    needs is not installed.
    """
    if env_id.startswith(HANDED_IN):
        return _handed_in(env_id)
    full_id = _shipped_id(env_id) or _registered_id(env_id)
    family = env_family(full_id)
    if is_compiled(full_id, backend):
        _require("numba", f"backend compiled for {full_id}", "the fast extra", "swell-rl[fast]")
    in_envpool = uses_envpool(full_id, backend)
    package, extra = ("envpool", "envpool") if in_envpool and family != "procgen" else EXTRAS.get(family, ("", ""))
    if package:
        _require(package, full_id, f"the {extra} extra", f"swell-rl[{extra}]")
    return full_id


def uses_envpool(env_id: str, backend: Backend) -> bool:
    """Whether EnvPool is to run this env; ConfigError if the backend that was asked for does not have it."""
    family = env_family(env_id)
    if backend == "envpool" and family not in ENVPOOL_FAMILIES:
        raise ConfigError(
            f"backend must be gymnasium or auto for {env_id}: envpool runs Atari, MuJoCo and Procgen here"
        )
    if backend == "gymnasium" and family == "procgen":
        raise ConfigError(f"backend must be envpool or auto for {env_id}: Procgen has no other")
    return backend == "envpool" or family == "procgen"


def is_compiled(env_id: str, backend: Backend) -> bool:
    """Whether our own compiled env is to run; ConfigError if it was asked for and there is none of this id."""
    if backend == "compiled" and env_id not in COMPILED_IDS:
        other = "envpool" if env_family(env_id) == "procgen" else "gymnasium"
        raise ConfigError(f"backend must be {other} or auto for {env_id}: compiled has {', '.join(COMPILED_IDS)}")
    return backend == "compiled"


def require_window(env_id: str) -> None:
    """ConfigError for envs that only a file can show."""
    if env_family(env_id) in ("atari", "minatar", "procgen"):
        raise ConfigError(f"{env_id} has no window of its own; --video draws it into a file")


def atari_id(game: str) -> str:
    """The id of a ROM: `ms_pacman` -> `ALE/MsPacman-v5`."""
    return f"ALE/{_title(game)}-v5"


def atari_game(env_id: str) -> str:
    """The name of the ROM: `ALE/MsPacman-v5` -> `ms_pacman`."""
    return {atari_id(game): game for game in ATARI_GAMES}[env_id]


def minatar_id(game: str) -> str:
    """The id of a game: `space_invaders` -> `MinAtar/SpaceInvaders-v1`."""
    return f"MinAtar/{_title(game)}-v1"


def minatar_game(env_id: str) -> str:
    """The name of the game's module: `MinAtar/SpaceInvaders-v1` -> `space_invaders`."""
    return {f"MinAtar/{_title(game)}": game for game in MINATAR_GAMES}[_without_version(env_id)]


def procgen_id(game: str, mode: str = PROCGEN_MODES[0]) -> str:
    """The id of a game and its distribution of levels: `coinrun` -> `Procgen/CoinrunHard-v0`."""
    return f"Procgen/{game.title()}{mode.title()}-v0"


def _title(game: str) -> str:
    return game.title().replace("_", "")


def _squashed(name: str) -> str:
    return re.sub(r"[^a-z0-9/]", "", name.lower())


def _without_version(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


def _shipped_id(env_id: str) -> str | None:
    """The id of an Atari, MinAtar or Procgen game, if this names one."""
    name, _, version = env_id.lower().partition("-v")
    name = _squashed(name)
    for game in MINATAR_GAMES:
        if name == "minatar/" + _squashed(_title(game)) and version in ("", "0", "1"):
            return f"MinAtar/{_title(game)}-v{version or 1}"
    for game in ATARI_GAMES:
        if name.removeprefix("ale/") == _squashed(_title(game)) and version in ("", "5"):
            return atari_id(game)
    return _procgen_id_named(name, version) if version in ("", "0") else None


def _procgen_id_named(name: str, version: str) -> str | None:
    """`maze` is Procgen's, `Maze-v0` could be anybody's: with a version, a prefix or a mode has to say so."""
    for game, mode in product(PROCGEN_GAMES, PROCGEN_MODES):
        names = {f"procgen/{game}{mode}", f"{game}{mode}"}
        if mode == PROCGEN_MODES[0]:
            names |= {f"procgen/{game}"} if version else {f"procgen/{game}", game}
        if name in names:
            return procgen_id(game, mode)
    return None


def _handed_in(name: str) -> str:
    if not isinstance(name, HandedIn):
        given = name.removeprefix(HANDED_IN)
        raise ConfigError(
            f"its env is made by {given!r}, which was handed in as an object and is in no module: hand it in again, "
            f"in Python: swell.resume(directory, {given if given.isidentifier() else 'make_env'})"
        )
    return name


def _registered_id(env_id: str) -> str:
    """The id in Gymnasium's registry, which is read only here because importing it takes a third of a second."""
    import gymnasium

    names_a_module = ":" in env_id
    if names_a_module:
        _import_registering_module(env_id)
    # ale-py and MinAtar register raw envs, some under old names, which our backends would not preprocess
    raw = ("ale_py", "minatar")
    specs = {spec_id: spec for spec_id, spec in gymnasium.registry.items() if not str(spec.entry_point).startswith(raw)}
    name = env_id.rpartition(":")[2]
    if is_import(env_id) and name not in specs and hasattr(sys.modules[env_id.partition(":")[0]], name):
        return env_id  # a function or a class of the user's own
    spec = _find_spec_in(specs, name)
    if spec is None:
        suggestions = _suggestions(env_id, specs) + _names_like(env_id)
        hint = f"; did you mean {', '.join(suggestions)}?" if suggestions else ""
        raise ConfigError(f"unknown env {env_id!r}{hint}")
    _require_gymnasium_extra(spec)
    return env_id if names_a_module else spec.id


def _find_spec_in(specs: dict[str, Any], env_id: str) -> Any | None:
    """The spec with this id; a name without a version stands for its newest version."""
    if env_id in specs:
        return specs[env_id]
    versions = [spec for spec in specs.values() if _squashed(_without_version(spec.id)) == _squashed(env_id)]
    return max(versions, key=lambda spec: spec.version or 0, default=None)


def _import_registering_module(env_id: str) -> None:
    module = env_id.partition(":")[0]
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"env {env_id!r}: {module!r} is no name of a module, as in my_module:MyEnv-v0")
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"env {env_id!r}: cannot import module {module!r}: {error}") from error


def _suggestions(env_id: str, registered: Iterable[str]) -> list[str]:
    """Up to five ids whose names look like this one; versions, case and the old `NoFrameskip` do not count."""
    ids = [*registered, *map(atari_id, ATARI_GAMES), *map(procgen_id, PROCGEN_GAMES)]
    ids += map(minatar_id, MINATAR_GAMES)
    by_name: dict[str, str] = {}
    for known_id in sorted(ids, key=lambda known_id: "/" in known_id):  # plain ids before those of a namespace
        by_name.setdefault(_bare_name(known_id), known_id)
        by_name[_squashed(_without_version(known_id))] = known_id
    matches = difflib.get_close_matches(_bare_name(env_id), by_name, n=8, cutoff=0.6)
    matches += difflib.get_close_matches(_squashed(_without_version(env_id)), by_name, n=8, cutoff=0.6)
    return list(dict.fromkeys(by_name[name] for name in matches))[:5]


def _names_like(env_id: str) -> list[str]:
    """Functions and classes of a module whose names are near the one that was asked for."""
    module, _, name = env_id.partition(":")
    known = [known for known, value in vars(sys.modules.get(module, sys)).items() if callable(value)] if name else []
    return [f"{module}:{near}" for near in difflib.get_close_matches(name, known, n=2, cutoff=0.6)]


def _bare_name(env_id: str) -> str:
    name = _squashed(_without_version(env_id.rpartition(":")[2])).rpartition("/")[2]
    return name.removesuffix("noframeskip")


def _require_gymnasium_extra(spec: Any) -> None:
    entry_point = spec.entry_point if isinstance(spec.entry_point, str) else ""
    match = re.match(r"gymnasium\.envs\.(\w+)", entry_point)
    if match and match[1] in GYMNASIUM_EXTRAS:
        package, requirement = GYMNASIUM_EXTRAS[match[1]]
        _require(package, spec.id, package, requirement)


def _require(package: str, env_id: str, need: str, requirement: str) -> None:
    if find_spec(package) is None:
        raise ConfigError(f'{env_id} needs {need}: pip install "{requirement}"')
