"""Weights & Biases and trackio as sinks: they hear what TensorBoard hears, under the same names.

A tracker may lack its network, its account or its disk, and none of that is a reason to stop a run: the first failure
is told in one line, and the tracker hears no more. `metrics.jsonl` is the truth.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, Literal, Protocol

from swell.display.sinks import Row, chart_name, finite, number
from swell.errors import ConfigError

Tracker = Literal["tensorboard", "wandb", "trackio"]
TITLES: dict[Tracker, str] = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "trackio": "trackio"}
PROJECT = "swell"
"""What both call the group of runs, unless WANDB_PROJECT or TRACKIO_PROJECT says otherwise."""


class Service(Protocol):
    """A tracked run at one of them."""

    def log(self, values: Mapping[str, float], env_steps: int) -> None: ...

    def finish(self) -> None: ...


def require_trackers(trackers: Sequence[Tracker]) -> None:
    """A ConfigError with a line for each that is not installed."""
    missing: list[Tracker] = [name for name in trackers if find_spec(name) is None]
    if missing:
        raise ConfigError(
            *(f'track {name}: {TITLES[name]} is not installed: pip install "swell-rl[{name}]"' for name in missing)
        )


class TrackerSink:
    """Passes every number of every row on, over env steps, until the service fails."""

    def __init__(self, title: str, start: Callable[[], Service], say: Callable[[str], None]) -> None:
        self._title, self._say = title, say
        self._service: Service | None = None
        with self._told_failure():
            self._service = start()

    def write(self, row: Row) -> None:
        self._log(row, {name: chart_name(name) for name in row})

    def evaluation(self, row: Row) -> None:
        self._log(row, {name: f"evaluation/{name}" for name in row})

    def message(self, text: str) -> None:
        """Notices are not curves."""

    def close(self) -> None:
        with self._told_failure():
            if self._service is not None:
                self._service.finish()
        self._service = None

    def _log(self, row: Row, tags: Mapping[str, str]) -> None:
        env_steps = finite(row, "env_steps")
        values = {tags[name]: value for name in row if name != "env_steps" and (value := number(row, name)) is not None}
        with self._told_failure():
            if self._service is not None and env_steps is not None:
                self._service.log(values, int(env_steps))

    @contextmanager
    def _told_failure(self) -> Generator[None]:
        try:
            yield
        except Exception as error:  # the package of somebody else may raise anything, and the run goes on
            self._service = None
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            self._say(f"{self._title} stops here, the run goes on: {reason}")


class WandbRun:
    """A run of Weights & Biases; its own variables, such as WANDB_MODE=offline, decide where it goes.

    What an interrupted session logged past its checkpoint stays as it is: steps never go back there.
    """

    def __init__(self, directory: Path, identity: str, config: Mapping[str, Any]) -> None:
        wandb = import_module("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=identity,
            name=directory.name,
            dir=str(directory),
            config=dict(config),
            resume="allow",
            settings=wandb.Settings(silent=True, console="off", save_code=False),
        )

    def log(self, values: Mapping[str, float], env_steps: int) -> None:
        self._run.log(dict(values), step=env_steps)

    def finish(self) -> None:
        self._run.finish()


class TrackioRun:
    """A run of trackio, in its local database; TRACKIO_DIR says where that is. Its greetings are left out."""

    def __init__(self, directory: Path, identity: str, config: Mapping[str, Any]) -> None:
        self._trackio = import_module("trackio")
        with redirect_stdout(StringIO()):
            self._run = self._trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", PROJECT),
                name=f"{directory.name}-{identity}",
                config=dict(config),
                resume="allow",
                auto_log_cpu=False,
                auto_log_gpu=False,
            )

    def log(self, values: Mapping[str, float], env_steps: int) -> None:
        self._run.log(dict(values), step=env_steps)

    def finish(self) -> None:
        with redirect_stdout(StringIO()):
            self._trackio.finish()  # the package's own, or it would say goodbye once more when Python ends


SERVICES: dict[Tracker, Callable[[Path, str, Mapping[str, Any]], Service]] = {"wandb": WandbRun, "trackio": TrackioRun}


def open_trackers(
    trackers: Sequence[Tracker],
    directory: Path,
    identity: Callable[[], str],
    config: Mapping[str, Any],
    say: Callable[[str], None],
) -> list[TrackerSink]:
    """Those that are services; TensorBoard has a sink of its own. `identity` gives the name they know the run by."""

    def starter(make: Callable[[Path, str, Mapping[str, Any]], Service]) -> Callable[[], Service]:
        return lambda: make(directory, identity(), config)

    asked: list[Tracker] = [name for at, name in enumerate(trackers) if name in SERVICES and name not in trackers[:at]]
    return [TrackerSink(TITLES[name], starter(SERVICES[name]), say) for name in asked]
