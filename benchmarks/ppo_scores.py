"""PPO on CartPole and MuJoCo, beside the scores that CleanRL publishes.

    python benchmarks/ppo_scores.py [--seeds 3] [--jobs 2] [--out DIR] [--results docs/results]

Writes ppo.csv and ppo.png, and prints the table of docs/results/ppo.md.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from command_line import arguments
from experiment import Trial, carry_out, cell, outcomes, select, write_csv

STEPS = {"CartPole-v1": 100_000, "HalfCheetah-v5": 1_000_000, "Hopper-v5": 1_000_000, "Walker2d-v5": 1_000_000}
CLEANRL = {
    "CartPole-v1": (490.0, 6.1, "500k steps"),
    "HalfCheetah-v5": (1443, 46, "v4, 1M steps"),
    "Hopper-v5": (2383, 272, "v4, 1M steps"),
    "Walker2d-v5": (2288, 572, "v4, 1M steps"),
}
"""Mean and spread over seeds, from the benchmark pages of its documentation."""


def main():
    given = arguments(__doc__, seeds=3)
    trials = [
        Trial({"seed": seed}, env, {"algorithm": "ppo", "steps": steps, "seed": seed})
        for seed in range(1, given.seeds + 1)
        for env, steps in STEPS.items()
    ]
    directories = carry_out(trials, given.out / "ppo", given.jobs)
    rows = outcomes(trials, directories)
    write_csv(rows, given.results / "ppo.csv")
    draw(trials, directories, given.results / "ppo.png")
    print("| env | steps | final return: mean [95% interval] | seeds | greedy | CleanRL |\n|---|---|---|---|---|---|")
    for env, (mean, spread, when) in CLEANRL.items():
        chosen = select(rows, env=env)
        finals = ", ".join(f"{row['final_return']:.0f}" for row in chosen)
        greedy = ", ".join(f"{row['evaluation_return']:.0f}" for row in chosen)
        found = cell([row["final_return"] for row in chosen], 0)
        print(f"| {env} | {STEPS[env]:,} | {found} | {finals} | {greedy} | {mean} ± {spread} ({when}) |")


def draw(trials, directories, path):
    figure, axes = plt.subplots(1, len(STEPS), figsize=(14, 3.4))
    for axis, (env, (mean, spread, when)) in zip(axes, CLEANRL.items(), strict=True):
        for trial, directory in zip(trials, directories, strict=True):
            if trial.env == env and (directory / "metrics.jsonl").exists():
                steps, returns = curve(directory)
                axis.plot(steps / 1e3, returns, linewidth=1.2, label=f"seed {trial.labels['seed']}")
        axis.axhspan(mean - spread, mean + spread, color="grey", alpha=0.25, label=f"CleanRL ({when})")
        axis.set(title=env, xlabel="thousand env steps", ylabel="return, last 100 episodes")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def curve(directory):
    rows = [json.loads(line) for line in (Path(directory) / "metrics.jsonl").read_text().splitlines()]
    known = [(row["env_steps"], row["episode_return"]) for row in rows if "episode_return" in row]
    return map(np.array, zip(*known, strict=True))


if __name__ == "__main__":
    main()
