"""The readings of a run: a look at the policy before and after an update, told to the batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from swell.llm.ess_trainer import ESSTrainer, Inputs, counted_tokens, full_sequences
from swell.llm.moving_batch import MovingBatch
from swell.llm.readings import TOKEN_SIGNALS, UpdateNoise, corrected

MOST_LOGITS = 2**27
"""That a reading holds at a time, where it needs those of the whole vocabulary."""


class Stability:
    """Watches the first update of a generation and tells the controller how far it moved the policy."""

    def __init__(self, trainer: ESSTrainer, moving: MovingBatch, reference_batch: int) -> None:
        self._trainer = trainer
        self._moving = moving
        self._reference_batch = reference_batch
        self._finish: Callable[[], float] | None = None
        self.noise = UpdateNoise()
        self._first_norm2 = 0.0
        self.reading: float | None = None
        """The newest as the batch follows it, corrected; None until there is one."""
        self.raw_reading: float | None = None
        """The same as it was measured."""

    @torch.no_grad()
    def begin(self, model: Any) -> None:
        """Looks at the policy before an update. Where gradients are in place already, they are left alone."""
        self._finish = self.watch(model, self._trainer.args.signal)

    def watch(self, model: Any, name: str) -> Callable[[], float]:
        """What the policy says of a probe now; called after the update, the result gives the reading."""
        signal = TOKEN_SIGNALS[name]
        probe = self._probe()
        before = self._look(model, probe, signal.of_greedy_tokens)

        def finish() -> float:
            after = self._look(model, probe, signal.of_greedy_tokens)
            return signal.reading(self._trainer.accelerator.reduce(signal.sums(before, after), reduction="sum"))

        return finish

    def finish(self, learning_rate_share: float) -> None:
        """After an update at that share of the first learning rate: reads, corrects, and lets the batch follow."""
        if self._finish is None:
            return
        raw, self._finish = self._finish(), None
        if learning_rate_share == 0.0:
            return  # a step of no length says nothing of the policy
        signal = self._trainer.args.signal
        self.raw_reading, self.reading = raw, corrected(raw, signal, self.correction(learning_rate_share))
        self._moving.controller.adjust(self.reading)
        metrics = self._trainer.train_metrics
        metrics[f"stability/{signal}"].append(self.reading)
        metrics["stability/raw_reading"].append(raw)

    def correction(self, learning_rate_share: float) -> float:
        """The factor that brings a squared step to the first learning rate and batch."""
        chosen = self._trainer.args.reading_correction
        factor = 1.0 if chosen == "none" else learning_rate_share**-2
        if chosen == "learning-rate-and-batch":
            factor *= self.noise.factor(self._moving.update_batch, self._reference_batch, *self._optimizer_memory())
        return factor

    def _optimizer_memory(self) -> tuple[float, float | None]:
        """How slowly the averages of gradients and of their squares forget; None without the latter."""
        group = self._trainer.optimizer.param_groups[0]
        return group["betas"] if "betas" in group else (group.get("momentum", 0.0), None)

    def _probe(self) -> list[Inputs]:
        """Slices of the generation with at most `probe_completions` in all, the last one cut to fit."""
        left = max(1, self._trainer.args.probe_completions // self._trainer.accelerator.num_processes)
        probe: list[Inputs] = []
        for inputs in self._trainer.buffered_inputs:
            rows = min(left, inputs["completion_ids"].size(0))
            if rows:
                probe.append(_first_rows(inputs, rows))
            left -= rows
        return probe

    @torch.no_grad()
    def _look(self, model: Any, probe: list[Inputs], greedy: bool) -> Tensor:
        """What the policy says of the probe's tokens, one number each: log-probs, or the greedy tokens instead.

        Without dropout: it must draw no random number, and equal policies must read equal.
        """
        look = self._greedy_tokens if greedy else self._trainer.log_probs_of
        was_training = model.training
        model.eval()
        try:
            seen = [look(model, inputs)[counted_tokens(inputs).bool()] for inputs in probe]
        finally:
            model.train(was_training)
        return torch.cat(seen)

    def _greedy_tokens(self, model: Any, inputs: Inputs) -> Tensor:
        ids, attention = full_sequences(inputs)
        length = inputs["completion_ids"].size(1)
        vocabulary = self._trainer.model.config.get_text_config().vocab_size
        rows = max(1, MOST_LOGITS // (ids.size(1) * vocabulary))
        parts = zip(ids.split(rows), attention.split(rows), strict=True)
        logits = (model(input_ids=part, attention_mask=mask).logits for part, mask in parts)
        return torch.cat([part[:, -length - 1 : -1].argmax(-1) for part in logits])

    @property
    def _corrects_for_the_batch(self) -> bool:
        args = self._trainer.args
        return args.measure_every > 0 and args.reading_correction == "learning-rate-and-batch"

    @torch.no_grad()
    def observe_gradient(self, number: int) -> None:
        """After the backward pass of an update's micro-batch `number`: notes the gradient of the first and of all."""
        window, slice_size = self._moving.window, self._moving.shape.slice_size
        if not self._corrects_for_the_batch or number not in (0, window.slices_per_update - 1):
            return
        accelerator = self._trainer.accelerator
        if number == 0 and window.slices_per_update > 1:
            # Of this process alone; the loss was divided as one of so many.
            norm2 = self._gradient_norm2() * window.slices_per_update**2
            self._first_norm2 = accelerator.reduce(norm2, reduction="mean").item()
        elif window.slices_per_update > 1:
            small = slice_size / accelerator.num_processes
            self.noise.observe(small, self._first_norm2, self._moving.update_batch, self._gradient_norm2().item())
        beta2 = self._optimizer_memory()[1]
        if number == window.slices_per_update - 1 and beta2 is not None:
            self.noise.remember(self._moving.update_batch, beta2)

    def _gradient_norm2(self) -> Tensor:
        gradients = [p.grad for p in self._trainer.model.parameters() if p.grad is not None]
        return torch.stack([gradient.float().square().sum() for gradient in gradients]).sum()

    def state_dict(self) -> dict[str, Any]:
        return {"noise": self.noise.state_dict(), "reading": self.reading, "raw_reading": self.raw_reading}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.noise.load_state_dict(state["noise"])
        self.reading, self.raw_reading = state["reading"], state["raw_reading"]


def _first_rows(inputs: Inputs, rows: int) -> Inputs:
    everything = inputs["completion_ids"].size(0)
    per_row = {n for n, v in inputs.items() if isinstance(v, Tensor) and v.dim() and v.size(0) == everything}
    return {name: value[:rows] if name in per_row else value for name, value in inputs.items()}
