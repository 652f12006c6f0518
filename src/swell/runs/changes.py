"""What of a run can be changed in the middle: `swell resume --set`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from swell.config.batch import BatchSettings, SignalSettings
from swell.config.learners import NetworkSettings
from swell.config.options import options
from swell.config.run_config import RunConfig, changed
from swell.config.runs import EnvSettings, RunSettings
from swell.config.validation import Settings, did_you_mean
from swell.errors import ConfigError

CHANGEABLE = frozenset(
    {
        *("learning_rate", "anneal_learning_rate", "max_gradient_norm", "epochs", "minibatches", "minibatch_size"),
        *("value_coefficient", "value_clip_range", "entropy_coefficient", "clip_range", "target_kl", "kl_penalty"),
        *("epsilon_start", "epsilon_end", "epsilon_fraction", "calm_reading", "volatile_reading", "smoothing"),
        *("evaluate_every", "evaluation_episodes", "target_return", "checkpoint_every", "checkpoint_minutes", "label"),
        *("max_evaluation_steps", "env_timeout"),
    }
)
"""Options that are read anew in each iteration and that nothing in a checkpoint depends on."""

REASONS: tuple[tuple[type[Settings], str], ...] = (
    (EnvSettings, "the checkpoint holds these envs as they were"),
    (NetworkSettings, "the weights have its shape"),
    (BatchSettings, "memory and the scaler's state go by it"),
    (SignalSettings, "readings before and after would not compare"),
    (RunSettings, "the run was started with it"),
)
"""Why the other options of these stay as they are."""


def changed_in_the_middle(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """The config with these options changed; one line for each that cannot be."""
    faults = [_refusal(name) for name in changes if name not in CHANGEABLE]
    if faults:
        raise ConfigError(*faults)
    return changed(config, **changes)


def changes_at(env_steps: int, before: RunConfig, after: RunConfig) -> list[dict[str, Any]]:
    """What config.json records of a change: an entry with the moment and each option as it was and as it is."""
    old, new = before.to_dict(), after.to_dict()
    differing = {name: [old[name], new[name]] for name in new if name != "env" and old[name] != new[name]}
    return [{"env_steps": env_steps, **differing}] if differing else []


def _refusal(name: str) -> str:
    known = options()
    if name in ("steps", "total_env_steps"):
        return "total_env_steps is changed by --steps"
    if name not in known:
        return f"unknown option {name}{did_you_mean(name, known)}"
    reasons = (reason for kind, reason in REASONS if name in {field.name for field in fields(kind)})
    reason = next(reasons, "what was learned so far depends on it")
    return f"{name} cannot be changed in the middle: {reason}; start a new run with --weights-from instead"
