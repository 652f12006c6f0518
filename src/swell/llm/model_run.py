"""What makes a run of a language model: the names of its parts, what they stand for, and its options."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch

from swell.errors import ConfigError
from swell.llm.config import GRPOConfig
from swell.llm.options import Asked
from swell.llm.sources import load_prompts, reward_function
from swell.llm.tasks import SORTING

USUAL: dict[str, Any] = {
    "logging_steps": 1,
    "save_strategy": "no",  # the run's own checkpoints are spread over its completions
    "save_total_limit": 2,
    "report_to": "none",
    "disable_tqdm": True,
}
ON_CPU: dict[str, Any] = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}
TASKS = {SORTING.name: SORTING}
MADE = {"model": "model", "dataset": "problems.jsonl"}
"""What a demo makes for itself, in its own directory."""


@dataclass(frozen=True)
class ModelRun:
    """What makes a run, and all that it takes to make it again."""

    name: str
    """Of the task, for people."""
    model: str
    dataset: str
    reward: tuple[str, ...]
    config: dict[str, Any]
    """Fields of GRPOConfig; the others have its defaults."""
    eval_dataset: str | None = None
    label: str | None = None
    checkpoints: int = 0
    task: str | None = None
    """Of a demo, one of TASKS: there are fresh problems to evaluate on."""

    def stored(self) -> dict[str, Any]:
        """As JSON, with whole paths, so that it can be resumed from elsewhere. Access tokens stay with the user."""
        config = {name: value for name, value in self.config.items() if not name.endswith("_token")}
        named = {name: getattr(self, name) for name in ("model", "dataset", "eval_dataset")}
        paths = {name: str(Path(value).absolute()) for name, value in named.items() if value and Path(value).exists()}
        return {**asdict(self), "config": config, **(MADE if self.task else paths)}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any], directory: Path) -> "ModelRun":
        inside = {name: str(directory / made) for name, made in MADE.items()} if stored["task"] else {}
        return cls(**dict[str, Any](stored, **inside, reward=tuple(stored["reward"])))

    @property
    def title(self) -> str:
        return self.name if self.task else f"{Path(self.model).name}-{self.name}"


@dataclass(frozen=True)
class Parts:
    """What the names of a run stand for, but for the model, which a trainer loads."""

    prompts: Any
    held_out: Any
    rewards: list[Any]

    @classmethod
    def load(cls, run: ModelRun) -> "Parts":
        rewards = [reward_function(name) for name in run.reward]
        held_out = load_prompts(run.eval_dataset, "eval_dataset") if run.eval_dataset else None
        return cls(load_prompts(run.dataset), held_out, rewards)


def asked_run(asked: Asked) -> ModelRun:
    """What a command line of `train` asks for."""
    sources, checkpoints = asked.sources, asked.run.checkpoints
    missing = [name for name in ("model", "dataset", "reward") if not getattr(sources, name)]
    if missing:
        raise ConfigError(*(f"--{name} is missing; `swell llm train --help` says what it takes" for name in missing))
    config = with_usual(asked.config)
    if {"save_strategy", "save_steps"} & asked.config.keys():
        config["save_strategy"], checkpoints = asked.config.get("save_strategy", "steps"), 0
    dataset = cast(str, sources.dataset)
    return ModelRun(
        name=Path(dataset).stem,
        model=cast(str, sources.model),
        dataset=dataset,
        reward=tuple(sources.reward),
        config=config,
        eval_dataset=sources.eval_dataset,
        label=asked.run.label,
        checkpoints=checkpoints,
    )


def with_usual(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of GRPOConfig with what these commands set unless told otherwise."""
    accelerated = torch.accelerator.is_available()
    on_cpu = given.get("use_cpu", not accelerated)
    return {**USUAL, **(ON_CPU if on_cpu else {}), **given}


def make_config(values: Mapping[str, Any], directory: Path | str = "runs") -> GRPOConfig:
    """A GRPOConfig; what TRL or transformers refuse is one line."""
    try:
        return GRPOConfig(**dict[str, Any](values, output_dir=str(directory)))
    except (ValueError, TypeError) as error:
        raise ConfigError(one_line(error)) from error


def one_line(error: BaseException) -> str:
    """Of an error that may have many."""
    return " ".join(str(error).split()) or type(error).__name__
