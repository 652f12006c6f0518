"""How stale may data be? PPO with the old policy in one role, in the other or in both: figure 1 of arXiv 2110.00641.

    python benchmarks/staleness.py [--seeds 3] [--jobs 2] [--out DIR] [--results docs/results]

Rollouts wait 0 to 16 iterations before they are trained on. Runs are longer by the steps that fill the queue, so that
all make the same number of gradient steps. Writes staleness.csv and staleness.png, and prints the table of
docs/results/staleness.md.
"""

import matplotlib.pyplot as plt
import numpy as np
from command_line import arguments
from experiment import Trial, carry_out, cell, interval, outcomes, select, write_csv

ENV = "CartPole-v1"
LEVELS = (0, 1, 2, 4, 8, 16)
MODES = ("behavior", "recent", "decoupled")
NUM_ENVS, HORIZON, STEPS = 16, 64, 100_000


def trial(staleness, mode, seed):
    options = {
        "algorithm": "ppo",
        "steps": STEPS + staleness * NUM_ENVS * HORIZON,
        "num_envs": NUM_ENVS,
        "horizon": HORIZON,
        "epochs": 4,
        "minibatches": 4,
        "staleness": staleness,
        "staleness_mode": mode,
        "anneal_learning_rate": False,
        "evaluation_episodes": 0,
        "seed": seed,
    }
    return Trial({"staleness": staleness, "mode": mode, "seed": seed}, ENV, options)


def main():
    given = arguments(__doc__, seeds=3)
    trials = [
        trial(staleness, mode, seed)
        for seed in range(1, given.seeds + 1)
        for staleness in LEVELS
        for mode in (MODES if staleness else MODES[:1])  # fresh data: the modes are the same
    ]
    rows = outcomes(trials, carry_out(trials, given.out / "staleness", given.jobs))
    write_csv(rows, given.results / "staleness.csv")
    draw(rows, given.results / "staleness.png")
    for metric in ("final_return", "mean_return"):
        print(f"\n{metric.replace('_', ' ')}\n\n| staleness | {' | '.join(MODES)} |\n|---|---|---|---|")
        for staleness in LEVELS:
            print(f"| {staleness} | {' | '.join(cell(returns(rows, staleness, mode, metric)) for mode in MODES)} |")


def returns(rows, staleness, mode, metric):
    return [row[metric] for row in select(rows, staleness=staleness, mode=mode if staleness else MODES[0])]


def draw(rows, path):
    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    for axis, metric in zip(axes, ("final_return", "mean_return"), strict=True):
        for mode in MODES:
            found = np.array([interval(returns(rows, staleness, mode, metric)) for staleness in LEVELS]).T
            mean, low, high = found
            axis.plot(range(len(LEVELS)), mean, marker="o", label=mode)
            axis.fill_between(range(len(LEVELS)), low, high, alpha=0.15)
        axis.set_xticks(range(len(LEVELS)), LEVELS)
        ylabel = "return, last 100 episodes" if metric == "final_return" else "return, mean over training"
        axis.set(xlabel="staleness in iterations", ylabel=ylabel, title=ENV)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
