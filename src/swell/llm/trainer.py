"""TRL's GRPOTrainer with the ESS objective and a batch that moves.

The loop of Hugging Face's Trainer keeps its clock, one tick per optimizer step, and knows of no accumulation. What a
tick holds is decided here: as many micro-batches as the plan says, of prompts that are drawn here.
"""

import copy
import json
import math
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from swell.batch.rules import scaled_learning_rate
from swell.errors import ConfigError, StorageError
from swell.llm.config import GRPOConfig
from swell.llm.ess_trainer import ESSTrainer, Inputs
from swell.llm.moving_batch import MovingBatch
from swell.llm.plan import moving_batch, slice_range
from swell.llm.stability import Stability

STATE_NAME = "swell_state.json"


class GRPOTrainer(ESSTrainer):
    """In place of TRL's: the same arguments, with a `swell.llm.GRPOConfig`."""

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        *more: Any,
        **keywords: Any,
    ) -> None:
        args = GRPOConfig("GRPO") if args is None else args
        if not isinstance(args, GRPOConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("args must be a swell.llm.GRPOConfig: import it from swell.llm in place of trl")
        self.moving: MovingBatch | None = None
        if args.batch_scaler != "none":
            args = self._plan_the_run(args, train_dataset)
        super().__init__(model, reward_funcs, args, train_dataset, *more, **keywords)
        self.seconds = {"generate": 0.0, "update": 0.0, "measure": 0.0}
        """Spent so far on each."""
        if self.moving is not None:
            self.stability = Stability(self, self.moving, self._reference_batch)
            self._prompts: list[Inputs] = []  # of the open window
            self._windows = 0
            self._learning_rate_share = 1.0  # of the newest update
            self.add_callback(_Clock(self, self.moving))

    def _plan_the_run(self, args: GRPOConfig, dataset: Any) -> GRPOConfig:
        """Sets up the plan. TRL is told of a loop of single micro-batches, long enough for the smallest batch."""
        if not hasattr(dataset, "__len__"):
            raise ConfigError(
                "a batch that moves draws its own prompts and needs a train_dataset with a length; an IterableDataset "
                "goes with batch_scaler none"
            )
        self.moving = moving_batch(args, len(dataset))
        shape = self.moving.shape
        least, most = slice_range(args, shape)
        self._reference_batch = shape.window(least).slices_per_update * shape.slice_size
        args = copy.copy(args)
        args.gradient_accumulation_steps = 1
        args.steps_per_generation = most  # vLLM makes room for so much
        args.generation_batch_size = most * shape.slice_size
        windows = math.ceil(self.moving.total_completions / (shape.quantum * shape.slice_size))
        args.max_steps = windows * shape.window(most).updates
        return args

    @property
    def updates_per_generation(self) -> int:
        if self.moving is None:
            return super().updates_per_generation
        return self.moving.shape.window(self.moving.planned_slices).updates

    # The loop.

    def get_train_dataloader(self) -> Any:
        if self.moving is None:
            return super().get_train_dataloader()
        return DataLoader(cast(Any, range(self.args.max_steps)), collate_fn=list)  # ticks; prompts are drawn below

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        if self.moving is None:
            return super().training_step(model, inputs, num_items_in_batch)
        begins = self.moving.window_done
        if begins:
            self._open_window(self.moving)
        slices = self.moving.window.slices_per_update
        self.current_gradient_accumulation_steps = slices
        self._set_learning_rate()
        # TRL decides by this number whether it must note log-probs, so it must be true while completions are sampled.
        with self._told(gradient_accumulation_steps=slices), self._timed("update"):
            losses = [self._micro_batch(model, number, last=number == slices - 1) for number in range(slices)]
        self.moving.updates_done += 1
        if begins and self.args.measure_every and self._windows % self.args.measure_every == 0:
            with self._timed("measure"):
                self.stability.begin(model)  # the gradient is there, the step is yet to be made
        return torch.stack(losses).sum()

    def _open_window(self, moving: MovingBatch) -> None:
        prompts = moving.open_window()
        share = len(prompts) // self.accelerator.num_processes
        own = prompts[self.accelerator.process_index * share :][:share]
        self._prompts = [self.train_dataset[prompt] for prompt in own]
        self.args.steps_per_generation = moving.window.slices
        self._step, self._buffered_inputs = 0, None  # TRL generates at 0, and counts through the slices from there
        self._windows += 1
        self.train_metrics["batch/completions"].append(float(moving.batch))
        self.train_metrics["batch/updates"].append(float(moving.window.updates))

    def _micro_batch(self, model: Any, number: int, last: bool) -> Tensor:
        """Forward and backward of one slice; processes talk to each other at the last one only."""
        self.accelerator.gradient_state._set_sync_gradients(last)
        apart = not last and self.accelerator.distributed_type.value != "DEEPSPEED"
        with self.accelerator.no_sync(model) if apart else nullcontext():
            loss = super().training_step(model, cast(Any, self._prompts), None)
        self.stability.observe_gradient(number)
        return loss

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        with self._timed("generate"):
            return super()._generate_and_score_completions(inputs)

    def after_update(self) -> None:
        """Takes the reading of an update that was watched."""
        with self._timed("measure"):
            self.stability.finish(self._learning_rate_share)

    # The learning rate, in completions.

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.moving is None or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        warmup = self.args.warmup_steps * (self._reference_batch if self.args.warmup_steps >= 1 else 1)
        with self._told(warmup_steps=warmup):
            in_completions = super().create_scheduler(self.moving.total_completions, optimizer)
        if not isinstance(in_completions, LambdaLR):
            raise ConfigError(
                f"lr_scheduler_type {self.args.lr_scheduler_type} is no function of progress; a moving batch needs one"
            )
        self._schedules = in_completions.lr_lambdas
        shares = [partial(self._rate_share, number) for number in range(len(self._schedules))]
        self.lr_scheduler = LambdaLR(in_completions.optimizer, shares)
        return self.lr_scheduler

    def _rate_share(self, group: int, _step: int = 0) -> float:
        """The share of a parameter group's learning rate that is due now, whatever the number of steps."""
        moving = cast(MovingBatch, self.moving)
        share = self._schedules[group](cast(int, min(moving.completions, moving.total_completions)))
        if self.args.invariance == "on" and moving.update_batch:
            share *= scaled_learning_rate(1.0, self._reference_batch / moving.update_batch)
        return share

    def _set_learning_rate(self) -> None:
        """For the update to come: Hugging Face steps the schedule only after one, and a window may have begun since."""
        for number, group in enumerate(self.optimizer.param_groups):
            group["lr"] = group["initial_lr"] * self._rate_share(number)
        self.lr_scheduler._last_lr = [group["lr"] for group in self.optimizer.param_groups]  # what is logged
        self._learning_rate_share = self._rate_share(0)

    # Checkpoints.

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """A disk that is full or gone is one line, whichever of the libraries below meets it."""
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, SafetensorError, RuntimeError) as error:  # torch.save raises the last
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise StorageError(f"cannot write a checkpoint into {str(self.args.output_dir)!r}: {reason}") from error

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.moving is not None and self.args.should_save:
            state = {
                "moving": self.moving.state_dict(),
                "stability": self.stability.state_dict(),
                "windows": self._windows,
                "seconds": self.seconds,
            }
            (Path(output_dir) / STATE_NAME).write_text(json.dumps(state))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.moving is None or checkpoint is None:
            return
        path = Path(checkpoint) / STATE_NAME
        if not path.exists():
            raise ConfigError(f"{checkpoint} was saved without a batch_scaler and cannot be continued with one")
        state = json.loads(path.read_text())
        self.moving.load_state_dict(state["moving"])
        self.stability.load_state_dict(state["stability"])
        self._windows, self.seconds = state["windows"], state["seconds"]

    # Small tools.

    @contextmanager
    def _told(self, **settings: Any) -> Generator[None]:
        """What TRL and Hugging Face read in their arguments meanwhile."""
        before = {name: getattr(self.args, name) for name in settings}
        vars(self.args).update(settings)
        try:
            yield
        finally:
            vars(self.args).update(before)

    @contextmanager
    def _timed(self, phase: str) -> Generator[None]:
        """Adds to `seconds`, without what was spent on another phase meanwhile."""
        start, before = time.perf_counter(), sum(self.seconds.values())
        yield
        self.seconds[phase] += time.perf_counter() - start - (sum(self.seconds.values()) - before)


class _Clock(TrainerCallback):
    """After every update: takes the reading, ends the run on its budget, and keeps checkpoints between windows."""

    def __init__(self, trainer: GRPOTrainer, moving: MovingBatch) -> None:
        self._trainer = trainer
        self._moving = moving
        self._postponed: set[str] = set()
        self._epoch = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.after_update()
        if args.regenerate_below_ess is not None and self._trainer.last_ess < args.regenerate_below_ess:
            self._moving.close_window()
        state.epoch = self._moving.completions / (len(self._trainer.train_dataset) * args.num_generations)
        state.max_steps = state.global_step + self._moving.updates_left
        control.should_training_stop |= self._moving.finished
        self._at_epochs(args, int(state.epoch), control)
        self._postpone(control)
        for callback in self._trainer.callback_handler.callbacks:
            if getattr(callback, "training_bar", None) is not None:
                cast(Any, callback).training_bar.total = state.max_steps

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """That of Hugging Face is the end of the run, where everything has been done."""
        control.should_save = control.should_evaluate = control.should_log = False

    def _at_epochs(self, args: Any, epoch: int, control: Any) -> None:
        """Hugging Face's own epochs are over ticks; these are over prompts."""
        if epoch == self._epoch and not self._moving.finished:
            return
        self._epoch = epoch
        control.should_save |= args.save_strategy == "epoch"
        control.should_evaluate |= args.eval_strategy == "epoch"
        control.should_log |= args.logging_strategy == "epoch"

    def _postpone(self, control: Any) -> None:
        """A window in progress cannot be saved: its completions would be sampled anew. Evaluation waits with it."""
        for name in ("should_save", "should_evaluate"):
            wanted = getattr(control, name) or name in self._postponed
            setattr(control, name, wanted and self._moving.window_done)
            (self._postponed.discard if self._moving.window_done or not wanted else self._postponed.add)(name)
