"""Did a change of the code change any result? Records short runs of every kind, or compares with a recording.

    python -m benchmarks.same_results record before/       # on the code as it was
    python -m benchmarks.same_results compare before/      # on the code as it is: the same machine, the same packages

Every run trains for a few thousand steps. Its logged numbers (but for times) and its final weights have to be the same
to the last bit. A refactoring shows that with this command; a change that means to move a curve names the runs that
moved.
"""

import argparse
import hashlib
import json
import multiprocessing
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

TIMES = ("seconds", "per_second", "wall", "memory")
SHORT: dict[str, Any] = {"evaluation_episodes": 2, "checkpoint_every": 1_000}

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "pqn-adaptive": ("CartPole-v1", {"total_env_steps": 12_000, "measure_every": 2, "evaluate_every": 4_000}),
    "pqn-fixed-count": ("Acrobot-v1", {"total_env_steps": 8_000, "scaler": "fixed", "minibatch_rule": "count"}),
    "pqn-ramp": ("CartPole-v1", {"total_env_steps": 8_000, "scaler": "ramp", "ramp_horizons": (4, 40)}),
    "pqn-noise-scale": ("CartPole-v1", {"total_env_steps": 8_000, "scaler": "noise-scale", "measure_every": 2}),
    "pqn-interval": ("CartPole-v1", {"total_env_steps": 8_000, "window": "interval", "measure_every": 3}),
    "pqn-sqrt-rate": ("CartPole-v1", {"total_env_steps": 8_000, "learning_rate_rule": "sqrt", "measure_every": 2}),
    "pqn-invariance": ("CartPole-v1", {"total_env_steps": 8_000, "invariance": "on", "measure_every": 2}),
    "pqn-micro-batches": ("CartPole-v1", {"total_env_steps": 6_000, "minibatch_size": 200, "micro_batch_size": 64}),
    "pqn-minatar": ("MinAtar/Breakout-v1", {"total_env_steps": 12_000, "num_envs": 16, "measure_every": 3}),
    "pqn-release": ("CartPole-v1", {"total_env_steps": 8_000, "preset": "release", "measure_every": 2}),
    "pqn-atari": ("ALE/Pong-v5", {"total_env_steps": 1_000, "num_envs": 4, "evaluation_episodes": 0, "threads": 1}),
    "ppo-fixed": ("CartPole-v1", {"total_env_steps": 12_000, "algorithm": "ppo"}),
    "ppo-abs-kl": ("CartPole-v1", {"total_env_steps": 12_000, "preset": "ppo-abs", "measure_every": 2}),
    "ppo-behavior": (
        "Pendulum-v1",
        {
            "total_env_steps": 8_000,
            "preset": "ppo-abs",
            "measure_every": 2,
            "signal": "behavioral_divergence",
            "calm_reading": 0.05,
            "volatile_reading": 0.95,
        },
    ),
    "ppo-effective-sample-size": (
        "CartPole-v1",
        {
            "total_env_steps": 8_000,
            "preset": "ppo-abs",
            "measure_every": 2,
            "signal": "effective_sample_size",
            "calm_reading": 0.99,
            "volatile_reading": 0.5,
        },
    ),
    "ppo-mujoco": ("Hopper-v5", {"total_env_steps": 6_000, "algorithm": "ppo", "value_clip_range": None}),
    "ppo-mujoco-clipped-values": ("Hopper-v5", {"total_env_steps": 6_000, "algorithm": "ppo"}),
    "ppo-minatar-shared": ("MinAtar/Asterix-v1", {"total_env_steps": 8_000, "algorithm": "ppo", "num_envs": 8}),
    "ppo-target-kl": ("CartPole-v1", {"total_env_steps": 8_000, "algorithm": "ppo", "target_kl": 0.005}),
    "ppo-stale-decoupled": ("CartPole-v1", {"total_env_steps": 8_000, "algorithm": "ppo", "staleness": 2}),
    "ppo-stale-recent": (
        "CartPole-v1",
        {"total_env_steps": 8_000, "algorithm": "ppo", "staleness": 1, "staleness_mode": "recent"},
    ),
    "ppo-noise-scale": (
        "CartPole-v1",
        {"total_env_steps": 8_000, "algorithm": "ppo", "scaler": "noise-scale", "measure_every": 2},
    ),
    "ppo-ewma-invariance": (
        "CartPole-v1",
        {
            "total_env_steps": 10_000,
            "algorithm": "ppo-ewma",
            "invariance": "on",
            "reference_batch": 2048,
            "advantage_decay": 0.5,
        },
    ),
    "ppo-ewma-penalty-stale": (
        "Pendulum-v1",
        {
            "total_env_steps": 8_000,
            "algorithm": "ppo-ewma",
            "kl_penalty": 1.0,
            "clip_range": 0.0,
            "staleness": 1,
            "normalize_observations": True,
            "normalize_rewards": True,
        },
    ),
    "ppg": ("CartPole-v1", {"total_env_steps": 10_000, "algorithm": "ppg", "phase_env_steps": 4_096}),
    "ppg-ewma-detached": (
        "CartPole-v1",
        {
            "total_env_steps": 10_000,
            "algorithm": "ppg-ewma",
            "phase_env_steps": 4_096,
            "architecture": "detached",
            "invariance": "on",
        },
    ),
    "ess-batch": ("CartPole-v1", {"total_env_steps": 10_000, "algorithm": "ess"}),
    "ess-minibatch-k3-stale": (
        "Pendulum-v1",
        {"total_env_steps": 8_000, "algorithm": "ess", "ess_scope": "minibatch", "ess_penalty": "k3", "staleness": 1},
    ),
    "ess-abs": ("MinAtar/Breakout-v1", {"total_env_steps": 8_000, "algorithm": "ess", "num_envs": 8}),
}
KILLED = ("pqn-adaptive", "pqn-interval", "ppo-abs-kl", "ppg", "ppo-stale-decoupled", "pqn-minatar")
"""These are also killed in the middle and resumed."""


def fingerprint(directory: Path) -> dict[str, Any]:
    """What a run logged, and the hash of every tensor that its last checkpoint holds of its network."""
    from safetensors.numpy import load_file

    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in row.items() if not any(word in name for word in TIMES)} for row in rows]
    evaluations = directory / "evaluations.jsonl"
    newest = max((directory / "checkpoints").glob("step-*"))
    stored = {name: tensor for path in newest.glob("*.safetensors") for name, tensor in load_file(path).items()}
    tensors = {
        name: hashlib.sha256(tensor.tobytes()).hexdigest()[:16]
        for name, tensor in sorted(stored.items())
        if "network" in name
    }
    text = evaluations.read_text() if evaluations.exists() else ""
    return {"metrics": kept, "evaluations": [json.loads(line) for line in text.splitlines()], "weights": tensors}


def train(env: str, fields: dict[str, Any], directory: Path) -> None:
    from swell import run

    run(env, directory, quiet=True, **{**SHORT, **fields})


def train_killed(env: str, fields: dict[str, Any], directory: Path) -> None:
    """The same run, killed once it has saved a few times, then resumed."""
    from swell import resume

    process = multiprocessing.get_context("spawn").Process(target=train, args=(env, fields, directory))
    process.start()
    while process.is_alive() and len(list((directory / "checkpoints").glob("step-*"))) < 2:
        time.sleep(0.01)
    if process.is_alive() and process.pid is not None:
        import os

        os.kill(process.pid, signal.SIGKILL)
    process.join()
    resume(directory, quiet=True)


def results(only: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (env, fields) in RUNS.items():
            if only and name not in only:
                continue
            started = time.perf_counter()
            train(env, fields, Path(folder) / name)
            found[name] = fingerprint(Path(folder) / name)
            if name in KILLED:
                train_killed(env, fields, Path(folder) / f"{name}-killed")
                found[f"{name}-killed"] = fingerprint(Path(folder) / f"{name}-killed")
            print(f"{name:<28} {time.perf_counter() - started:5.1f} s", flush=True)
    return found


def first_difference(before: Any, now: Any, where: str = "") -> str | None:
    if isinstance(before, dict) and isinstance(now, dict):
        if before.keys() != now.keys():
            return f"{where} has {sorted(before.keys() ^ now.keys())} on one side only"
        pairs = [(f"{where}/{key}", before[key], now[key]) for key in before]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [(f"{where}/{index}", *pair) for index, pair in enumerate(zip(before, now, strict=True))]
    else:
        return None if before == now else f"{where}: {before} became {now}"
    return next((found for pair in pairs if (found := first_difference(pair[1], pair[2], pair[0]))), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of runs; all by default")
    chosen = parser.parse_args()
    found = results(chosen.only)
    path = chosen.directory / "results.json"
    if chosen.command == "record":
        chosen.directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
        return
    recorded = json.loads(path.read_text())
    found = json.loads(json.dumps(found))  # as the recording went through JSON too
    differences = {name: first_difference(recorded[name], found[name]) for name in found}
    for name, difference in differences.items():
        print(f"{name:<28} {difference or 'identical'}")
    moved = sum(difference is not None for difference in differences.values())
    print(f"{len(differences) - moved} identical, {moved} moved")
    raise SystemExit(1 if moved else 0)


if __name__ == "__main__":
    main()
