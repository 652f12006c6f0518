"""Does the size of the batch still matter when the rules of arXiv 2110.00641 are on? Its figures 2 and 3, made small.

    python benchmarks/invariance.py [--seeds 3] [--jobs 2] [--out DIR] [--results docs/results]

PPO-EWMA with batches divided by c = 1, 4, 16, 64, by having fewer envs: with all rules, with none, with all but one.
Writes invariance.csv and invariance.png, and prints the tables of docs/results/invariance.md.
"""

import matplotlib.pyplot as plt
import numpy as np
from command_line import arguments
from experiment import Trial, carry_out, cell, interval, outcomes, select, write_csv

DIVISORS = (1, 4, 16, 64)
REFERENCE_ENVS, HORIZON = 64, 64
RULES = ("learning-rate", "proximal", "advantages")
STEPS = {"CartPole-v1": 200_000, "MinAtar/Breakout-v1": 150_000}
OWN = {
    "CartPole-v1": {"learning_rate": 1e-2, "hidden": 64, "entropy_coefficient": 0.01},
    "MinAtar/Breakout-v1": {"learning_rate": 5e-3},
}
"""Tuned a little at c = 1, where one epoch over a large batch wants a high rate."""
LEFT_OUT = {
    ("CartPole-v1", 16): RULES,
    ("MinAtar/Breakout-v1", 16): RULES,
    ("CartPole-v1", 64): ("learning-rate", "advantages"),
}
"""Where single rules are left out in turn; runs with the smallest batch take the longest."""
NAMES = {"all": "all rules", "none": "no rules", **{f"no-{rule}": f"all but {rule}" for rule in RULES}}


def trial(env, divisor, rules, seed):
    kept = {"all": RULES, "none": ()}.get(rules, tuple(rule for rule in RULES if rules != f"no-{rule}"))
    options = {
        "preset": "ppo-ewma",
        "steps": STEPS[env],
        "num_envs": REFERENCE_ENVS // divisor,
        "horizon": HORIZON,
        "reference_batch": REFERENCE_ENVS * HORIZON,
        "minibatches": 8,
        "architecture": "shared",
        **OWN[env],
        "anneal_learning_rate": False,
        "evaluation_episodes": 0,
        "seed": seed,
    }
    if kept:
        options |= {"invariance": "on", "invariance_rules": kept}
    return Trial({"divisor": divisor, "rules": rules, "seed": seed}, env, options)


def grid(seeds):
    """Cheap runs first; at c = 1 the rules change nothing, so one run stands for all."""
    every = range(1, seeds + 1)
    for divisor in DIVISORS:
        whole = ("all",) if divisor == 1 else ("all", "none")
        yield from [trial(env, divisor, rules, seed) for seed in every for env in STEPS for rules in whole]
    for (env, divisor), rules in LEFT_OUT.items():
        yield from [trial(env, divisor, f"no-{rule}", seed) for seed in every for rule in rules]


def returns(rows, env, divisor, rules, metric):
    return [row[metric] for row in select(rows, env=env, divisor=divisor, rules="all" if divisor == 1 else rules)]


def main():
    given = arguments(__doc__, seeds=3)
    trials = list(grid(given.seeds))
    rows = outcomes(trials, carry_out(trials, given.out / "invariance", given.jobs))
    write_csv(rows, given.results / "invariance.csv")
    draw(rows, given.results / "invariance.png")
    for metric in ("final_return", "mean_return"):
        table(rows, metric)


def table(rows, metric):
    for env in STEPS:
        print(f"\n{env}, {metric.replace('_', ' ')}\n")
        print(f"| | {' | '.join(f'c = {divisor}' for divisor in DIVISORS)} | spread of the means |")
        print("|---|" + "---|" * (len(DIVISORS) + 1))
        for rules, name in NAMES.items():
            values = [returns(rows, env, divisor, rules, metric) for divisor in DIVISORS]
            means = [np.mean(found) for found in values if found]
            print(f"| {name} | {' | '.join(map(cell, values))} | {max(means) - min(means):.1f} |")


def draw(rows, path):
    figure, axes = plt.subplots(1, len(STEPS), figsize=(11, 4))
    for axis, env in zip(axes, STEPS, strict=True):
        for shift, (rules, name) in enumerate(NAMES.items()):
            found = [(c, interval(returns(rows, env, c, rules, "mean_return"))) for c in DIVISORS]
            found = [(c, *values) for c, values in found if not np.isnan(values[0])]
            if len(found) < 2:
                continue
            divisors, mean, low, high = map(np.array, zip(*found, strict=True))
            place = divisors * 1.06 ** (shift - 2)
            axis.errorbar(place, mean, (mean - low, high - mean), marker="o", capsize=3, label=name, linewidth=1.2)
        axis.set_xscale("log", base=4)
        axis.set_xticks(DIVISORS, [f"{REFERENCE_ENVS * HORIZON // c:,}" for c in DIVISORS])
        axis.set(title=env, xlabel="transitions per rollout", ylabel="return, mean over training")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
