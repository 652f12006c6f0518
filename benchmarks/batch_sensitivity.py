"""Does the batch size matter less once the policy has settled?

    python -m benchmarks.batch_sensitivity --seeds 1 --results docs/results/abs-minatar

A run with a fixed horizon of 32 is stopped at several moments. From each, branches go on for a fifteenth of the run
with a horizon of 16, 32 or 64, four of each, which differ in their exploration and in the order of their minibatches.
The score of a branch is the mean return of greedy episodes at its end. Two forms: as in ABS the number of minibatches
is the same for all horizons (so a short one makes more gradient steps per sample), or their size is (so none does).
One run after another: a branch starts from the middle of another run, which `swell bench` cannot do.
"""

import copy
import math
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from benchmarks.nonstationarity import ENVS
from benchmarks.study import kept, make_parser, prepare_results, table, values, write_csv

from swell import train
from swell.presets import make_config
from swell.runs.build import build
from swell.runs.evaluation import greedy_episodes

SENSITIVE_ENVS = ("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1", "MinAtar/Asterix-v1", "LunarLander-v3")
RULES = ("count", "size")
MOMENTS = (0.05, 0.15, 0.35, 0.7)
HORIZONS = (16, 32, 64)
BRANCHES = 4
BRANCH_LENGTH = 1 / 15
EPISODES = 50


def branch_scores(env, seed, rule):
    """All branches of one run, one row each."""
    config = make_config(env, scaler="fixed", horizon=32, seed=seed, threads=1, measure_every=1, **ENVS[env])
    if rule == "size":
        config = replace(config, minibatch_rule="size", minibatch_size=config.num_envs * 32 // config.minibatches)
    trunk, rows, readings = build(config), [], []
    parts = {horizon: build(replace(config, horizon=horizon)) for horizon in HORIZONS}
    moments, total = list(MOMENTS), config.total_env_steps
    for iteration in train(trunk.collector, trunk.learner, trunk.measurement, trunk.scaler, total):
        readings.append(iteration.reading)
        if iteration.env_steps < moments[0] * total:
            continue
        state, where = copy.deepcopy(trunk.state_dict()), {"env": env, "seed": seed, "rule": rule}
        where |= {"moment": moments.pop(0), "divergence": float(np.mean(readings[-5:]))}
        where |= {"before": score(trunk, config, 0)}
        for horizon, branch in product(HORIZONS, range(BRANCHES)):
            grow(parts[horizon], state, 1000 * seed + branch, total)
            after = score(parts[horizon], config, branch + 1)
            made = parts[horizon].learner.gradient_steps - trunk.learner.gradient_steps
            rows.append({**where, "horizon": horizon, "branch": branch, "after": after, "gradient_steps": made})
        if not moments:
            break
    for built in (trunk, *parts.values()):
        built.collector.envs.close()
    return rows


def grow(parts, state, seed, total):
    """Continues from a state of the trunk with other exploration and another order of minibatches."""
    state = copy.deepcopy(state)
    for number, name in enumerate(("exploration", "shuffle")):
        state["learner"][name] = torch.Generator().manual_seed(2 * seed + number).get_state()
    state["scaler"] = parts.scaler.state_dict()
    parts.load_state_dict(state, resume_count=1)
    end = parts.collector.env_steps + BRANCH_LENGTH * total
    for iteration in train(parts.collector, parts.learner, parts.measurement, parts.scaler, total):
        if iteration.env_steps >= end:
            return


def score(parts, config, number):
    seed = 7_000_000 + 1000 * config.seed + number
    return float(np.mean(greedy_episodes(parts.learner.greedy_actions, config, parts.device, EPISODES, seed).returns))


def sensitivity(rows):
    """What the horizon explains of the branches' scores beyond chance: ω² of an analysis of variance with blocks.

    And the difference of means between the shortest and the longest horizon, in standard deviations. Branches of the
    same number share their random numbers and their evaluation envs, so each number is a block.
    """
    scores = np.array([values(rows, "after", horizon=horizon) for horizon in HORIZONS])
    by_horizon, by_branch = scores.mean(axis=1), scores.mean(axis=0)
    residual = scores - by_horizon[:, None] - by_branch[None, :] + scores.mean()
    degrees = len(HORIZONS) - 1
    noise = (residual**2).sum() / (degrees * (scores.shape[1] - 1))
    between = scores.shape[1] * ((by_horizon - scores.mean()) ** 2).sum()
    if noise == 0.0:
        return math.nan, math.nan
    omega = (between - degrees * noise) / (between + (residual**2).sum() + noise)
    return omega, (by_horizon[0] - by_horizon[-1]) / math.sqrt(noise)


def tables(rows):
    """The two rules beside each other, each with its ω² and effect; the scores are those of the first."""
    lines = []
    for env, moment in product(SENSITIVE_ENVS, MOMENTS):
        runs = [row for row in rows if (row["env"], row["moment"]) == (env, moment)]
        by_rule = [[row for row in runs if row["rule"] == rule] for rule in RULES]
        if all(by_rule):
            divergence, before = (np.mean(values(by_rule[0], name)) for name in ("divergence", "before"))
            after = [f"{np.mean(values(by_rule[0], 'after', horizon=horizon)):.1f}" for horizon in HORIZONS]
            effects = [text for found in by_rule for text in effect(found)]
            lines.append([env, f"{moment:.0%}", f"{divergence:.2f}", f"{before:.1f}", *after, *effects])
    after = [f"after {horizon}" for horizon in HORIZONS]
    yield table(["env", "moment", "divergence", "before", *after, "ω²", "effect", "size rule: ω²", "effect"], lines)


def effect(rows):
    """ω² and the difference, averaged over seeds."""
    by_seed = [[row for row in rows if row["seed"] == seed] for seed in sorted(set(values(rows, "seed")))]
    omega, difference = np.nanmean([sensitivity(group) for group in by_seed], axis=0)
    return f"{omega:+.2f}", f"{difference:+.1f}"


def main():
    given = make_parser(__doc__, seeds=2, out="runs/branches").parse_args()
    rows = []
    for rule, seed, env in product(RULES, range(1, given.seeds + 1), SENSITIVE_ENVS):
        path = given.out / f"{env.replace('/', '-')}-s{seed}-{rule}.csv"
        if path.exists() or not given.report_only:
            rows += kept(path, branch_scores, env, seed, rule)
    write_csv(rows, prepare_results(given) / "branches.csv")
    print(*tables(rows), sep="\n")


if __name__ == "__main__":
    main()
