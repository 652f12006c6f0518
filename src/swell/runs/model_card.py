"""The card beside an exported policy: what it plays, how well, what goes in and what comes out."""

import dataclasses
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from swell.config.run_config import RunConfig
from swell.runs.agent import Policy
from swell.runs.sealed import DamagedError, read_summary

USE = {
    "onnx": """import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
actions, outputs = session.run(None, {{"observations": np.zeros((1, {sizes}), np.{dtype})}})""",
    "torchscript": """import torch

policy = torch.jit.load("{file}")
actions, outputs = policy(torch.zeros((1, {sizes}), dtype=torch.{dtype}))""",
    "state-dict": """from safetensors.torch import load_file

weights = load_file("{file}")  # of `swell.load_policy(directory).network`""",
}


def model_card(policy: Policy, directory: Path, format: str, file: str, check: dict[str, Any]) -> str:
    """Markdown; every number in it comes from the run's own files."""
    config, space = policy.config, policy.spaces.observation
    shape, dtype = tuple(space.shape or ()), str(space.dtype)
    dtype = "bool_" if format == "onnx" and dtype == "bool" else dtype
    rows = {
        "env": f"`{config.env}`" + "".join(f" `{word}`" for word in (*config.env_kwargs, *config.wrappers)),
        "score": _score(directory),
        "algorithm": f"{config.algorithm}, {policy.env_steps:,} env steps, seed {config.seed}",
        "parameters": f"{sum(parameter.numel() for parameter in policy.network.parameters()):,}",
        "observations": f"{dtype} [batch, {', '.join(map(str, shape))}]{_order(policy)}",
        "actions": f"greedy, for {policy.spaces.action}",
        "outputs": "Q-values" if config.algorithm == "pqn" else "parameters of the distribution of actions",
        "normalisation": _normalisation(policy),
        "checked": f"{check['agreeing']} of {check['observations']} actions on made-up observations are the policy's",
        "made with": f"swell {metadata.version('swell-rl')}, torch {torch.__version__}, {platform.python_version()}",
    }
    table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
    use = USE[format].format(file=file, sizes=", ".join(map(str, shape)), dtype=dtype)
    changed = json.dumps(_set_options(config), indent=2)
    return (
        f"# A policy for {config.env}\n\n| | |\n|---|---|\n{table}\n\n```python\n{use}\n```\n\n"
        f"## Config\n\nWhat differs from the defaults of `swell.RunConfig`:\n\n```json\n{changed}\n```\n"
    )


def _score(directory: Path) -> str:
    try:
        summary = read_summary(directory)
    except DamagedError:
        return "not known: summary.json was changed or damaged"
    if "evaluation_return" not in summary:
        return "not evaluated"
    mean, deviation, episodes = (summary[f"evaluation_{name}"] for name in ("return", "std", "episodes"))
    return (
        f"{mean:.2f} ± {deviation:.2f} over {episodes} greedy episodes at env step {summary['evaluation_env_steps']:,}"
    )


def _order(policy: Policy) -> str:
    spaces = policy.spaces
    said = "" if spaces.source is spaces.observation else f", flattened from {spaces.source}"
    return f"{said}; the last {spaces.masks} are 1 for each allowed action" if spaces.masks else said


def _normalisation(policy: Policy) -> str:
    has_moments = getattr(policy.network, "normalizer", None) is not None
    built_in = ["bytes are divided by 255"] if str(policy.spaces.observation.dtype) == "uint8" else []
    built_in += ["observations are centred and scaled by the moments of training"] if has_moments else []
    return f"built in: {' and '.join(built_in)}" if built_in else "none: observations go in as the env gives them"


def _set_options(config: RunConfig) -> dict[str, Any]:
    defaults = {field.name: field.default for field in dataclasses.fields(RunConfig)}
    return {name: value for name, value in config.to_dict().items() if value != defaults[name]}
