"""What a run reports: what a sink is, what rows add up to, and TensorBoard's curves."""

import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from swell.errors import ConfigError

Row = Mapping[str, object]
"""One line of metrics.jsonl or evaluations.jsonl. A metric that was not measured is absent."""

PHASES = ("act", "env", "update", "measure")
"""Where an iteration's seconds go, in the order in which it passes through them."""

SPARKS = "▁▂▃▄▅▆▇█"


class Sink(Protocol):
    """Someone who wants to hear how the run goes. It only listens: no sink may change or stop a run."""

    def write(self, row: Row) -> None:
        """One finished iteration."""
        ...

    def evaluation(self, row: Row) -> None:
        """One finished evaluation."""
        ...

    def message(self, text: str) -> None:
        """A notice of one line, such as a checkpoint written."""
        ...

    def close(self) -> None:
        """The run is over, well or badly. Calling it twice does no harm."""
        ...


def tensorboard_available() -> bool:
    """Whether the tensorboard extra is installed; answers without importing it."""
    return find_spec("tensorboard") is not None


class TensorBoardSink:
    """Writes every number of every row as a curve over env steps.

    After a resume, `purge_step` hides what an interrupted run logged from there on: it is the checkpoint's env steps
    plus one, because the point at the checkpoint itself is still true. `say` hears once that there are no more to come.
    """

    def __init__(self, directory: Path, say: Callable[[str], None], purge_step: int | None = None) -> None:
        if not tensorboard_available():
            raise ConfigError('TensorBoard is not installed: pip install "swell-rl[tensorboard]"')
        from torch.utils.tensorboard.writer import SummaryWriter  # here, because the import takes a second

        self._works, self._say = True, say
        self._hook_before = threading.excepthook
        threading.excepthook = self._thread_failed
        with self._silenced_on_failure():
            self._writer = SummaryWriter(str(directory), purge_step=purge_step)

    def write(self, row: Row) -> None:
        for name in row:
            self._add(chart_name(name), row, name)

    def evaluation(self, row: Row) -> None:
        for name in row:
            self._add(f"evaluation/{name}", row, name)

    def message(self, text: str) -> None:
        """Notices are not curves."""

    def close(self) -> None:
        with self._silenced_on_failure():
            if self._works:
                self._writer.close()
        if threading.excepthook == self._thread_failed:
            threading.excepthook = self._hook_before

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """The failure of TensorBoard's own thread is raised by the next call too: one line will do."""
        if not (type(failure.thread).__module__.startswith("tensorboard") and isinstance(failure.exc_value, OSError)):
            self._hook_before(failure)

    def _add(self, tag: str, row: Row, name: str) -> None:
        value, env_steps = number(row, name), finite(row, "env_steps")
        if self._works and value is not None and env_steps is not None and name != "env_steps":
            with self._silenced_on_failure():
                self._writer.add_scalar(tag, value, int(env_steps))  # pyright: ignore[reportUnknownMemberType]

    @contextmanager
    def _silenced_on_failure(self) -> Generator[None]:
        """A full disk or a deleted folder costs the curves, not the run: metrics.jsonl is the truth."""
        try:
            yield
        except OSError as error:
            if self._works:
                self._say(f"TensorBoard stops here: {error}")
            self._works = False


_CHART_GROUPS = {
    **dict.fromkeys(("episode_return", "episode_length", "episodes"), "episode"),
    **dict.fromkeys(("horizon", "next_horizon", "batch_size", "minibatch_size", "minibatches", "epochs"), "batch"),
    "reading": "batch",
    **dict.fromkeys(("iteration", "gradient_steps", "steps_per_second", "wall_seconds"), "time"),
    **{f"seconds_{phase}": "time" for phase in PHASES},
}


def chart_name(name: str) -> str:
    """A metric of an iteration as charts call it, with its group."""
    return f"{_CHART_GROUPS.get(name, 'learning')}/{name}"


def number(row: Row, name: str) -> float | None:
    """The metric as a float, which may be NaN; None when it is absent or not a number."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else None


def finite(row: Row, name: str) -> float | None:
    """The metric when one can count with it, otherwise None."""
    value = number(row, name)
    return value if value is not None and math.isfinite(value) else None


class History:
    """A series of any length in bounded memory: whenever it is full, neighbours are averaged in pairs."""

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._stride = 1
        self._means: list[float] = []
        self._waiting: list[float] = []

    def append(self, value: float | None) -> None:
        """Adds a value; what is unknown or not finite leaves no mark."""
        if value is None or not math.isfinite(value):
            return
        self._waiting.append(value)
        if len(self._waiting) == self._stride:
            self._means.append(_mean(self._waiting))
            self._waiting = []
        if len(self._means) == self._capacity:
            self._means = downsample(self._means, self._capacity // 2)
            self._stride *= 2

    def values(self) -> list[float]:
        """At most `capacity` means, oldest first; the newest values are in the last one."""
        return [*self._means, _mean(self._waiting)] if self._waiting else list(self._means)


def downsample(values: Sequence[float], width: int) -> list[float]:
    """At most `width` means of neighbouring values."""
    if width < 1:
        return []
    if len(values) <= width:
        return list(values)
    edges = [index * len(values) // width for index in range(width + 1)]
    return [_mean(values[start:end]) for start, end in pairwise(edges)]


def sparkline(values: Sequence[float], width: int, low: float | None = None, high: float | None = None) -> str:
    """The series as at most `width` blocks whose height runs from `low` (default: the least value) to `high`."""
    points = downsample([value for value in values if math.isfinite(value)], width)
    if not points:
        return ""
    floor = min(points) if low is None else low
    span = (max(points) if high is None else high) - floor
    if not 0 < span < math.inf:
        return SPARKS[3] * len(points)
    heights = (min(max((point - floor) / span, 0.0), 1.0) for point in points)
    return "".join(SPARKS[round(height * (len(SPARKS) - 1))] for height in heights)


class Progress:
    """How far a run is by its own clock, how fast it goes, and where its seconds went."""

    recent_seconds = 10.0
    clock = "env_steps"
    """The metric that counts up to the run's total."""
    phases = PHASES

    def __init__(self, total: int) -> None:
        self.total = total
        self.latest: dict[str, object] = {}
        self._marks: deque[tuple[float, float]] = deque()

    def fraction_done(self) -> float:
        """Done over asked for, in [0, 1]."""
        return min(max((finite(self.latest, self.clock) or 0.0) / max(self.total, 1), 0.0), 1.0)

    def steps_per_second(self) -> float | None:
        """The speed of the last ten seconds; before there are two rows, what the row itself says."""
        if len(self._marks) < 2:
            return finite(self.latest, "steps_per_second")
        (old_count, old_seconds), (new_count, new_seconds) = self._marks[0], self._marks[-1]
        return (new_count - old_count) / (new_seconds - old_seconds)

    def seconds_left(self) -> float | None:
        """How long the rest takes at the recent speed."""
        speed, done = self.steps_per_second(), finite(self.latest, self.clock)
        if not speed or speed < 0 or done is None:
            return None
        return max(self.total - done, 0.0) / speed

    def phase_shares(self) -> dict[str, float]:
        """The share of wall time by phase; what no phase claims (evaluation, checkpoints) is `other`."""
        seconds = {phase: max(finite(self.latest, f"seconds_{phase}") or 0.0, 0.0) for phase in self.phases}
        claimed = sum(seconds.values())
        wall = max(finite(self.latest, "wall_seconds") or 0.0, claimed)
        if not claimed:
            return {}
        return {phase: value / wall for phase, value in {**seconds, "other": wall - claimed}.items()}

    def mark(self, row: Row) -> None:
        """Notes when the clock showed what, for the speed."""
        count, wall_seconds = finite(row, self.clock), finite(row, "wall_seconds")
        if count is None or wall_seconds is None:
            return
        if self._marks and wall_seconds <= self._marks[-1][1]:
            return
        self._marks.append((count, wall_seconds))
        while len(self._marks) > 2 and wall_seconds - self._marks[1][1] >= self.recent_seconds:
            self._marks.popleft()


class RunSoFar(Progress):
    """What the rows seen until now add up to; the displays draw from it."""

    def __init__(self, total_env_steps: int) -> None:
        super().__init__(total_env_steps)
        self.last_evaluation: Row = {}
        self.last_reading: Row = {}
        self.returns = History()
        self.horizons = History()

    def add(self, row: Row) -> None:
        """Takes in one row. A metric that this row lacks keeps its last value."""
        # The last rollout is cut so that the run ends on time; what the scaler had planned tells the story.
        planned = finite(self.latest, "next_horizon") or finite(row, "horizon")
        self.latest.update(row, planned_horizon=planned)
        self.returns.append(finite(row, "episode_return"))
        self.horizons.append(planned)
        if number(row, "reading") is not None:
            self.last_reading = {**row, "planned_horizon": planned}
        self.mark(row)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
