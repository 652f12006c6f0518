"""PPO with three clip ranges against the ESS objective, which has none to choose (arXiv 2605.12380).

    python benchmarks/ess.py [--seeds 4] [--jobs 2] [--out DIR] [--results docs/results]

On fresh data and on data that is 4 iterations old. Writes ess.csv and ess.png, and prints the tables of
docs/results/ess.md.
"""

import matplotlib.pyplot as plt
import numpy as np
from command_line import arguments
from experiment import Trial, carry_out, cell, interval, outcomes, select, write_csv

STEPS = {"CartPole-v1": 100_000}
NUM_ENVS, HORIZON = 16, 64
LEVELS = (0, 4)
OBJECTIVES = {
    "clip 0.1": {"algorithm": "ppo", "clip_range": 0.1},
    "clip 0.2": {"algorithm": "ppo", "clip_range": 0.2},
    "clip 0.4": {"algorithm": "ppo", "clip_range": 0.4},
    "ESS": {"algorithm": "ess"},
}


def trial(env, objective, staleness, seed):
    options = {
        **OBJECTIVES[objective],
        "steps": STEPS[env] + staleness * NUM_ENVS * HORIZON,
        "num_envs": NUM_ENVS,
        "horizon": HORIZON,
        "epochs": 4,
        "minibatches": 4,
        "advantage_norm": "batch",
        "staleness": staleness,
        "anneal_learning_rate": False,
        "evaluation_episodes": 0,
        "seed": seed,
    }
    if OBJECTIVES[objective]["algorithm"] == "ppo":
        options["staleness_mode"] = "behavior"  # plain PPO, which has one old policy
    return Trial({"objective": objective.replace(" ", "-"), "staleness": staleness, "seed": seed}, env, options)


def main():
    given = arguments(__doc__, seeds=4)
    trials = [
        trial(env, objective, staleness, seed)
        for seed in range(1, given.seeds + 1)
        for env in STEPS
        for staleness in LEVELS
        for objective in OBJECTIVES
    ]
    rows = outcomes(trials, carry_out(trials, given.out / "ess", given.jobs))
    write_csv(rows, given.results / "ess.csv")
    draw(rows, given.results / "ess.png")
    for metric in ("final_return", "mean_return"):
        for env in STEPS:
            print(f"\n{env}, {metric.replace('_', ' ')}\n\n| | fresh | {LEVELS[1]} iterations old |\n|---|---|---|")
            for objective in OBJECTIVES:
                cells = [cell(returns(rows, env, objective, staleness, metric)) for staleness in LEVELS]
                print(f"| {objective} | {' | '.join(cells)} |")


def returns(rows, env, objective, staleness, metric):
    chosen = select(rows, env=env, objective=objective.replace(" ", "-"), staleness=staleness)
    return [row[metric] for row in chosen]


def draw(rows, path):
    figure, axes = plt.subplots(1, len(STEPS), figsize=(6 * len(STEPS), 4), squeeze=False)
    places = np.arange(len(OBJECTIVES))
    for axis, env in zip(axes[0], STEPS, strict=True):
        for shift, staleness in enumerate(LEVELS):
            found = [interval(returns(rows, env, objective, staleness, "mean_return")) for objective in OBJECTIVES]
            mean, low, high = np.array(found).T
            label = f"{staleness} iterations old" if staleness else "fresh"
            axis.errorbar(places + 0.12 * shift, mean, (mean - low, high - mean), fmt="o", capsize=4, label=label)
        axis.set_xticks(places, list(OBJECTIVES))
        axis.set(title=env, ylabel="return, mean over training")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
