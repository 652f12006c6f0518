"""`loss_type="ess"` for TRL's GRPOTrainer, through its own `cispo` branch: the cap is e, and the pull is added."""

import inspect
import math
import re
from collections import defaultdict
from typing import Any, cast

import torch
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer as TRLTrainer

from swell.batch.signals import effective_sample_size_of
from swell.errors import ConfigError
from swell.llm.config import GRPOConfig
from swell.llm.objective import Ratios, token_ratios

Inputs = dict[str, Any]
"""What TRL hands to a loss: the tensors of one micro-batch, by name."""


class ESSTrainer(TRLTrainer):
    """TRL's trainer with one more loss; all others are as they were.

    TRL's cispo computes −sg(min(ρ, epsilon_high))·A·log π and reads both `epsilon_high` and the old log-probs *after*
    the policy's own. So when those are asked for, e and the behaviour log-probs are put in their places.
    """

    args: GRPOConfig
    model: Any
    optimizer: Any
    lr_scheduler: Any
    train_dataset: Any
    accelerator: Any
    _buffered_inputs: Any

    def __init__(self, model: Any, reward_funcs: Any, args: GRPOConfig, *more: Any, **keywords: Any) -> None:
        require_loss(args.loss_type)
        super().__init__(model, reward_funcs, args, *more, **keywords)
        self._inputs: Inputs | None = None  # of the micro-batch whose loss is being computed
        self._ratios: Ratios | None = None  # of its tokens
        self._micro_batches_pooled = 0  # how many are still to come of those that the newest e was taken of
        self.last_ess = 1.0
        """e of the newest optimizer step."""
        if self.args.loss_type == "ess":
            self.loss_type = "cispo"

    @property
    def train_metrics(self) -> defaultdict[str, list[float]]:
        """What TRL will log next, averaged."""
        return self._metrics["train"]

    @property
    def buffered_inputs(self) -> list[Inputs]:
        """The micro-batches of the newest generation."""
        return self._buffered_inputs

    @property
    def uses_ess(self) -> bool:
        return self.args.loss_type == "ess"

    def train(self, *arguments: Any, **keywords: Any) -> Any:
        if self.uses_ess:
            self.accelerator.print(f"swell: {self.describe_trust()}")
        return super().train(*arguments, **keywords)

    def describe_trust(self) -> str:
        """Whether e can differ from 1 with these settings, and if not, which would let it."""
        updates = self.updates_per_generation
        sampler_is_known = self.use_vllm or getattr(self, "rollout_func", None) is not None
        truncated = self._truncates_sampling() and not sampler_is_known
        warning = (
            " The sampler is truncated (top_p, top_k, min_p or repetition_penalty) and its log-probs are not known, so "
            "ratios are those of a policy that did not sample."
            if truncated
            else ""
        )
        if updates > 1:
            return f"ESS: a generation serves {updates} updates, so e falls below 1 as the policy moves on.{warning}"
        if sampler_is_known:
            return f"ESS: e differs from 1 as far as the sampler's log-probs differ from the trainer's.{warning}"
        return (
            "ESS: e is 1 in every update with these settings, which is plain REINFORCE: a generation serves one update "
            "and the sampler's log-probs are not known. num_iterations > 1, steps_per_generation > "
            "gradient_accumulation_steps, or use_vllm with vllm_importance_sampling_correction=False let it differ."
            f"{warning}"
        )

    @property
    def updates_per_generation(self) -> int:
        """At most; where a generation ends within an optimizer step, as many as it takes part in."""
        return math.ceil(self._slices_per_generation * self.num_iterations / self.args.gradient_accumulation_steps)

    @property
    def _slices_per_generation(self) -> int:
        return cast(int, self.args.steps_per_generation)  # TRL sets it where the user did not

    def _truncates_sampling(self) -> bool:
        args = self.args
        return args.top_p < 1.0 or bool(args.top_k) or bool(args.min_p) or args.repetition_penalty != 1.0

    def _compute_loss(self, model: Any, inputs: Inputs) -> Tensor:
        if not self.uses_ess:
            return super()._compute_loss(model, inputs)
        mode = "train" if self.model.training else "eval"
        if mode == "train" and self._micro_batches_pooled == 0 and self.args.ess_scope == "step":
            self._pool_the_step(model)
        self._inputs = dict(inputs)  # a copy: old log-probs are written into it
        try:
            loss = super()._compute_loss(model, self._inputs)
        finally:
            self._inputs = None
        self._metrics[mode].pop(
            "cispo_clip_ratio", None
        )  # it would count ratios above e under a name of something else
        ratios, self._ratios = cast(Ratios, self._ratios), None
        if mode == "train":
            self._report(ratios)
            self._micro_batches_pooled = max(0, self._micro_batches_pooled - 1)
            if self.args.ess_pull:
                loss = loss + (1.0 - self.last_ess) * ratios.pull() / self._token_normalizer(inputs)
        return loss

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **keywords: Any) -> Any:
        outputs = super()._get_per_token_logps_and_entropies(*arguments, **keywords)
        if self._inputs is not None:
            self._trust(outputs[0], self._inputs)
        return outputs

    def _trust(self, log_probs: Tensor, inputs: Inputs) -> None:
        """Puts e and the behaviour log-probs where the loss will look for them."""
        self._ratios = ratios = token_ratios(log_probs, behavior_log_probs(inputs), counted_tokens(inputs))
        if self._micro_batches_pooled == 0 and self.model.training:
            self._set_pool(ratios.sums())
        # ρ is 1 where the sampler's log-prob is not known: such a token is weighted as a fresh one.
        inputs["old_per_token_logps"] = (log_probs - ratios.log_ratios).detach()
        self.epsilon_high = self.last_ess if self.args.ess_cap and self.model.training else math.inf

    def _set_pool(self, sums: Tensor) -> None:
        total, _, number = pool = self.accelerator.reduce(sums, reduction="sum")
        self.last_ess = effective_sample_size_of(pool).item()
        self.train_metrics["ess"].append(self.last_ess)
        if number > 0:
            self.train_metrics["ess/ratio_mean"].append((total / number).item())

    @torch.no_grad()
    def _pool_the_step(self, model: Any) -> None:
        """e over all micro-batches of the optimizer step that begins; of one alone, its own loss will see to it."""
        coming = self._coming_micro_batches()
        if len(coming) < 2 or behavior_log_probs(coming[0]) is None:
            return
        sums = [
            token_ratios(self.log_probs_of(model, i), behavior_log_probs(i), counted_tokens(i)).sums() for i in coming
        ]
        self._set_pool(torch.stack(sums).sum(0))
        self._micro_batches_pooled = len(coming)

    def _coming_micro_batches(self) -> list[Inputs]:
        """Those of this optimizer step that are generated already; where it reaches into the next generation, that part
        gets an e of its own.
        """
        per_generation = self._slices_per_generation
        until_next = per_generation * self.num_iterations - self._step % (per_generation * self.num_iterations)
        accumulated = self._step % self.current_gradient_accumulation_steps
        count = min(self.current_gradient_accumulation_steps - accumulated, until_next)
        return [self._buffered_inputs[(self._step + ahead) % per_generation] for ahead in range(count)]

    def log_probs_of(self, model: Any, inputs: Inputs) -> Tensor:
        """log π of every token of a micro-batch, [B, T]."""
        method = super()._get_per_token_logps_and_entropies
        taken = inspect.signature(method).parameters.keys() & inputs.keys()  # images and the like
        ids, attention = full_sequences(inputs)
        outputs = method(
            model, ids, attention, inputs["completion_ids"].size(1), **{name: inputs[name] for name in taken}
        )
        return outputs[0]

    def _token_normalizer(self, inputs: Inputs) -> Tensor:
        """What TRL divides the sum over a micro-batch's tokens by: those of the optimizer step, per process."""
        share = self.current_gradient_accumulation_steps / self._slices_per_generation
        return inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes * share

    @torch.no_grad()
    def _report(self, ratios: Ratios) -> None:
        pull = ratios.pull()
        counts = torch.stack([ratios.num_capped(self.last_ess).to(pull), pull, ratios.known.sum().to(pull)])
        capped, pull, known = self.accelerator.reduce(counts, reduction="sum")
        self.train_metrics["ess/capped_share"].append((capped / known.clamp(min=1.0)).item())
        self.train_metrics["ess/pull"].append(((1.0 - self.last_ess) * pull / known.clamp(min=1.0)).item())


def require_loss(name: str) -> None:
    """TRL has no list of its losses and would refuse one only after the first generation: so its code is read."""
    known = {"ess", *re.findall(r'"(\w+)"', " ".join(re.findall(r"loss_type (?:==|in) .*", _source_of_losses())))}
    if name not in known:
        raise ConfigError(f"loss_type must be one of {', '.join(sorted(known))}, got {name!r}")


def _source_of_losses() -> str:
    return inspect.getsource(TRLTrainer._compute_loss)  # pyright: ignore[reportPrivateUsage]


def behavior_log_probs(inputs: Inputs) -> Tensor | None:
    """Of whatever sampled the tokens: those that the sampler gave, else those noted when they were generated."""
    sampled = inputs.get("sampling_per_token_logps")
    return inputs.get("old_per_token_logps") if sampled is None else sampled


def counted_tokens(inputs: Inputs) -> Tensor:
    """1 on tokens that the policy wrote, 0 on padding and on what tools answered."""
    mask = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def full_sequences(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Prompts and completions in one row each, and their attention mask."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    return ids, torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
