"""The adaptive batch inside another library: what it does to a training there, and what a reading costs.

    python -m benchmarks.plugins study --results docs/results
    python -m benchmarks.plugins cost

`study` trains PPO of Stable-Baselines3 on CartPole with and without the callback, on five seeds, writes plugins.csv and
plugins.png and prints the table of docs/plugins.md; rows that are in the CSV already are not made again. `cost` trains
with a callback that measures and changes nothing, as often as it does by default, and without it, in turns: the weights
end the same, so the difference is the measuring. It is the processor time of the process that counts. On a busy machine
even that is uneven, so the callback of SB3 is also timed by itself.
"""

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np
from benchmarks.curves import draw_band
from benchmarks.study import cell, kept, table, values

ENV, NUM_ENVS, STEPS = "CartPole-v1", 8, 100_000
SIDES = {"fixed 64": (64, None), "fixed 256": (256, None), "adaptive 64 to 1024": (256, (64, 1024))}
"""n_steps of the model, and the range of the callback; the minibatch size is always SB3's 64."""
PANELS = {
    "episode_return": "return\n(last 100 episodes)",
    "n_steps": "steps of each env\nin a rollout",
    "reading": "KL divergence\nof an update",
}


def sb3_model(algorithm, seed, **options):
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    return algorithm("MlpPolicy", make_vec_env(ENV, NUM_ENVS, seed=seed), seed=seed, device="cpu", **options)


def study_rows(seeds, steps):
    return [row for seed in range(1, seeds + 1) for side in SIDES for row in train(side, seed, steps)]


def train(side, seed, steps):
    """One row a rollout."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    from swell.plugins.sb3 import AdaptiveBatchCallback, MeasureBatchCallback

    n_steps, adaptive = SIDES[side]
    batch = MeasureBatchCallback(verbose=0) if adaptive is None else AdaptiveBatchCallback(*adaptive)
    rows = []

    class Record(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_end(self):
            finished = [episode["r"] for episode in self.model.ep_info_buffer]
            rows.append(
                {
                    "side": side,
                    "seed": seed,
                    "env_steps": self.num_timesteps,
                    "n_steps": self.model.rollout_buffer.buffer_size,
                    "reading": batch.controller.reading,
                    "episode_return": np.mean(finished) if finished else None,
                }
            )

    started = time.time()
    sb3_model(PPO, seed, n_steps=n_steps).learn(steps, callback=[Record(), batch])
    print(f"{side}, seed {seed}: {time.time() - started:.0f} s, return {rows[-1]['episode_return']:.0f}", flush=True)
    return rows


def report(rows, picture):
    seeds = sorted({row["seed"] for row in rows})
    lines = []
    for side in SIDES:
        runs = [[row for row in rows if row["side"] == side and row["seed"] == seed] for seed in seeds]
        last = [run[-1]["episode_return"] for run in runs]
        means = [np.average(values(run, "episode_return"), weights=values(run, "n_steps")) for run in runs]
        lengths = f"{np.mean([np.mean(values(run, 'n_steps')) for run in runs]):.0f}"
        lines.append([side, cell(last), cell(means), f"{np.mean([len(run) for run in runs]):.0f}", lengths])
    header = ["", "return at the end", "return, mean over training", "updates", "mean n_steps"]
    print(table(header, lines))
    draw(rows, seeds, picture)


def draw(rows, seeds, path):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, figsize=(8, 7.5), sharex=True, height_ratios=[2, 1, 1], layout="constrained")
    for axis, (name, title) in zip(axes, PANELS.items(), strict=True):
        for side in SIDES:
            draw_band(axis, side, [points(rows, name, side, seed) for seed in seeds])
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    axes[1].set_yscale("log", base=2)
    axes[2].set(yscale="log", xlabel="env steps (millions)")
    figure.savefig(path, dpi=120)


def points(rows, name, side, seed):
    known = [(row["env_steps"], row[name]) for row in rows if row["side"] == side and row["seed"] == seed]
    return np.array([pair for pair in known if isinstance(pair[1], int | float)], dtype=float).reshape(-1, 2).T


def sb3_training(algorithm_name, **options):
    import stable_baselines3

    from swell.plugins.sb3 import MeasureBatchCallback

    class Timed(MeasureBatchCallback):
        seconds = 0.0

        def _on_rollout_start(self):
            started = time.process_time()
            super()._on_rollout_start()
            self.seconds += time.process_time() - started

        def _on_rollout_end(self):
            started = time.process_time()
            super()._on_rollout_end()
            self.seconds += time.process_time() - started

    algorithm = getattr(stable_baselines3, algorithm_name)

    def train(every):
        model = sb3_model(algorithm, 1, **options)
        callback = None if every == NEVER else Timed(every=EVERY[every], verbose=0)

        def run():
            model.learn(20_000, callback=callback)
            return callback and callback.seconds

        return run

    return train


def tianshou_training():
    from tianshou.trainer import OnPolicyTrainer

    from swell.plugins.tianshou import MeasureTrainer

    def train(every):
        algorithm, params = tianshou_ppo(seed=1)
        if every == NEVER:
            trainer = OnPolicyTrainer(algorithm, params)
        else:
            trainer = MeasureTrainer(algorithm, params, every=EVERY[every])

        def run():
            trainer.run()

        return run

    return train


def tianshou_ppo(seed):
    """PPO on CartPole with 8 envs and rollouts of 256 steps of each."""
    import gymnasium
    import torch
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)
    envs = DummyVectorEnv([lambda: gymnasium.make(ENV) for _ in range(NUM_ENVS)])
    envs.seed(seed)
    bodies = [Net(state_shape=(4,), hidden_sizes=[64, 64]) for _ in range(2)]
    actor = DiscreteActor(preprocess_net=bodies[0], action_shape=2, softmax_output=False)
    policy = DiscreteActorPolicy(actor=actor, action_space=gymnasium.spaces.Discrete(2))
    algorithm = PPO(policy=policy, critic=DiscreteCritic(preprocess_net=bodies[1]), optim=AdamOptimizerFactory(lr=3e-4))
    params = OnPolicyTrainerParams(
        training_collector=Collector(algorithm, envs, VectorReplayBuffer(20_000, NUM_ENVS)),
        max_epochs=1,
        epoch_num_steps=20_000,
        collection_step_num_env_steps=256 * NUM_ENVS,
        update_step_num_repetitions=10,
        verbose=False,
        show_progress=False,
    )
    return algorithm, params


NEVER, BY_DEFAULT, ALWAYS = "never", "by default", "of every update"
EVERY = {BY_DEFAULT: None, ALWAYS: 1}
TRAININGS = {
    "SB3 PPO, 8 × 256": (lambda: sb3_training("PPO", n_steps=256), (BY_DEFAULT,)),
    "SB3 A2C, 8 × 5": (lambda: sb3_training("A2C"), (BY_DEFAULT, ALWAYS)),
    "Tianshou PPO, 8 × 256": (tianshou_training, (BY_DEFAULT,)),
}


def cost(turns, names):
    lines = []
    for name, (make, intervals) in TRAININGS.items():
        if not name.startswith(tuple(names)):
            continue
        training = make()
        seconds = {every: [] for every in (NEVER, *intervals)}
        shares = {every: [] for every in intervals}
        for turn in range(turns):
            for every in list(seconds)[:: 1 if turn % 2 else -1]:
                run = training(every)
                started = time.process_time()
                inside = run()
                seconds[every].append(time.process_time() - started)
                if inside is not None:
                    shares[every].append(inside / (seconds[every][-1] - inside))
        plain = seconds.pop(NEVER)
        for every, found in seconds.items():
            ratios = [one / other - 1 for one, other in zip(found, plain, strict=True)]
            shown = [f"{statistics.median(plain):.2f} s", f"{100 * statistics.median(ratios):+.1f} %"]
            turn_range = f"{100 * min(ratios):+.1f} to {100 * max(ratios):+.1f} %"
            own = f"{100 * statistics.median(shares[every]):.1f} %" if shares[every] else "–"
            lines.append([name, every, *shown, turn_range, own])
    print(processor(), f"{turns} turns", sep=", ")
    print(
        table(
            ["training", "a reading", "without", "with: median of the ratios", "all turns", "by its own clock"], lines
        )
    )


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.processor())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["study", "cost"])
    parser.add_argument("--seeds", type=int, default=5, help="study: runs of each side")
    parser.add_argument("--steps", type=int, default=STEPS, help="study: env steps of each run")
    parser.add_argument("--results", type=Path, default=Path("runs/plugins"), help="study: where CSV and picture go")
    parser.add_argument("--turns", type=int, default=9, help="cost: trainings of each kind")
    parser.add_argument("--only", nargs="+", default=[""], help="cost: trainings that begin so, such as 'SB3 A2C'")
    given = parser.parse_args()
    if given.verb == "cost":
        return cost(given.turns, given.only)
    rows = kept(given.results / "plugins.csv", study_rows, given.seeds, given.steps)
    return report(rows, given.results / "plugins.png")


if __name__ == "__main__":
    main()
