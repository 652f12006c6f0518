"""PPO on CartPole and MuJoCo, beside the scores that CleanRL publishes.

    python -m benchmarks.ppo_scores --results docs/results

Starts `swell bench` with the presets as they are, writes ppo.csv and ppo.png, and prints the table of
docs/results/ppo.md.
"""

from benchmarks.study import Bench, Side, carry_out, cell, curve, table, values

STEPS = {"CartPole-v1": 100_000, "HalfCheetah-v5": 1_000_000, "Hopper-v5": 1_000_000, "Walker2d-v5": 1_000_000}
CLEANRL = {
    "CartPole-v1": (490.0, 6.1, "500k steps"),
    "HalfCheetah-v5": (1443, 46, "v4, 1M steps"),
    "Hopper-v5": (2383, 272, "v4, 1M steps"),
    "Walker2d-v5": (2288, 572, "v4, 1M steps"),
}
"""Mean and spread over seeds, from the benchmark pages of its documentation."""


def benches():
    classic, *mujoco = STEPS
    return [
        Bench((classic,), (Side("ppo", "ppo-classic", {}),), STEPS[classic], {}),
        Bench(tuple(mujoco), (Side("ppo", "ppo-mujoco", {}),), STEPS[mujoco[0]], {}),
    ]


def tables(rows):
    lines = []
    for env, (mean, spread, when) in CLEANRL.items():
        finals, greedy = values(rows, "final_return", env=env), values(rows, "evaluation_return", env=env)
        each = [", ".join(f"{number:.0f}" for number in numbers) for numbers in (finals, greedy)]
        lines.append([env, f"{STEPS[env]:,}", cell(finals, 0), *each, f"{mean} ± {spread} ({when})"])
    header = ["env", "steps", "final return: mean [95 % interval]", "seeds", "greedy, 100 episodes", "CleanRL"]
    yield table(header, lines)


def draw_curves(runs, path):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(STEPS), figsize=(14, 3.4), layout="constrained")
    for axis, (env, (mean, spread, when)) in zip(axes, CLEANRL.items(), strict=True):
        for run in runs:
            if run.config["env"] == env:
                steps, returns = curve(run.metrics, "episode_return")
                axis.plot(steps / 1e3, returns, linewidth=1.2, label=f"seed {run.config['seed']}")
        axis.axhspan(mean - spread, mean + spread, color="grey", alpha=0.25, label=f"CleanRL ({when})")
        axis.set(title=env, xlabel="thousand env steps", ylabel="return, last 100 episodes")
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main():
    rows, runs, picture = carry_out(benches(), __doc__, seeds=3, name="ppo")
    print(*tables(rows), sep="\n")
    draw_curves(runs, picture)


if __name__ == "__main__":
    main()
