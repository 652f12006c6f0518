"""Does the size of the batch still matter when the rules of arXiv 2110.00641 are on? Its figures 2 and 3, made small.

    python -m benchmarks.invariance --results docs/results

PPO-EWMA with batches divided by c = 1, 4, 16, 64, by having fewer envs: with all rules, with none, with all but one.
Starts `swell bench`, writes invariance.csv and invariance.png, and prints the tables of docs/results/invariance.md.
"""

import numpy as np
from benchmarks.study import METRICS, Bench, Side, carry_out, cell, draw, table, values

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
    "CartPole-v1": {16: RULES, 64: ("learning-rate", "advantages")},
    "MinAtar/Breakout-v1": {16: RULES},
}
"""Where single rules are left out in turn; runs with the smallest batch take the longest."""
NAMES = {"all": "all rules", "none": "no rules", **{f"no-{rule}": f"all but {rule}" for rule in RULES}}


def side(divisor, rules):
    kept = [] if rules == "none" else [rule for rule in RULES if rules != f"no-{rule}"]
    switch = f"+invariance=on+invariance_rules={','.join(kept)}" if kept else ""
    variant = f"ppo-ewma+num_envs={REFERENCE_ENVS // divisor}{switch}"
    return Side(f"c{divisor}-{rules}", variant, {"divisor": divisor, "rules": rules})


def bench(env):
    """At c = 1 the rules change nothing, so one run stands for all."""
    whole = [
        side(divisor, rules) for divisor in DIVISORS for rules in ("all", "none") if (divisor, rules) != (1, "none")
    ]
    single = [side(divisor, f"no-{rule}") for divisor, rules in LEFT_OUT[env].items() for rule in rules]
    options = {
        "horizon": HORIZON,
        "reference_batch": REFERENCE_ENVS * HORIZON,
        "minibatches": 8,
        "architecture": "shared",
        **OWN[env],
        "anneal_learning_rate": "false",
        "evaluation_episodes": 0,
    }
    return Bench((env,), (*whole, *single), STEPS[env], options)


def returns(rows, metric, env, rules):
    return [values(rows, metric, env=env, divisor=c, rules="all" if c == 1 else rules) for c in DIVISORS]


def tables(rows):
    header = ["", *(f"c = {divisor}" for divisor in DIVISORS), "spread of the means"]
    for metric, title in METRICS.items():
        for env in STEPS:
            lines = []
            for rules, name in NAMES.items():
                found = returns(rows, metric, env, rules)
                means = [np.mean(numbers) for numbers in found if numbers] or [np.nan]
                lines.append([name, *map(cell, found), f"{max(means) - min(means):.1f}"])
            yield f"\n{env}: {title}\n" + table(header, lines)


def panels(rows):
    sizes = [f"{REFERENCE_ENVS * HORIZON // c:,}" for c in DIVISORS]
    for env in STEPS:
        lines = {name: returns(rows, "mean_return", env, rules) for rules, name in NAMES.items()}
        yield env, "transitions per rollout", METRICS["mean_return"], sizes, lines


def main():
    rows, _, picture = carry_out([bench(env) for env in STEPS], __doc__, seeds=3, name="invariance")
    print(*tables(rows), sep="\n")
    draw(list(panels(rows)), picture)


if __name__ == "__main__":
    main()
