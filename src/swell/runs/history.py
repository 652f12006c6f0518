"""What a run remembers between iterations beside its parts, and the summary that both come to."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from swell.memory.system import peak_memory_mb
from swell.runs.build import BuiltRun
from swell.runs.state_check import require_alike, require_numbers


@dataclass
class RunHistory:
    """Stored in every checkpoint."""

    wall_seconds: float = 0.0
    train_seconds: float = 0.0
    resume_count: int = 0
    best_return: float = float("-inf")
    best_step: int | None = None
    evaluation: dict[str, Any] | None = None
    micro_batch_size: int | None = None
    """What there was room for when memory last ran out; None while it has not."""

    def note_score(self, score: float, env_steps: int) -> bool:
        """Whether it is the best so far."""
        if score <= self.best_return:
            return False
        self.best_return, self.best_step = score, env_steps
        return True

    def is_evaluated(self, env_steps: int) -> bool:
        return self.evaluation is not None and self.evaluation["env_steps"] == env_steps

    def has_reached(self, target_return: float | None) -> bool:
        if target_return is None or self.evaluation is None:
            return False
        return self.evaluation["mean_return"] >= target_return


def restored_history(state: dict[str, Any]) -> RunHistory:
    """From a checkpoint; a TypeError where a part of it is of another kind."""
    history = RunHistory(**state)
    require_alike(asdict(RunHistory(best_step=0, micro_batch_size=1)), state)
    if history.evaluation is not None:
        require_numbers(history.evaluation, "env_steps", "episodes", "mean_return", "std_return")
    return history


def summary_of(status: str, parts: BuiltRun, history: RunHistory, wall_seconds: float) -> dict[str, Any]:
    """What summary.json says; a number that is not known is absent."""
    episodes, evaluation = parts.collector.episodes, history.evaluation
    summary: dict[str, Any] = {
        "status": status,
        "env_steps": parts.collector.env_steps,
        "gradient_steps": parts.learner.gradient_steps,
        "path": parts.path,
        "micro_batch_size": parts.learner.micro_batch_size,
        "episodes": episodes.finished,
        "abandoned_episodes": episodes.abandoned,
        "steps_per_second": parts.collector.env_steps / max(history.train_seconds, 1e-9),
        "wall_seconds": wall_seconds,
        **_memory_use(parts),
    }
    if episodes.returns:
        summary["final_return"] = float(np.mean(episodes.returns))
    if evaluation is not None:
        summary["evaluation_return"] = evaluation["mean_return"]
        summary["evaluation_std"] = evaluation["std_return"]
        summary["evaluation_episodes"] = evaluation["episodes"]
        summary["evaluation_cut_episodes"] = evaluation.get("cut_episodes", 0)  # earlier versions waited for all
        summary["evaluation_env_steps"] = evaluation["env_steps"]
    return summary


def _memory_use(parts: BuiltRun) -> dict[str, float]:
    """The most that the process held and what was predicted, as far as they are known."""
    known = {"peak_memory_mb": peak_memory_mb(), "predicted_memory_mb": parts.memory_plan.predicted_mb}
    return {name: size for name, size in known.items() if size is not None}
