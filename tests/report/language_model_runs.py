"""Writes run directories of language-model post-training in the format of docs/metrics.md, from a formula."""

import json
import math
import random
from pathlib import Path

OPTIONS = {
    "env": "addition",
    "algorithm": "dapo",
    "scaler": "adaptive",
    "signal": "kl_divergence",
    "label": None,
    "seed": 1,
    "learning_rate": 1e-4,
    "total_completions": 12_800,
    "generation_batch_size": 32,
    "min_generation_batch_size": 32,
    "max_generation_batch_size": 256,
    "num_generations": 8,
    "max_completion_length": 6,
}


def write_llm_run(
    directory: Path,
    *,
    reward: float = 0.6,
    status: str | None = "done",
    lines: int = 50,
    updates: int = 100,
    evaluated: bool = True,
    **options: object,
) -> Path:
    """One run whose reward ends near `reward`; `status` None leaves no summary, as a killed process does."""
    config = {**OPTIONS, "output_dir": str(directory), **options}
    noise = random.Random(ascii([config["seed"], config["label"], config["env"]]))
    directory.mkdir(parents=True)
    description = {
        "kind": "llm",
        "config": config,
        "network": "Qwen2 · 133,696 parameters",
        "device": "cpu",
        "machine": "x86_64",
        "threads": "1",
        "versions": {"python": "3.11.7", "trl": "0.24.0"},
    }
    (directory / "config.json").write_text(json.dumps(description))
    rows = [_row(number / lines, config, reward, updates, noise) for number in range(1, lines + 1)]
    write_rows(directory / "metrics.jsonl", rows)
    last = rows[-1]
    if evaluated:
        evaluations = [
            {"completions": last["completions"] * share, "mean_reward": reward * share, "problems": 1000}
            for share in (0.5, 1.0)
        ]
        write_rows(directory / "evaluations.jsonl", evaluations)
    if status is not None:
        summary = {
            **{name: last[name] for name in ("completions", "updates", "wall_seconds")},
            **{"status": status, "final_reward": last["reward"], "completions_per_second": 140.0},
            **({"evaluation_reward": reward} if evaluated else {}),
            "peak_memory_mb": 512.0,
        }
        (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def write_llm_variants(
    root: Path, rewards: dict[str, float], tasks: tuple[str, ...] = ("addition",), seeds: int = 5, **options: object
) -> Path:
    """Label -> mean reward; `fixed` in a label is a fixed scaler, `ess` in it the ess objective."""
    for label, mean in rewards.items():
        own = {"scaler": "fixed" if "fixed" in label else "adaptive", "algorithm": "ess" if "ess" in label else "dapo"}
        for task in tasks:
            for seed in range(1, seeds + 1):
                reward = mean + random.Random(f"{label}{task}{seed}").uniform(-0.05, 0.05)
                directory = root / task / label / f"seed-{seed}"
                write_llm_run(directory, reward=reward, label=label, env=task, seed=seed, **{**own, **options})
    return root


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _row(progress: float, config: dict, reward: float, updates: int, noise: random.Random) -> dict:
    batch = 32 if config["scaler"] == "fixed" else 32 + 8 * round(28 * progress)
    row = {
        "completions": config["total_completions"] * progress,
        "updates": round(updates * progress),
        "reward": reward * (1 - math.exp(-5 * progress)) + noise.uniform(-0.03, 0.03),
        "reward_deviation": 0.4,
        "batch": batch,
        "next_batch": batch + 8,
        "update_batch": batch,
        "signal": config["signal"],
        "learning_rate": config["learning_rate"],
        "loss": 0.01,
        "gradient_norm": 0.5,
        "entropy": 1.5,
        "completion_length": 4.2,
        "wall_seconds": 90 * progress,
        "seconds_generate": 50 * progress,
        "seconds_update": 30 * progress,
        "seconds_measure": 4 * progress,
    }
    if config["algorithm"] == "ess":
        row |= {"ess": 1 - 0.1 * math.exp(-3 * progress) * noise.random(), "ess_ratio_mean": 1.0}
        row |= {"ess_capped_share": 0.5, "ess_pull": 0.001}
    if round(100 * progress) % 4 == 0:
        reading = 0.01 * math.exp(-4 * progress) * noise.uniform(0.8, 1.2)
        row |= {"reading": reading, "raw_reading": 1.5 * reading}
        if progress > 0.2:
            row |= {"calm_reading": 0.001, "volatile_reading": 0.01}
    return row
