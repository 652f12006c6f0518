"""Starting a run and resuming one: from a RunConfig or a run directory to the summary at its end."""

import contextlib
import platform
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from swell import ranks
from swell.batch.scalers import Points
from swell.config.imports import HANDED_IN, HandedIn
from swell.config.learners import ComputePath
from swell.config.run_config import RunConfig, changed
from swell.display.console import patient_console, say, warn
from swell.display.starting import show_starting
from swell.display.trackers import require_trackers
from swell.errors import ConfigError, DivergedError
from swell.kernels.factory import can_compile
from swell.memory.plan import MemoryPlan
from swell.presets import make_config
from swell.runs.agent import with_maker
from swell.runs.build import BuiltRun, build
from swell.runs.changes import changed_in_the_middle, changes_at
from swell.runs.checkpoint import Report, load_newest
from swell.runs.compiling import compile_kernels, path_for
from swell.runs.description import stored_config
from swell.runs.driver import Run
from swell.runs.endings import told_out_of_memory
from swell.runs.first_checks import directory_of, resolve
from swell.runs.introduction import resume_promise
from swell.runs.process_state import dealt
from swell.runs.run_directory import (
    RunLock,
    create_run_directory,
    next_free,
    set_aside,
)
from swell.runs.sealed import DamagedError, read_summary, write_sealed
from swell.runs.spaces import stored_spaces
from swell.runs.state_check import misfits_refused
from swell.runs.stored_run import sound_description, stored_plan
from swell.runs.trust import CODE_OPTIONS, named_by_directory, require_trusted
from swell.runs.watchdog import Watchdog
from swell.runs.weights import take_weights
from swell.types import most_rows

SIZES = "num_envs, hidden, horizon or max_horizon"
"""What a run is as large as."""
NAMED = ("device", "processes", "threads", "path", "machine")
"""What of a description is named where it has changed."""
VERSIONED = (
    *("swell-rl", "torch", "numpy", "scipy", "numba"),
    *("gymnasium", "ale-py", "minatar", "mujoco", "envpool"),
)


Found = tuple[int, dict[str, Any]]
"""Env steps and state of a checkpoint."""
MakeEnv = Callable[..., Any]
"""A function or a class that makes an env; `env_kwargs` are its arguments."""


def run(
    config: RunConfig | str | MakeEnv,
    out: str | Path | None = None,
    *,
    new: bool = False,
    quiet: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    """Trains as `config` says, in a new run directory, and returns the summary.

    The id of an env, or a function or a class that makes one, stands for the preset that fits it; `fields` change
    single options of either. `out` defaults to `runs/<env>-<algorithm>-<scaler>-s<seed>`. A directory that holds a run
    is refused, unless `new` asks for the next free name.
    """
    if out is not None and not hasattr(out, "__fspath__") and type(out) is not str:
        raise ConfigError(f"out must be a path, got {out!r}; options go by name, such as total_env_steps=100_000")
    config = changed(config, **fields) if isinstance(config, RunConfig) else make_config(config, **fields)
    config = resolve(config)
    directory = directory_of(config, out)
    directory = next_free(directory) if new else directory
    return begin(config, directory, quiet)


def begin_or_continue(config: RunConfig, out: str | Path | None = None, *, quiet: bool = False) -> dict[str, Any]:
    """As `run`, but a directory that holds this run goes on: a launcher starts the same command again after a death.

    A run that is done is returned as it is, and one that diverged would only diverge again.
    """
    config = ranks.together(lambda: resolve(config))
    directory = directory_of(config, out)
    if ranks.first_does(lambda: holds_run(directory, config)):
        return resume(directory, quiet=quiet, trust=True)  # it names what was asked for just now
    return begin(config, directory, quiet)


def holds_run(directory: Path, config: RunConfig) -> bool:
    """Whether this very run was begun there; another one, or one that diverged, is refused."""
    if not (directory / "config.json").exists():
        with contextlib.suppress(FileNotFoundError):  # left by a process that was killed while it wrote config.json
            (directory / ".config.json.tmp").unlink()
        return False
    begun = stored_config(sound_description(directory, "env", warn), directory).to_dict()
    others = [name for name, value in config.to_dict().items() if begun[name] != value]
    if others:
        raise ConfigError(f"{directory} holds a run with another {', '.join(others)}; name another one with --out")
    if sound_summary(directory, warn).get("status") == "diverged":
        raise DivergedError(f"the run in {directory} has diverged; lower learning_rate")
    return True


def begin(config: RunConfig, directory: Path, quiet: bool) -> dict[str, Any]:
    quiet = quiet or not ranks.is_first()
    require_trackers(config.track)
    path, line = ranks.first_does(lambda: path_for(config))  # it may refuse the device
    ranks.first_does(lambda: create_run_directory(directory))
    try:
        with show_starting(f"starting {config.num_envs} envs of {config.env}", quiet), Watchdog(config.env_timeout):
            if line is not None and not quiet:
                say(line, patient_console())
            if line is not None and path != "autograd":
                ranks.together(lambda: compile_kernels() if ranks.place().local_rank == 0 else None)
            with told_out_of_memory(SIZES):
                parts = build(replace(config, path=path))
            if config.weights_from is not None:
                take_weights(parts.learner, config.weights_from)
            described = ranks.together(lambda: describe_run(config, parts))
    except BaseException:
        if ranks.is_first():
            with contextlib.suppress(OSError):  # whatever else is wrong with it must not hide the reason
                directory.rmdir()
        raise
    with locked(directory):
        ranks.first_does(lambda: write_sealed(directory / "config.json", described))
        if isinstance(config.env, HandedIn) and not quiet:
            name = config.env.removeprefix(HANDED_IN)
            line = f"{name} is in no module: only `swell.resume({str(directory)!r}, {name})` resumes this run"
            say(line, patient_console())
        return Run(config, directory, parts, quiet, described).drive()


@contextlib.contextmanager
def locked(directory: Path) -> Generator[None]:
    """By the first process of the run, for all of them."""
    with contextlib.ExitStack() as held:
        ranks.together(lambda: held.enter_context(RunLock(directory)) if ranks.is_first() else None)
        yield


def resume(
    directory: str | Path,
    make_env: MakeEnv | None = None,
    *,
    total_env_steps: int | None = None,
    quiet: bool = False,
    trust: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    """Continues the run in `directory` from its newest good checkpoint; a finished run is returned as it is.

    `make_env` is what made its envs, where that was handed in as an object that no module has. `total_env_steps` is a
    new total, whatever target the run had; it may be less than before, but not than what is done. `fields` change
    options that can be changed in the middle (`CHANGEABLE`). What was changed, and when, is recorded in config.json.
    `trust` imports whatever the directory names; without it, only classes of installed packages.
    """
    directory, quiet = Path(directory), quiet or not ranks.is_first()
    described = ranks.first_does(lambda: sound_description(directory, "env", warn, restore=True))
    stored = with_maker(stored_config(described, directory), make_env)
    require_trusted(stored, directory, trust, named_by_directory(CODE_OPTIONS, make_env))
    config = changed_in_the_middle(stored, fields)
    ranks.first_does(lambda: ranks.own_share(config.num_envs, "num_envs"))
    summary = ranks.first_does(lambda: sound_summary(directory, warn))
    if total_env_steps is not None:
        config = replace(config, total_env_steps=total_env_steps, target_return=None)
    # The summary may be that of a shorter run, which was to go on for longer and was killed.
    is_whole = summary.get("env_steps", 0) >= config.total_env_steps or config.target_return is not None
    as_asked = total_env_steps in (None, described["config"]["total_env_steps"])
    if summary.get("status") == "done" and is_whole and as_asked:
        if fields:
            raise ConfigError(f"{directory} is done: to change {', '.join(fields)}, also give it more steps")
        return {**summary, "directory": str(directory)}
    with locked(directory):
        notices: list[str] = []
        found = ranks.together(lambda: newest_state(directory))
        state = found[1] if found else None
        done, points = ranks.first_does(lambda: place_of(found, directory))
        if not as_asked and config.total_env_steps < done:
            raise ConfigError(f"steps must be at least the {done} that are done, got {config.total_env_steps}")
        # Another number of threads, or another path, changes bits.
        pinned = replace(config, threads=described["threads"], path=same_path(described))
        decided = stored_plan(described, config, directory)
        if decided is not None and is_too_short(decided, described["config"]["total_env_steps"], config):
            decided = None
        starting = f"restoring {config.num_envs} envs of {config.env}"
        with show_starting(starting, quiet), Watchdog(config.env_timeout), told_out_of_memory(SIZES):
            parts = build(pinned, points, decided)
            now = describe_run(config, parts)
        changes = changes_at(done, stored, config)
        told = {"started": described.get("started", described["versions"])}
        told["changes"] = [*described.get("changes", []), *changes]
        notices += differences(described, now)
        if config.staleness and described.get("processes", 1) != now["processes"]:
            notices.append("the rollouts that waited to be trained on are lost with the processes that had them")
        ranks.first_does(lambda: write_sealed(directory / "config.json", {**now, **told}))
        with misfits_refused(directory, done):
            continued = Run(pinned, directory, parts, quiet, {**now, **told}, state["logs"] if state else None)
            continued.restore(dealt(state), notices)
        return continued.drive()


def is_too_short(plan: MemoryPlan, planned_env_steps: int, config: RunConfig) -> bool:
    """Whether a run that goes on for longer may collect longer rollouts than there could be when memory was planned."""
    planned, now = (most_rows(steps, config.num_envs) for steps in (planned_env_steps, config.total_env_steps))
    return min(plan.longest_horizon, now) > planned


def sound_summary(directory: Path, report: Report) -> dict[str, Any]:
    """The summary of a run; one that is damaged is set aside, since the checkpoints know better."""
    try:
        return read_summary(directory)
    except DamagedError as error:
        report(f"{error}; moved to {set_aside(directory / 'summary.json').name}, the run goes on without it")
        return {}


def newest_state(directory: Path) -> Found | None:
    """In the first process; the others are told."""
    return load_newest(directory / "checkpoints", warn) if ranks.is_first() else None


def place_of(found: Found | None, directory: Path) -> tuple[int, Points | None]:
    """How many env steps are done, and the points of a ramp, as a checkpoint has them."""
    if found is None:
        return 0, None
    env_steps, state = found
    with misfits_refused(directory, env_steps):
        if state["collector"]["env_steps"] != env_steps:
            raise ValueError(f"it says env step {state['collector']['env_steps']!r:.40}")
        points = state["scaler"].get("points")
        return env_steps, points and [(float(progress), float(horizon)) for progress, horizon in points]


def same_path(described: dict[str, Any]) -> ComputePath:
    """The path that a run was on, if this machine has it; runs of earlier versions had none of today's."""
    path = described.get("path", "auto")
    return "auto" if path == "compiled" and not can_compile() else path


def describe_run(config: RunConfig, parts: BuiltRun) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "config": config.to_dict(),
        "device": str(parts.device),
        "processes": ranks.place().count,
        "threads": parts.threads * ranks.place().local_count,
        "network": parts.network_name,
        "path": parts.path,
        "memory": asdict(parts.memory_plan),
        "spaces": stored_spaces(parts.collector.envs),
        "resume": resume_promise(parts),
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), **installed_versions()},
    }


def installed_versions(names: Sequence[str] = VERSIONED) -> dict[str, str]:
    """Asked one by one: reading what all packages say of themselves takes half a second."""
    found: dict[str, str] = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One line for each change of the ground under a run that may change its numbers."""
    pairs = [(name, before[name], now[name]) for name in NAMED if name in before]
    pairs += [(name, version, now["versions"].get(name)) for name, version in before["versions"].items()]
    changed = [(name, old, new) for name, old, new in pairs if old != new]
    return [f"{name} was {old} and is {new}: the run continues, but not bit for bit" for name, old, new in changed]
