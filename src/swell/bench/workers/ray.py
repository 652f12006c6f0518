"""Runs of a benchmark on the machines of a Ray cluster: one task a run, results in a directory that all of them see.

Ray retries nothing here: a task whose worker or node died is an ending like any other, and the queue lets another
task continue the run from its checkpoint. What a run raises comes back as the ending of its task, so Ray sees only
deaths as failures. When the driver dies, Ray ends its tasks, and the next start resumes their runs.
"""

import os
import secrets
import signal
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from swell import __version__
from swell.bench.plan import PlannedRun
from swell.bench.workers.process import IN_USE, Ending, attempt
from swell.config.run_config import RunConfig, config_from_dict
from swell.envs.ids import resolve_env_id
from swell.errors import ConfigError
from swell.runs.ray_cluster import connect, first_line, import_ray
from swell.runs.run_directory import storage_errors

TOKEN = ".benchmark"
"""A file in the benchmark's directory by which a node knows that it sees the same directory as the driver."""
CHECK_SECONDS = 300.0
"""How long a node may take to start its first worker and answer."""
RECOUNT_SECONDS = 5.0
"""Between two counts of the nodes that are there."""


class RayExecutor:
    """Carries out as many runs at a time as the cluster has room for, `cpus` and `gpus` for each.

    `address` is `auto`, `host:port` or `ray://host:port`; without one, Ray is started on this machine for as long as
    the benchmark lasts.
    """

    def __init__(self, root: Path, address: str | None = None, cpus: float = 1.0, gpus: float = 0.0) -> None:
        if cpus <= 0 or gpus < 0:
            raise ConfigError(f"cpus must be more than 0 and gpus at least 0, got {cpus} and {gpus}")
        self._root, self._cpus, self._gpus = root.resolve(), cpus, gpus
        self._ray = import_ray("util.scheduling_strategies")
        self._connected_here = connect(self._ray, address)
        self._task = _remote_function(self._ray, "run_here", num_cpus=cpus, num_gpus=gpus)
        self._pending: dict[Any, PlannedRun] = {}
        self._slots, self._counted_at = 0, -RECOUNT_SECONDS

    def prepare(self, runs: Sequence[PlannedRun]) -> None:
        """Asks every node with room for a run whether it could carry out these; ConfigError names those that cannot."""
        nodes = [node for node in self._ray.nodes() if node["Alive"] and self._room(node)]
        if not nodes:
            raise ConfigError(f"no node of the Ray cluster has {self._cpus:g} CPUs and {self._gpus:g} GPUs for a run")
        pairs = sorted({(run.env, run.config.backend) for run in runs})
        question = {**self._shared(), "envs": pairs}
        check = _remote_function(self._ray, "faults_here", num_cpus=0)
        at = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        answers = [check.options(scheduling_strategy=at(node["NodeID"], soft=False)).remote(question) for node in nodes]
        faults: dict[str, None] = {}
        for node, answer in zip(nodes, answers, strict=True):
            faults.update(dict.fromkeys(self._faults_of(node, answer)))
        if faults:
            raise ConfigError(*faults)

    @property
    def capacity(self) -> int:
        """By the nodes that are there now: some may have come or gone."""
        if time.monotonic() - self._counted_at >= RECOUNT_SECONDS:
            self._slots = sum(self._room(node) for node in self._ray.nodes() if node["Alive"])
            self._counted_at = time.monotonic()
        return self._slots - len(self._pending)

    def submit(self, run: PlannedRun, config: RunConfig) -> None:
        request = {
            **self._shared(),
            "directory": str(run.directory(self._root)),
            "log": str(run.log(self._root)),
            "config": config.to_dict(),
        }
        self._pending[self._task.remote(request)] = run

    def finished(self) -> list[tuple[PlannedRun, Ending]]:
        if not self._pending:
            return []
        ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        return [(self._pending.pop(task), self._ending(task)) for task in ready]

    def stop(self, only: PlannedRun | None = None) -> None:
        """Ray passes it on as Ctrl-C, after which a run saves and stops; a task that waits for room never begins."""
        for task, run in self._pending.items():
            if only is None or run.name == only.name:
                self._ray.cancel(task, recursive=False)

    def close(self) -> None:
        if self._connected_here and self._ray.is_initialized():
            self._ray.shutdown()

    def _shared(self) -> dict[str, Any]:
        return {"root": str(self._root), "token": _token(self._root), "version": __version__}

    def _room(self, node: dict[str, Any]) -> int:
        """How many runs fit on a node at a time."""
        resources: dict[str, float] = node["Resources"]
        by_cpu = int(resources.get("CPU", 0.0) / self._cpus)
        return min(by_cpu, int(resources.get("GPU", 0.0) / self._gpus)) if self._gpus else by_cpu

    def _faults_of(self, node: dict[str, Any], answer: Any) -> list[str]:
        try:
            return self._ray.get(answer, timeout=CHECK_SECONDS)
        except self._ray.exceptions.RayError as error:
            return [f"node {node['NodeName']} does not answer: {first_line(error)}"]

    def _ending(self, task: Any) -> Ending:
        exceptions = self._ray.exceptions
        try:
            return Ending(*self._ray.get(task))
        except exceptions.TaskCancelledError:
            return Ending(128 + signal.SIGINT, "stopped")
        except exceptions.RayTaskError as error:
            return Ending(1, first_line(error.cause if isinstance(error.cause, BaseException) else error))
        except exceptions.RayError as error:  # the worker, its node or Ray's own store is gone
            return Ending(-signal.SIGKILL, f"its Ray worker died ({type(error).__name__})")


def run_here(request: dict[str, Any]) -> tuple[int, str]:
    """In a Ray worker: the code and the message of an attempt at a run, whose output goes to the run's log."""
    config = config_from_dict(request["config"])
    faults = faults_here({**request, "envs": [(config.env, config.backend)]})
    if faults:
        return ConfigError.exit_code, faults[0]
    with _output_to(Path(request["log"])):
        ending = attempt(Path(request["directory"]), config)
        if ending.code not in (0, IN_USE):
            print(f"swell: {ending.message}", flush=True)
    return ending.code, ending.message


def faults_here(request: dict[str, Any]) -> list[str]:
    """Why this node cannot carry out runs of these envs, one line each; none if it can."""
    node = f"node {socket.gethostname()}"
    if request["version"] != __version__:
        return [f"{node} has Swell {__version__}, but the benchmark was started with {request['version']}"]
    path = Path(request["root"]) / TOKEN
    if not path.is_file() or path.read_text() != request["token"]:
        return [f"{node} does not see {request['root']}: put it on a disk that all nodes share under the same path"]
    faults: list[str] = []
    for env, backend in request["envs"]:
        try:
            resolve_env_id(env, backend)
        except ConfigError as error:
            faults.append(f"{node}: {error}")
    return faults


def _remote_function(ray: Any, name: str, **resources: float) -> Any:
    """A function of this module as a Ray task.

    What travels is the nested function, as a whole, so that a node without Swell can still say that it has none.
    """

    def task(request: dict[str, Any]) -> Any:
        import importlib
        import socket

        try:
            here = importlib.import_module("swell.bench.workers.ray")
        except ImportError as error:
            fault = f"node {socket.gethostname()} cannot import Swell: {error}"
            return [fault] if name == "faults_here" else (2, fault)
        return getattr(here, name)(request)

    # A process for each run, as on one machine: nothing that a run leaves behind can change the next one.
    return ray.remote(max_calls=1, max_retries=0, **resources)(task)


def _token(root: Path) -> str:
    path = root / TOKEN
    with storage_errors("write", path):
        root.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            prepared = root / f"{TOKEN}-{secrets.token_hex(4)}"
            prepared.write_text(secrets.token_hex(8))
            os.replace(prepared, path)
        return path.read_text()


@contextmanager
def _output_to(log: Path) -> Generator[None]:
    """Appends to a file what this process prints, whatever Ray has put in place of stdout, and what its children do."""
    log.parent.mkdir(parents=True, exist_ok=True)
    saved = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("a", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
            for number in saved:
                os.dup2(file.fileno(), number)
            yield
    finally:
        for number, descriptor in saved.items():
            os.dup2(descriptor, number)
            os.close(descriptor)
