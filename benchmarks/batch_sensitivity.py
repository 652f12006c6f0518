"""Does the batch size matter less once the policy has settled?

    python benchmarks/batch_sensitivity.py --seeds 2 --jobs 2 --out runs/branches --results docs/results/abs-minatar

A run with a fixed horizon of 32 is stopped at several moments. From each, branches go on for a fifteenth of the run
with a horizon of 16, 32 or 64, four of each, which differ in their exploration and in the order of their minibatches.
The score of a branch is the mean return of greedy episodes at its end. Two forms: as in ABS the number of minibatches
is the same for all horizons (so a short one makes more gradient steps per sample), or their size is (so none does).
"""

import copy
import csv
import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from command_line import arguments
from experiment import write_csv
from nonstationarity import ENVS

from swell.loop import train
from swell.presets import make_config
from swell.runs.agent import greedy_returns
from swell.runs.build import build

SENSITIVE_ENVS = ("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1", "MinAtar/Asterix-v1", "LunarLander-v3")
MOMENTS = (0.05, 0.15, 0.35, 0.7)
HORIZONS = (16, 32, 64)
BRANCHES = 4
BRANCH_LENGTH = 1 / 15
EPISODES = 50


def branch_scores(env, seed, rule, path):
    """All branches of one run, one row each, written to `path`."""
    if path.exists():
        return
    config = make_config(env, scaler="fixed", horizon=32, seed=seed, threads=1, measure_every=1, **ENVS[env])
    if rule == "size":
        config = replace(config, minibatch_rule="size", minibatch_size=config.num_envs * 32 // config.minibatches)
    trunk, rows, readings = build(config), [], []
    moments = list(MOMENTS)
    parts = {horizon: build(replace(config, horizon=horizon)) for horizon in HORIZONS}
    total = config.total_env_steps
    for iteration in train(trunk.collector, trunk.learner, trunk.measurement, trunk.scaler, total):
        readings.append(iteration.reading)
        if iteration.env_steps < moments[0] * total:
            continue
        moment = moments.pop(0)
        state = copy.deepcopy(trunk.state_dict())
        before = score(trunk, config, 0)
        for horizon, branch in product(HORIZONS, range(BRANCHES)):
            grow(parts[horizon], state, 1000 * seed + branch, total)
            rows.append(
                {
                    "env": env,
                    "seed": seed,
                    "rule": rule,
                    "moment": moment,
                    "divergence": float(np.mean(readings[-5:])),
                    "before": before,
                    "horizon": horizon,
                    "branch": branch,
                    "after": score(parts[horizon], config, branch + 1),
                    "gradient_steps": parts[horizon].learner.gradient_steps - trunk.learner.gradient_steps,
                }
            )
        if not moments:
            break
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(rows, path)


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
    return float(np.mean(greedy_returns(parts.learner.greedy_actions, config, parts.device, EPISODES, seed)))


def sensitivity(rows):
    """What the horizon explains of the branches' scores beyond chance: ω² of an analysis of variance with blocks.

    And the difference of means between the shortest and the longest horizon, in standard deviations. Branches of the
    same number share their random numbers and their evaluation envs, so each number is a block.
    """
    scores = np.array([[float(row["after"]) for row in rows if int(row["horizon"]) == h] for h in HORIZONS])
    by_horizon, by_branch = scores.mean(axis=1), scores.mean(axis=0)
    residual = scores - by_horizon[:, None] - by_branch[None, :] + scores.mean()
    degrees = len(HORIZONS) - 1
    noise = (residual**2).sum() / (degrees * (scores.shape[1] - 1))
    between = scores.shape[1] * ((by_horizon - scores.mean()) ** 2).sum()
    if noise == 0.0:
        return math.nan, math.nan
    omega = (between - degrees * noise) / (between + (residual**2).sum() + noise)
    return omega, (by_horizon[0] - by_horizon[-1]) / math.sqrt(noise)


def main():
    options = arguments(__doc__, seeds=2)
    jobs = [
        (env, seed, rule) for rule, seed, env in product(("count", "size"), range(1, options.seeds + 1), SENSITIVE_ENVS)
    ]
    paths = {job: options.out / f"{job[0].replace('/', '-')}-s{job[1]}-{job[2]}.csv" for job in jobs}
    if options.jobs:
        with ProcessPoolExecutor(options.jobs) as pool:
            list(pool.map(branch_scores, *zip(*jobs, strict=True), paths.values()))
    rows = []
    for job in jobs:
        if paths[job].exists():
            with open(paths[job], newline="") as file:
                rows += csv.DictReader(file)
    write_csv(rows, options.results / "branches.csv")
    print("| rule | env | moment | divergence | score before | " + " | ".join(f"after, {h}" for h in HORIZONS), end="")
    print(" | ω² | (16 − 64) / deviation |\n|" + "---|" * (7 + len(HORIZONS)))
    for rule, env, moment in product(("count", "size"), SENSITIVE_ENVS, MOMENTS):
        runs = [row for row in rows if (row["rule"], row["env"], float(row["moment"])) == (rule, env, moment)]
        if not runs:
            continue
        by_seed = [[row for row in runs if row["seed"] == seed] for seed in sorted({row["seed"] for row in runs})]
        omega, effect = np.nanmean([sensitivity(group) for group in by_seed], axis=0)
        means = [np.mean([float(row["after"]) for row in runs if int(row["horizon"]) == h]) for h in HORIZONS]
        divergence, before = (np.mean([float(row[name]) for row in runs]) for name in ("divergence", "before"))
        cells = " | ".join(f"{mean:.1f}" for mean in means)
        print(
            f"| {rule} | {env} | {moment} | {divergence:.2f} | {before:.1f} | {cells} | {omega:+.2f} | {effect:+.1f} |"
        )


if __name__ == "__main__":
    main()
