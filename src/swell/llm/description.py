"""What config.json says of a run of a language model."""

import json
import platform
from collections.abc import Mapping
from typing import Any, cast

import torch

from swell.llm.config import GRPOConfig
from swell.llm.trainer import GRPOTrainer
from swell.runs.start import VERSIONED, installed_versions


def describe_run(trainer: GRPOTrainer, config: GRPOConfig, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The content of config.json. `config` is the user's own, which a moving batch changes in the trainer."""
    options = {name: value for name, value in config.to_dict().items() if _is_json(value)}
    names: dict[str, Any] = {"algorithm": config.loss_type, "scaler": config.batch_scaler}
    if config.batch_scaler in ("ramp", "adaptive"):
        names["min_generation_batch_size"] = config.min_generation_batch_size or config.generation_batch_size
        names["max_generation_batch_size"] = trainer.args.generation_batch_size
    return {
        "kind": "llm",
        "config": {**options, **names, **asked},
        "network": describe_network(trainer.model),
        "device": str(cast(Any, trainer).accelerator.device),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "versions": {
            "python": platform.python_version(),
            **installed_versions((*VERSIONED, "trl", "transformers", "accelerate", "peft", "vllm")),
        },
    }


def describe_network(model: Any) -> str:
    """Such as "Qwen2 · 133,696 parameters"."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    size = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(inner).__name__.removesuffix('ForCausalLM')} · {size:,} parameters"


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
