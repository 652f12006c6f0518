"""TRL's GRPOTrainer with the ESS objective and a batch that moves.

The loop of Hugging Face's Trainer keeps its clock, one tick per optimizer step, and knows of no accumulation. What a tick
holds is decided here: as many micro-batches as the plan says, of prompts that are drawn here.
"""

import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback

from swell.batch.rules import scaled_learning_rate
from swell.errors import ConfigError
from swell.llm.config import GRPOConfig
from swell.llm.ess_trainer import ESSTrainer, Inputs, counted_tokens, full_sequences
from swell.llm.moving_batch import MovingBatch
from swell.llm.readings import TOKEN_SIGNALS, UpdateNoise, corrected

STATE_NAME = "swell_state.json"
MOST_LOGITS = 2**27
"""That a reading holds at a time, where it needs those of the whole vocabulary."""


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
        if args is None:
            args = GRPOConfig("GRPO")
        if not isinstance(args, GRPOConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("args must be a swell.llm.GRPOConfig: import it from swell.llm in place of trl")
        self.moving: MovingBatch | None = None
        if args.batch_scaler != "none":
            args = self._plan_the_run(args, train_dataset)
        super().__init__(model, reward_funcs, args, train_dataset, *more, **keywords)
        self.seconds = {"generate": 0.0, "update": 0.0, "measure": 0.0}
        """Spent so far on each."""
        self._window_prompts: list[Inputs] = []
        self._windows = 0
        self._finish_reading: Callable[[], float] | None = None
        self.reading: float | None = None
        """The newest, corrected, as the batch follows it; None until there is one."""
        self._noise = UpdateNoise()
        self._learning_rate_share = 1.0  # of the newest update
        if self.moving is not None:
            self.add_callback(_Clock(self))

    def _plan_the_run(self, args: GRPOConfig, dataset: Any) -> GRPOConfig:
        """Sets up the plan; what TRL is told is a loop of single micro-batches, long enough for the smallest batch."""
        if dataset is None or isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise ConfigError(
                "a batch that moves draws its own prompts and needs a dataset with a length; "
                'an IterableDataset needs batch_scaler="none"'
            )
        self.moving = args.moving_batch(len(dataset))
        shape = self.moving.shape
        least, most = args.slice_range(shape)
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
        return DataLoader(cast(Any, range(self.args.max_steps)), collate_fn=list)  # ticks; the prompts are drawn here

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        if self.moving is None:
            return super().training_step(model, inputs, num_items_in_batch)
        begins = self.moving.window_done
        if begins:
            self._open_window()
        accumulation = self.moving.window.slices_per_update
        self.current_gradient_accumulation_steps = accumulation
        self.args.steps_per_generation = self.moving.window.slices
        self._set_learning_rate()
        with self._told(gradient_accumulation_steps=accumulation), self._timed("update"):
            losses = [self._micro_batch(model, number, accumulation) for number in range(accumulation)]
        self.moving.updates_done += 1
        if (beta2 := self._optimizer_memory()[1]) is not None:
            self._noise.remember(self.moving.update_batch, beta2)
        if begins and self.args.measure_every and self._windows % self.args.measure_every == 0:
            # After the gradient and before the step: the weights are still those that sampled.
            with self._timed("measure"):
                self._finish_reading = self._begin_reading(model)
        return torch.stack(losses).sum()

    def _open_window(self) -> None:
        moving = cast(MovingBatch, self.moving)
        indices = moving.open_window()
        share = len(indices) // self.accelerator.num_processes
        own = indices[self.accelerator.process_index * share :][:share]
        dataset = cast(Any, self.train_dataset)
        self._window_prompts = [dataset[index] for index in own]
        self._step = 0  # TRL generates at 0, and counts through the slices from there
        self._buffered_inputs = None
        self._windows += 1
        self._metrics["train"]["batch/completions"].append(float(moving.batch))
        self._metrics["train"]["batch/updates"].append(float(moving.window.updates))

    def _micro_batch(self, model: Any, number: int, accumulation: int) -> Tensor:
        """Forward and backward of one slice; processes talk to each other at the last one only."""
        last = number == accumulation - 1
        self.accelerator.gradient_state._set_sync_gradients(last)  # pyright: ignore[reportPrivateUsage]
        deepspeed = self.accelerator.distributed_type.value == "DEEPSPEED"
        with nullcontext() if last or deepspeed else self.accelerator.no_sync(model):
            loss = super().training_step(model, self._window_prompts, None)
        if self._measures_noise(accumulation) and number in (0, accumulation - 1):
            self._observe_noise(number == 0, accumulation)
        return loss

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        with self._timed("generate"):
            outputs = super()._generate_and_score_completions(inputs)
        return outputs

    # Readings.

    def _begin_reading(self, model: Any) -> Callable[[], float]:
        """Looks at the policy; called after the update, what it returns gives the reading."""
        signal = TOKEN_SIGNALS[self.args.signal]
        probe = self._probe()
        before = self._look(model, probe, signal.of_greedy_tokens)

        def finish() -> float:
            after = self._look(model, probe, signal.of_greedy_tokens)
            sums = self.accelerator.reduce(signal.sums(before, after), reduction="sum")
            return signal.reading(sums)

        return finish

    def _probe(self) -> list[Inputs]:
        """Slices of the window with at most `probe_completions` in all, the last one cut to fit."""
        left = max(1, self.args.probe_completions // self.accelerator.num_processes)
        probe: list[Inputs] = []
        for slice_ in self._buffered_inputs:
            rows = min(left, slice_["completion_ids"].size(0))
            if rows:
                cut = {name: value[:rows] if _is_per_row(value, slice_) else value for name, value in slice_.items()}
                probe.append(cut)
            left -= rows
        return probe

    @torch.no_grad()
    def _look(self, model: Any, probe: list[Inputs], greedy: bool) -> Tensor:
        """What the policy says of the probe's tokens, one number each: log-probs, or the greedy tokens instead.

        Without dropout, so that it draws no random number and equal policies read equal.
        """
        was_training = model.training
        model.eval()
        try:
            seen = [(self._greedy_tokens if greedy else self.log_probs_of)(model, inputs) for inputs in probe]
        finally:
            model.train(was_training)
        return torch.cat([row[counted_tokens(inputs).bool()] for row, inputs in zip(seen, probe, strict=True)])

    def _greedy_tokens(self, model: Any, inputs: Inputs) -> Tensor:
        ids, attention = full_sequences(inputs)
        length = inputs["completion_ids"].size(1)
        vocabulary = self.model.config.get_text_config().vocab_size
        rows = max(1, MOST_LOGITS // (ids.size(1) * vocabulary))
        parts = zip(ids.split(rows), attention.split(rows), strict=True)
        logits = (model(input_ids=part, attention_mask=mask).logits for part, mask in parts)
        return torch.cat([part[:, -length - 1 : -1].argmax(-1) for part in logits])

    def take_reading(self) -> None:
        """After an update that was watched: reads, corrects, and lets the batch follow."""
        if self._finish_reading is None:
            return
        with self._timed("measure"):
            raw = self._finish_reading()
        self._finish_reading = None
        factor = self._correction()
        if factor is None:
            return
        self.reading = corrected(raw, self.args.signal, factor)
        cast(MovingBatch, self.moving).controller.adjust(self.reading)
        metrics = self._metrics["train"]
        metrics[f"stability/{self.args.signal}"].append(self.reading)
        metrics["stability/raw_reading"].append(raw)

    def _correction(self) -> float | None:
        """The factor that brings a squared step to the first learning rate and batch; None where nothing moved."""
        if self.args.reading_correction == "none":
            return 1.0
        rate = self._learning_rate_share
        if rate == 0.0:
            return None
        factor = 1.0 / rate**2
        if self.args.reading_correction == "learning-rate-and-batch":
            batch = cast(MovingBatch, self.moving).update_batch
            factor *= self._noise.factor(batch, self._reference_batch, *self._optimizer_memory())
        return factor

    def _optimizer_memory(self) -> tuple[float, float | None]:
        """How slowly the averages of gradients and of their squares forget; None without the latter."""
        group = cast(Any, self.optimizer).param_groups[0]
        return group["betas"] if "betas" in group else (group.get("momentum", 0.0), None)

    def _measures_noise(self, accumulation: int) -> bool:
        return (
            accumulation > 1
            and self.args.batch_scaler == "adaptive"
            and self.args.reading_correction == "learning-rate-and-batch"
        )

    @torch.no_grad()
    def _observe_noise(self, first: bool, accumulation: int) -> None:
        """The gradient's norm after the first slice of an update and after all of them."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm2 = torch.stack(torch._foreach_norm(gradients)).square().sum()  # pyright: ignore[reportPrivateUsage]
        if first:  # of this process alone, and for its share of an update
            self._first_norm2 = self.accelerator.reduce(norm2 * accumulation**2, reduction="mean").item()
            return
        moving = cast(MovingBatch, self.moving)
        small = moving.shape.slice_size / self.accelerator.num_processes
        self._noise.observe(small, self._first_norm2, moving.update_batch, norm2.item())

    # The learning rate, in completions.

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.moving is None or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        total = self.moving.total_completions
        warmup = (
            self.args.warmup_steps * self._reference_batch if self.args.warmup_steps >= 1 else self.args.warmup_steps
        )
        with self._told(warmup_steps=warmup):
            in_completions = super().create_scheduler(total, optimizer)
        if not isinstance(in_completions, LambdaLR):
            raise ConfigError(
                f"lr_scheduler_type {self.args.lr_scheduler_type!s} is no function of progress; a batch that moves needs one"
            )
        self._schedule = in_completions.lr_lambdas
        self.lr_scheduler = LambdaLR(
            in_completions.optimizer,
            [lambda _, number=n: self._rate_of_group(number) for n in range(len(self._schedule))],
        )
        return self.lr_scheduler

    def _rate_of_group(self, number: int) -> float:
        """The share of a group's learning rate that is due now."""
        moving = cast(MovingBatch, self.moving)
        share = self._schedule[number](min(moving.completions, moving.total_completions))
        if self.args.invariance == "on" and moving.update_batch:
            share *= scaled_learning_rate(1.0, self._reference_batch / moving.update_batch)
        return share

    def _set_learning_rate(self) -> None:
        """For the update to come: Hugging Face steps the schedule only after one, and a window may have begun since."""
        for number, group in enumerate(self.optimizer.param_groups):
            group["lr"] = group["initial_lr"] * self._rate_of_group(number)
        self._learning_rate_share = self._rate_of_group(0)

    # Checkpoints.

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.moving is not None and self.args.should_save:
            state = {
                "moving": self.moving.state_dict(),
                "noise": self._noise.state_dict(),
                "windows": self._windows,
                "reading": self.reading,
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
        self._noise.load_state_dict(state["noise"])
        self._windows, self.reading, self.seconds = state["windows"], state["reading"], state["seconds"]

    # Small tools.

    @contextmanager
    def _told(self, **settings: Any) -> Iterator[None]:
        """What TRL and Hugging Face read in their arguments meanwhile."""
        before = {name: getattr(self.args, name) for name in settings}
        for name, value in settings.items():
            setattr(self.args, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self.args, name, value)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start, others = time.perf_counter(), sum(self.seconds.values())
        yield
        inner = sum(self.seconds.values()) - others
        self.seconds[phase] += time.perf_counter() - start - inner


class _Clock(TrainerCallback):
    """After every update: takes the reading, ends the run on its budget, and keeps checkpoints between windows."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self._trainer = trainer
        self._postponed: set[str] = set()
        self._epochs = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer = self._trainer
        moving = cast(MovingBatch, trainer.moving)
        trainer.take_reading()
        floor = args.regenerate_below_ess
        if floor is not None and trainer.last_ess < floor:
            moving.close_window()
        state.epoch = moving.completions / (len(trainer.train_dataset) * args.num_generations)
        state.max_steps = state.global_step + moving.updates_left
        if moving.finished:
            control.should_training_stop = True
        self._at_epochs(args, state, control)
        self._postpone(control, moving.window_done)
        self._show(trainer, state)

    def _at_epochs(self, args: Any, state: Any, control: Any) -> None:
        """Hugging Face's own epochs are over ticks; these are over prompts."""
        if int(state.epoch) == self._epochs:
            return
        self._epochs = int(state.epoch)
        control.should_save |= args.save_strategy == "epoch"
        control.should_evaluate |= args.eval_strategy == "epoch"
        control.should_log |= args.logging_strategy == "epoch"

    def _postpone(self, control: Any, window_done: bool) -> None:
        """A window in progress cannot be saved: its completions would be sampled anew. Evaluation waits with it."""
        for name in ("should_save", "should_evaluate"):
            if getattr(control, name) and not window_done:
                self._postponed.add(name)
                setattr(control, name, False)
            elif window_done and name in self._postponed:
                self._postponed.discard(name)
                setattr(control, name, True)

    def _show(self, trainer: GRPOTrainer, state: Any) -> None:
        bars = [getattr(callback, "training_bar", None) for callback in trainer.callback_handler.callbacks]
        for bar in bars:
            if bar is not None:
                bar.total = state.max_steps


def _is_per_row(value: Any, slice_: Inputs) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == slice_["completion_ids"].size(0)
