"""PPO on MuJoCo at a million steps, beside the scores that CleanRL publishes.

    python benchmarks/ppo_mujoco.py [--seeds 3] [--jobs 2] [--out DIR] [--results docs/results]

Writes ppo-mujoco.csv and ppo-mujoco.png, and prints the table of docs/results/ppo.md.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from command_line import arguments
from experiment import Trial, carry_out, cell, outcomes, select, write_csv

CLEANRL = {"HalfCheetah-v5": (1443, 46), "Hopper-v5": (2383, 272), "Walker2d-v5": (2288, 572)}
"""Mean and spread over seeds at a million steps on the v4 envs, docs/benchmark of CleanRL."""


def main():
    given = arguments(__doc__, seeds=3)
    trials = [
        Trial({"seed": seed}, env, {"algorithm": "ppo", "seed": seed})
        for seed in range(1, given.seeds + 1)
        for env in CLEANRL
    ]
    directories = carry_out(trials, given.out / "mujoco", given.jobs)
    rows = outcomes(trials, directories)
    write_csv(rows, given.results / "ppo-mujoco.csv")
    draw(trials, directories, given.results / "ppo-mujoco.png")
    print("| env | final return: mean [95% interval] | seeds | CleanRL (v4) |\n|---|---|---|---|")
    for env, (mean, spread) in CLEANRL.items():
        finals = [row["final_return"] for row in select(rows, env=env)]
        print(f"| {env} | {cell(finals, 0)} | {', '.join(f'{x:.0f}' for x in finals)} | {mean} ± {spread} |")


def draw(trials, directories, path):
    figure, axes = plt.subplots(1, len(CLEANRL), figsize=(12, 3.5))
    for axis, (env, (mean, spread)) in zip(axes, CLEANRL.items(), strict=True):
        for trial, directory in zip(trials, directories, strict=True):
            if trial.env == env and (directory / "metrics.jsonl").exists():
                steps, returns = curve(directory)
                axis.plot(steps / 1e6, returns, linewidth=1.2, label=f"seed {trial.labels['seed']}")
        axis.axhspan(mean - spread, mean + spread, color="grey", alpha=0.25, label="CleanRL at 1M")
        axis.set(title=env, xlabel="million env steps", ylabel="return, last 100 episodes")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def curve(directory):
    rows = [json.loads(line) for line in (Path(directory) / "metrics.jsonl").read_text().splitlines()]
    known = [(row["env_steps"], row["episode_return"]) for row in rows if "episode_return" in row]
    return map(np.array, zip(*known, strict=True))


if __name__ == "__main__":
    main()
