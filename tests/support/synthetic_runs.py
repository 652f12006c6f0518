"""Writes run directories in the format of docs/metrics.md, without training: curves and scores come from a formula."""

import json
import math
import random
from pathlib import Path

CONFIG = {
    "env": "CartPole-v1",
    "preset": "classic",
    "algorithm": "pqn",
    "total_env_steps": 100_000,
    "seed": 1,
    "label": None,
    "num_envs": 32,
    "scaler": "adaptive",
    "horizon": 32,
    "min_horizon": 16,
    "max_horizon": 64,
    "ramp_horizons": [16, 64],
    "ramp_from": None,
    "epochs": 2,
    "learning_rate": 0.0005,
    "network": "auto",
    "hidden": [128, 128],
}
VERSIONS = {"python": "3.11.7", "swell-rl": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6"}


def write_run(
    directory: Path,
    *,
    score: float = 100.0,
    status: str | None = "done",
    lines: int = 60,
    share_done: float = 1.0,
    gradient_steps: int = 1000,
    evaluated: bool = True,
    network: str = "mlp",
    signal: str = "behavioral_divergence",
    slowness: float = 1.0,
    evaluations: int = 1,
    **options: object,
) -> Path:
    """One run that ends near `score`; `status` None leaves no summary, as a killed process does."""
    config = {**CONFIG, **options}
    noise = random.Random(ascii([directory.name, config["seed"], config["label"], config["env"]]))
    directory.mkdir(parents=True)
    description = {
        **{"config": config, "device": "cpu", "threads": 1, "network": network, "machine": "x86_64"},
        **{"resume": "exact: a resumed run ends bit-identical to an uninterrupted one", "versions": VERSIONS},
    }
    (directory / "config.json").write_text(json.dumps(description, indent=2))
    rows = [
        _row(number + 1, lines, config, score, gradient_steps, signal, slowness, noise)
        for number in range(max(1, round(lines * share_done)))
    ]
    rows[-1]["horizon"] = 5  # the last rollout is cut to the run's total
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    last = rows[-1]
    if evaluated:
        written = [_evaluation(last["env_steps"], score, number / evaluations) for number in range(1, evaluations + 1)]
        (directory / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    if status is not None:
        summary = _summary(status, last, score if evaluated else None)
        (directory / "summary.json").write_text(json.dumps(summary, indent=2))
    return directory


def write_bench(
    root: Path,
    scores: dict[str, float],
    envs: tuple[str, ...] = ("CartPole-v1", "Acrobot-v1"),
    seeds: int = 5,
    **options,
) -> Path:
    """A benchmark: label -> mean score; `fixed:16` and the like are fixed, everything else adaptive."""
    for label, mean in scores.items():
        for env in envs:
            for seed in range(1, seeds + 1):
                spread = random.Random(f"{label}{env}{seed}").uniform(-10, 10)
                batch = {"scaler": "fixed", "horizon": int(label[6:])} if label.startswith("fixed:") else {}
                directory = root / "runs" / plain(env) / plain(label) / f"seed-{seed}"
                write_run(directory, score=mean + spread, label=label, env=env, seed=seed, **{**batch, **options})
    return root


def plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in name)


def _evaluation(env_steps, score, share):
    """Evaluations rise evenly, unlike the returns of training."""
    row = {"env_steps": round(env_steps * share), "episodes": 2, "mean_return": score * share, "std_return": 1.0}
    return {**row, "returns": [score * share - 1, score * share + 1]}


def _row(iteration, lines, config, score, gradient_steps, signal, slowness, noise):
    progress = iteration / lines
    longest = config["horizon"] if config["scaler"] == "fixed" else config["max_horizon"]
    shortest = config["horizon"] if config["scaler"] == "fixed" else config["min_horizon"]

    def horizon(share):
        return round(shortest + (longest - shortest) * share)

    row = {
        "env_steps": round(config["total_env_steps"] * progress),
        "iteration": iteration,
        "horizon": horizon((iteration - 1) / lines),
        "next_horizon": horizon(progress),
        "loss": 0.1,
        "gradient_steps": round(gradient_steps * progress),
        "batch_size": config["num_envs"] * horizon(progress),
        "signal": signal,
        "episodes": iteration * 3,
        "steps_per_second": 9000.0,
        "wall_seconds": 40 * slowness * progress,
        "seconds_act": 8 * slowness * progress,
        "seconds_env": 5 * slowness * progress,
        "seconds_update": 22 * slowness * progress,
        "seconds_measure": 2 * slowness * progress,
    }
    if iteration > 2:
        row["episode_return"] = score * (1 - math.exp(-5 * progress)) + noise.uniform(-4, 4)
        row["episode_length"] = 20.0
    if iteration % 5 == 0:
        row["reading"] = 0.6 * math.exp(-4 * progress) + noise.uniform(0, 0.05)
    return row


def _summary(status, last, score):
    summary = {
        "status": status,
        "env_steps": last["env_steps"],
        "gradient_steps": last["gradient_steps"],
        "episodes": last["episodes"],
        "abandoned_episodes": 0,
        "steps_per_second": 9000.0,
        "wall_seconds": last["wall_seconds"],
        "peak_memory_mb": 330.8,
    }
    if "episode_return" in last:
        summary["final_return"] = last["episode_return"]
    if score is not None:
        summary |= {
            **{"evaluation_return": score, "evaluation_std": 1.0, "evaluation_episodes": 2},
            **{"evaluation_env_steps": last["env_steps"]},
        }
    return summary
