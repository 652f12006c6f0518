"""Does behavioral divergence say what other signs of non-stationarity say?

    python benchmarks/nonstationarity.py --seeds 3 --jobs 2 --out runs/signs --results docs/results/abs-minatar

Runs PQN with a fixed horizon, so that nothing feeds back, and takes five readings around every update, on the same
states: behavioral divergence; the action gap (best minus second-best value, over the deviation of the values); the
change of the values (mean absolute, over the same deviation); the loss; and the slope of the training return over a
tenth of the run, over its deviation in the whole run. Per run, the rank correlation of divergence with each; then the
same after the trend over the run has been taken out of both, because all of them fall with the learning rate and would
correlate anyway.
"""

import csv
import math
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
import torch
from command_line import arguments
from experiment import interval, write_csv

from swell.batch.signals import Measurement, behavioral_divergence
from swell.loop import train
from swell.presets import make_config
from swell.report.stats import spearman
from swell.runs.build import build

ENVS = {
    **{
        f"MinAtar/{game}-v1": {"total_env_steps": 200_000}
        for game in ("Breakout", "Asterix", "SpaceInvaders", "Seaquest")
    },
    "CartPole-v1": {"total_env_steps": 150_000, "minibatch_rule": "count", "minibatches": 8},
    "Acrobot-v1": {"total_env_steps": 200_000, "minibatch_rule": "count", "minibatches": 8},
    "LunarLander-v3": {"total_env_steps": 200_000, "minibatch_rule": "count", "minibatches": 32},
}
SIGNS = ("action_gap", "value_change", "loss", "return_slope")


class Signs:
    """A signal that also keeps what else can be seen around an update."""

    name = "behavioral_divergence"

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.rows = []

    @torch.no_grad()
    def observe(self, learner, rollout):
        chosen = torch.randperm(rollout.valid_indices.shape[0], generator=self.generator)[:2048]
        states = rollout.states[rollout.valid_indices[chosen]]
        return states, learner.network(states)

    @torch.no_grad()
    def reading(self, look, learner):
        states, before = look
        after = learner.network(states)
        values, best_two = before.amax(dim=1), before.topk(2, dim=1).values
        deviation = values.std().item() + 1e-8
        divergence = behavioral_divergence(before.argmax(dim=1), after.argmax(dim=1))
        self.rows.append(
            {
                "divergence": divergence,
                "action_gap": (best_two[:, 0] - best_two[:, 1]).mean().item() / deviation,
                "value_change": (after.amax(dim=1) - values).abs().mean().item() / deviation,
            }
        )
        return divergence

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def signs_of_a_run(env, seed, path):
    """One row per update, written to `path`."""
    if path.exists():
        return
    config = make_config(env, scaler="fixed", horizon=32, seed=seed, threads=1, **ENVS[env])
    parts, signs = build(config), Signs(seed)
    measurement = Measurement(signs, 1, "iterations")
    rows = []
    for iteration in train(parts.collector, parts.learner, measurement, parts.scaler, config.total_env_steps):
        returns = parts.collector.episodes.returns
        rows.append(
            {
                "env": env,
                "seed": seed,
                "env_steps": iteration.env_steps,
                **signs.rows[-1],
                "loss": iteration.metrics["loss"],
                "episode_return": float(np.mean(returns)) if returns else math.nan,
            }
        )
    add_slopes(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(rows, path)


def add_slopes(rows):
    """The slope of the return over a window of a tenth of the run around each update, in deviations per run."""
    returns = np.array([row["episode_return"] for row in rows])
    steps = np.array([row["env_steps"] for row in rows]) / rows[-1]["env_steps"]
    half = max(2, len(rows) // 20)
    for index, row in enumerate(rows):
        window = slice(max(0, index - half), index + half + 1)
        known = ~np.isnan(returns[window])
        enough = known.sum() >= 4
        slope = np.polyfit(steps[window][known], returns[window][known], 1)[0] if enough else math.nan
        row["return_slope"] = abs(slope) / (np.nanstd(returns) + 1e-8)


def correlations(rows):
    """Rank correlation of divergence with each sign: as it is, and without the trend over the run."""
    table = {name: np.array([float(row[name]) for row in rows]) for name in ("divergence", *SIGNS)}
    found = {}
    for sign in SIGNS:
        known = ~np.isnan(table[sign])
        divergence, other = table["divergence"][known], table[sign][known]
        found[sign] = spearman(divergence, other)
        found[f"{sign} without trend"] = spearman(detrended(divergence), detrended(other))
    return found


def detrended(values, window=15):
    """Values less their running median: what is left is faster than the schedules of the run."""
    half = window // 2
    padded = np.pad(values, half, mode="edge")
    return values - np.median(np.lib.stride_tricks.sliding_window_view(padded, window), axis=1)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def main():
    options = arguments(__doc__, seeds=3)
    jobs = [(env, seed) for seed, env in product(range(1, options.seeds + 1), ENVS)]
    paths = {job: options.out / f"{job[0].replace('/', '-')}-s{job[1]}.csv" for job in jobs}
    if options.jobs:
        with ProcessPoolExecutor(options.jobs) as pool:
            list(pool.map(signs_of_a_run, *zip(*jobs, strict=True), paths.values()))
    rows = [
        {"env": env, "seed": seed, **correlations(read(paths[env, seed]))}
        for env, seed in jobs
        if paths[env, seed].exists()
    ]
    write_csv(rows, options.results / "signs.csv")
    names = [name for name in rows[0] if name not in ("env", "seed")]
    print("| env | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
    for env in ENVS:
        means = [interval([row[name] for row in rows if row["env"] == env])[0] for name in names]
        print(f"| {env} | " + " | ".join(f"{mean:+.2f}" for mean in means) + " |")
    cells = [interval([row[name] for row in rows]) for name in names]
    print("| all runs | " + " | ".join(f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" for mean, low, high in cells) + " |")


if __name__ == "__main__":
    main()
