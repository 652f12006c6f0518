"""Does behavioral divergence say what other signs of non-stationarity say?

    python -m benchmarks.nonstationarity --seeds 2 --results docs/results/abs-minatar

Runs PQN with a fixed horizon, so that nothing feeds back, and takes five readings around every update, on the same
states: behavioral divergence; the action gap (best minus second-best value, over the deviation of the values); the
change of the values (mean absolute, over the same deviation); the loss; and the slope of the training return over a
tenth of the run, over its deviation in the whole run. Per run, the rank correlation of divergence with each; then the
same after the trend over the run has been taken out of both, because all of them fall with the learning rate and would
correlate anyway. One run after another: only a loop of one's own can look at the network before and after an update.
"""

import math
from itertools import product

import numpy as np
import torch
from benchmarks.study import interval, kept, make_parser, prepare_results, table, values, write_csv

from swell import Measurement, behavioral_divergence, train
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
        self.last = {}

    @torch.no_grad()
    def observe(self, learner, rollout):
        chosen = torch.randperm(rollout.valid_indices.shape[0], generator=self.generator)[:2048]
        states = rollout.states[rollout.valid_indices[chosen]]
        return states, learner.network(states)

    @torch.no_grad()
    def reading(self, look, learner):
        states, before = look
        after = learner.network(states)
        best, best_two = before.amax(dim=1), before.topk(2, dim=1).values
        deviation = best.std().item() + 1e-8
        divergence = behavioral_divergence(before.argmax(dim=1), after.argmax(dim=1))
        self.last = {
            "divergence": divergence,
            "action_gap": (best_two[:, 0] - best_two[:, 1]).mean().item() / deviation,
            "value_change": (after.amax(dim=1) - best).abs().mean().item() / deviation,
        }
        return divergence

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def signs_of_a_run(env, seed):
    """One row per update."""
    config = make_config(env, scaler="fixed", horizon=32, seed=seed, threads=1, **ENVS[env])
    parts, signs, rows = build(config), Signs(seed), []
    measurement = Measurement(signs, 1, "iterations")
    for iteration in train(parts.collector, parts.learner, measurement, parts.scaler, config.total_env_steps):
        returns = parts.collector.episodes.returns
        mean = float(np.mean(returns)) if returns else math.nan
        logged = {"env_steps": iteration.env_steps, "loss": iteration.metrics["loss"], "episode_return": mean}
        rows.append({"env": env, "seed": seed, **signs.last, **logged})
    parts.collector.envs.close()
    return with_slopes(rows)


def with_slopes(rows):
    """The slope of the return over a window of a tenth of the run around each update, in deviations per run."""
    returns = np.array([row["episode_return"] for row in rows])
    steps = np.array([row["env_steps"] for row in rows]) / rows[-1]["env_steps"]
    half = max(2, len(rows) // 20)
    slopes = []
    for index in range(len(rows)):
        window = slice(max(0, index - half), index + half + 1)
        known = ~np.isnan(returns[window])
        slope = np.polyfit(steps[window][known], returns[window][known], 1)[0] if known.sum() >= 4 else math.nan
        slopes.append(abs(slope) / (np.nanstd(returns) + 1e-8))
    return [{**row, "return_slope": slope} for row, slope in zip(rows, slopes, strict=True)]


def correlations(rows):
    """Rank correlation of divergence with each sign: as it is, and without the trend over the run."""
    series = {name: np.array([row[name] for row in rows]) for name in ("divergence", *SIGNS)}
    found = {}
    for sign in SIGNS:
        known = ~np.isnan(series[sign])
        divergence, other = series["divergence"][known], series[sign][known]
        found[sign] = spearman(divergence, other)
        found[f"{sign} without trend"] = spearman(detrended(divergence), detrended(other))
    return found


def detrended(numbers, window=15):
    """Numbers less their running median: what is left is faster than the schedules of the run."""
    padded = np.pad(numbers, window // 2, mode="edge")
    return numbers - np.median(np.lib.stride_tricks.sliding_window_view(padded, window), axis=1)


def tables(rows):
    names = [name for name in rows[0] if name not in ("env", "seed")]
    lines = [[env, *(f"{interval(values(rows, n, env=env))[0]:+.2f}" for n in names)] for env in ENVS]
    whole = [interval(values(rows, name)) for name in names]
    lines.append(["all runs", *(f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" for mean, low, high in whole)])
    yield table(["env", *names], lines)


def main():
    given = make_parser(__doc__, seeds=3, out="runs/signs").parse_args()
    rows = []
    for seed, env in product(range(1, given.seeds + 1), ENVS):
        path = given.out / f"{env.replace('/', '-')}-s{seed}.csv"
        if path.exists() or not given.report_only:
            rows.append({"env": env, "seed": seed, **correlations(kept(path, signs_of_a_run, env, seed))})
    write_csv(rows, prepare_results(given) / "signs.csv")
    print(*tables(rows), sep="\n")


if __name__ == "__main__":
    main()
