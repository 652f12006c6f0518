"""Several processes of this machine for one run, through torchrun's launcher; and what each of them does.

`python -m swell.runs.launch REQUEST` is one of them: a line of JSON says which run to begin or to continue.
"""

import json
import logging
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

from swell import ranks
from swell.config.imports import find_own_modules
from swell.config.run_config import RunConfig, config_from_dict
from swell.errors import ConfigError, LostProcessError, OtherProcessError, SwellError, is_said_elsewhere
from swell.runs.first_checks import directory_of, resolve
from swell.runs.interrupt import InterruptedRunError
from swell.runs.run_directory import create_run_directory, next_free, typed
from swell.runs.sealed import read_summary
from swell.runs.start import begin_or_continue, resume

RESTARTS = 3
"""How often processes are started again after one of them died."""
FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Where it is 1, processes that torchrun starts again meet in a new store. In the old one they find the addresses of
the dead, and five times of six never meet (torch 2.13)."""


def require_possible(processes: int, new: bool) -> None:
    """A ConfigError where what was asked for does not go together with who started this process."""
    if processes < 1:
        raise ConfigError(f"processes must be at least 1, got {processes}")
    if not ranks.is_launched():
        return
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        raise ConfigError(f"processes is for starting them, and torchrun has started {count} already; leave it out")
    if new:
        raise ConfigError("new would begin another run each time that torchrun starts again; name one with --out")
    if os.environ.get(FRESH_STORE) != "1" and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        print(
            f"swell: set {FRESH_STORE}=1: without it torchrun seldom starts again (docs/processes.md)", file=sys.stderr
        )


def train_in_processes(config: RunConfig, out: Path | None, new: bool, quiet: bool, processes: int) -> dict[str, Any]:
    config = resolve(config)
    directory = directory_of(config, out)
    directory = next_free(directory) if new else directory
    require_divisible(config.num_envs, processes)
    create_run_directory(directory)
    try:
        run_processes({"config": config.to_dict(), "directory": str(directory), "quiet": quiet}, processes)
    finally:
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
    return summary_of(directory)


def resume_in_processes(
    directory: Path, steps: int | None, quiet: bool, processes: int, trust: bool = False
) -> dict[str, Any]:
    run_processes({"directory": str(directory), "steps": steps, "quiet": quiet, "trust": trust}, processes)
    return summary_of(directory)


def require_divisible(num_envs: int, processes: int) -> None:
    if num_envs % processes:
        raise ConfigError(f"num_envs must be divisible by the {processes} processes, got {num_envs}")


def summary_of(directory: Path) -> dict[str, Any]:
    return {**read_summary(directory), "directory": str(directory)}


def run_processes(request: dict[str, Any], processes: int) -> None:
    """Starts them, and again if one dies; they continue from the newest checkpoint."""
    for attempt in range(RESTARTS + 1):
        codes = exit_codes(request, processes)
        if not codes:
            return
        # Once one has failed and said why, the launcher kills whoever has not ended yet.
        if failed := [code for code in codes if code > 0 and code != LostProcessError.exit_code]:
            raise OtherProcessError(min(failed))
        if attempt < RESTARTS:
            print(f"swell: a process died; all {processes} start again from the newest checkpoint", file=sys.stderr)
    raise LostProcessError(
        f"a process of the run died {RESTARTS + 1} times; `swell resume` goes on from its checkpoint"
    )


def exit_codes(request: dict[str, Any], processes: int) -> list[int]:
    """Of the processes that failed, minus the signal for those that were killed; none if all went well."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # the processes say themselves what is wrong
    os.environ[FRESH_STORE] = "1"
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,  # a new launcher each time: it has to tell a death from a run that failed
    )
    try:
        elastic_launch(config, sys.executable)("-P", "-m", "swell.runs.launch", json.dumps(request))
    except ChildFailedError as error:
        return [failure.exitcode for failure in error.failures.values()]
    except SignalException as error:
        directory = request["directory"]
        message = f"stopped by {signal.Signals(error.sigval).name}; go on with {typed('swell resume', directory)}"
        raise InterruptedRunError(message, error.sigval) from error
    return []


def main() -> None:
    """One of the processes."""
    find_own_modules()
    request = json.loads(sys.argv[1])
    directory, quiet = request["directory"], request["quiet"]
    try:
        with ranks.join():
            if "config" in request:
                begin_or_continue(config_from_dict(request["config"]), directory, quiet=quiet)
            else:
                resume(directory, total_env_steps=request["steps"], quiet=quiet, trust=request["trust"])
    except SwellError as error:
        if not is_said_elsewhere(error):
            print(*(f"swell: {line}" for line in str(error).splitlines()), sep="\n", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
