"""What a moving batch consists of: how many completions next, of which prompts, and how much of the budget is left.

Plain Python: the trainer asks, and does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from swell.batch.controller import BatchController
from swell.config.seeds import derive_seed
from swell.errors import ConfigError

BatchRule = Literal["count", "size"]


class PromptStream:
    """The prompts of a dataset, epoch after epoch, each epoch in an order of its own; knows its place.

    Every process draws the same numbers, and a run that resumes goes on where it was.
    """

    def __init__(self, num_prompts: int, seed: int, shuffle: bool = True) -> None:
        self._num_prompts = num_prompts
        self._seed = seed
        self._shuffle = shuffle
        self.epoch = 0
        self._cursor = 0

    def take(self, count: int) -> list[int]:
        """The next `count` prompts; an epoch that ends within them is followed by the next."""
        taken: list[int] = []
        while len(taken) < count:
            part = self._order()[self._cursor : self._cursor + count - len(taken)]
            taken += part
            self._cursor += len(part)
            if self._cursor == self._num_prompts:
                self.epoch, self._cursor = self.epoch + 1, 0
        return taken

    def _order(self) -> Sequence[int]:
        if not self._shuffle:
            return range(self._num_prompts)
        generator = np.random.default_rng(derive_seed(self._seed, "prompts", self.epoch))
        return generator.permutation(self._num_prompts).tolist()

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "cursor": self._cursor}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self._cursor = int(state["epoch"]), int(state["cursor"])


@dataclass(frozen=True)
class Shape:
    """How generations are cut. A slice is what one backward pass takes, over all processes together."""

    slice_size: int
    """Completions."""
    num_generations: int
    """Completions of one prompt; a generation holds whole groups of them."""
    rule: BatchRule
    """`count`: so many updates per pass over a generation, of as many slices as it takes. `size`: updates of so many
    slices, as many as it takes."""
    updates_per_pass: int
    """Under `count`."""
    slices_per_update: int
    """Under `size`."""
    passes: int
    """Over each generation."""

    @property
    def quantum(self) -> int:
        """The fewest slices that make whole groups and whole updates."""
        groups = self.num_generations // math.gcd(self.slice_size, self.num_generations)
        return math.lcm(groups, self.updates_per_pass if self.rule == "count" else self.slices_per_update)

    def slices(self, name: str, completions: int) -> int:
        """A batch size of the user's in slices; ConfigError where it does not come out even."""
        step = self.slice_size * self.quantum
        if completions % step or completions < 1:
            raise ConfigError(
                f"{name} must be a multiple of {step} (per_device_train_batch_size × processes = {self.slice_size}, in "
                f"whole groups of num_generations = {self.num_generations} and whole updates), got {completions}"
            )
        return completions // self.slice_size

    def window(self, slices: int) -> "Window":
        per_update = slices // self.updates_per_pass if self.rule == "count" else self.slices_per_update
        return Window(slices, per_update, self.passes)


@dataclass(frozen=True)
class Window:
    """One generation and the updates made of it."""

    slices: int
    slices_per_update: int
    passes: int

    @property
    def updates(self) -> int:
        return self.slices // self.slices_per_update * self.passes


class MovingBatch:
    """Plans one window after the other until the budget is spent. The horizon of its controller is in slices."""

    def __init__(
        self, shape: Shape, controller: BatchController, prompts: PromptStream, total_completions: int
    ) -> None:
        self.shape = shape
        self.controller = controller
        self.total_completions = total_completions
        self._prompts = prompts
        self.generated = 0
        """Completions sampled so far, those of the open window included."""
        self.window = Window(0, 1, 0)
        self.updates_done = 0
        """Of the open window."""

    @property
    def window_done(self) -> bool:
        return self.updates_done >= self.window.updates

    @property
    def finished(self) -> bool:
        return self.window_done and self.generated >= self.total_completions

    @property
    def completions(self) -> float:
        """Sampled and trained on; a window counts as its updates are made."""
        left = 0.0 if self.window_done else 1.0 - self.updates_done / self.window.updates
        return self.generated - left * self.window.slices * self.shape.slice_size

    @property
    def progress(self) -> float:
        return min(1.0, self.completions / self.total_completions)

    @property
    def batch(self) -> int:
        """Completions of the open window."""
        return self.window.slices * self.shape.slice_size

    @property
    def update_batch(self) -> int:
        """Completions of each of its updates."""
        return self.window.slices_per_update * self.shape.slice_size

    @property
    def planned_slices(self) -> int:
        """What the controller wants next, in whole updates and groups, and not beyond the budget."""
        quantum = self.shape.quantum
        self.controller.progress = self.progress
        wanted = max(1, round(self.controller.horizon / quantum))
        left = math.ceil((self.total_completions - self.generated) / (self.shape.slice_size * quantum))
        return quantum * max(1, min(wanted, left))

    @property
    def planned_batch(self) -> int:
        return self.planned_slices * self.shape.slice_size

    @property
    def updates_left(self) -> int:
        """An estimate: as if the batch stayed as it is."""
        window = self.shape.window(self.planned_slices)
        left = max(0, self.total_completions - self.generated)
        windows = math.ceil(left / (window.slices * self.shape.slice_size))
        return self.window.updates - self.updates_done + windows * window.updates

    def open_window(self) -> list[int]:
        """Starts the next window; its prompts, each as often as it is answered."""
        self.window = self.shape.window(self.planned_slices)
        self.updates_done = 0
        self.generated += self.batch
        groups = self._prompts.take(self.batch // self.shape.num_generations)
        return [prompt for prompt in groups for _ in range(self.shape.num_generations)]

    def close_window(self) -> None:
        """Leaves the rest of a window's updates undone."""
        self.updates_done = self.window.updates

    def state_dict(self) -> dict[str, Any]:
        """Between windows; an open one cannot be saved."""
        assert self.window_done, "a window is open"
        return {
            "generated": self.generated,
            "window": [self.window.slices, self.window.slices_per_update, self.window.passes],
            "controller": self.controller.state_dict(),
            "prompts": self._prompts.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generated = int(state["generated"])
        self.window = Window(*state["window"])
        self.close_window()
        self.controller.load_state_dict(state["controller"])
        self._prompts.load_state_dict(state["prompts"])
