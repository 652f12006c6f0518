"""Does a controller with one setting end as high as the best fixed horizon in hindsight? docs/results/zero-regret.

    python -m benchmarks.zero_regret --jobs 1                             # makes the runs, which takes hours
    python -m benchmarks.zero_regret --jobs 1 --only small abs            # those of some variants
    python -m benchmarks.zero_regret --report-only                        # runs.csv from the runs that are there
    python -m benchmarks.zero_regret --tables docs/results/zero-regret    # tables and picture from runs.csv alone

Other options go to `swell bench`. The protocol on that page was written before the runs.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.study import (
    Bench,
    Side,
    cell,
    curve,
    finished_runs,
    make_parser,
    outcome,
    prepare_results,
    read_csv,
    start_bench,
    table,
    values,
    write_csv,
)

from swell.report.regret import regrets

FACTORS = (0.25, 0.5, 1, 2, 4)
"""The fixed horizons, as multiples of the preset's."""
SHARES = (10, 25, 50, 100)
"""Percent of the env steps at which runs are looked at."""
CONTROLLER = "batch_per_noise_scale=0.25+smoothing=0.3"
CONSTANT = "anneal_learning_rate=false"
OF_8 = "minibatch_rule=size+minibatch_size=8"
"""Minibatches of 8 samples, however long the rollout."""
BY_COUNT = {"minibatch_rule": "count"}
"""Said aloud, so that the sides stay what they were when a preset changes."""
CONTROLLERS = ("constant-noise", "noise", "abs", "ramp")
SECOND = ("small", "noise-small")
"""The second round: 8 samples a gradient step, or 5 % of the noise scale."""
THIRD = ("abs-small", "long-small")
"""The third round: 8 samples a gradient step, while the horizon moves, and at the longest horizon."""
FIXED = tuple(f"fixed × {factor:g}" for factor in FACTORS)
CLOCKED = (*FIXED, "abs", "noise", *SECOND, *THIRD)
"""Those of which seconds.csv says what a step costs."""
TIMED = ("act", "env", "update", "measure")


def sides(horizon, minibatches_of_8, preset=""):
    """The variants of the protocol around a preset's horizon; a quarter of it has so many minibatches of 8 samples."""
    fixed = {f"fixed × {factor:g}": f"fixed:{int(factor * horizon)}" for factor in FACTORS}
    span, smaller = f"{horizon // 4}-{horizon * 4}", f"minibatches={minibatches_of_8}"
    variants = {
        **fixed,
        **{f"constant, {name}": f"{fixed[name]}+{CONSTANT}" for name in FIXED[:2]},
        "noise": f"noise-scale:{span}+{CONTROLLER}",
        "constant-noise": f"noise-scale:{span}+{CONTROLLER}+{CONSTANT}",
        "ramp": f"ramp:{span}",
        "abs": f"adaptive:{span}+smoothing=0.3",
        "small": f"{fixed[FIXED[0]]}+{smaller}",
        "noise-small": f"noise-scale:{span}+batch_per_noise_scale=0.05+smoothing=0.3+{smaller}",
        "abs-small": f"adaptive:{span}+smoothing=0.3+{OF_8}",
        "long-small": f"{fixed[FIXED[-1]]}+{OF_8}",
    }
    labels = {name: label_of(name, variant) for name, variant in variants.items()}
    return tuple(Side(labels[name], preset + variant, {"variant": name}) for name, variant in variants.items())


def label_of(name, variant):
    """How `swell bench` calls it; names with signs and spaces would make poor directories."""
    if name.startswith("constant, "):
        return "constant-" + variant.partition("+")[0].replace(":", "-")
    return variant if name in FIXED else name


BENCHES = (
    Bench(("LunarLander-v3",), sides(32, 32), 200_000, {"measure_every": 3, **BY_COUNT, "minibatches": 32}),
    Bench(("Acrobot-v1",), sides(32, 32), 150_000, {"measure_every": 3, **BY_COUNT, "minibatches": 8}),
    Bench(
        ("MinAtar/SpaceInvaders-v1", "MinAtar/Freeway-v1", "MinAtar/Seaquest-v1"),
        sides(32, 128),
        400_000,
        {"measure_every": 3, "evaluation_episodes": 20, "minibatches": 32},
    ),
    Bench(
        ("HalfCheetah-v5", "Hopper-v5"),
        sides(256, 64, "ppo-mujoco/"),
        300_000,
        {"measure_every": 3, "evaluation_episodes": 20},
    ),
)


def row_of(run, columns, reach):
    """One line of runs.csv: the outcome, and what the run had come to at each of the moments that count.

    `reach` is the share of its steps that it makes while the cheapest side makes all; NaN where no clock tells.
    """
    steps, returns = curve(run.metrics, "episode_return")

    def return_after(share):
        reached = share * run.config["total_env_steps"]
        return float(np.interp(reached, steps, returns, left=np.nan)) if len(steps) else np.nan

    row = {**outcome(run, columns), **{f"return_{share}": return_after(share / 100) for share in SHARES}}
    row.pop("wall_seconds")  # evaluations and starting included; what counts is training
    horizons = curve(run.metrics, "horizon")[1]
    return {
        **row,
        "return_equal_time": return_after(reach),
        "training_seconds": round(float(training_seconds(run.metrics)[1][-1]), 2),
        "first_horizon": int(horizons[0]),
        "middle_horizon": int(horizons[len(horizons) // 2]),
        "last_horizon": int(horizons[-2]),
    }


def training_seconds(metrics):
    """Env steps, and the seconds of collecting, training and measuring until then."""
    rows = [(row["env_steps"], sum(row.get(f"seconds_{part}") or 0.0 for part in TIMED)) for row in metrics]
    return np.array([(0, 0.0), *rows], dtype=float).T


def rows_of(runs, clock):
    """`clock` holds the rows of seconds.csv, which `zero_regret_clock` makes."""
    columns = {(env, side.label): side.columns for bench in BENCHES for env in bench.envs for side in bench.sides}
    costs = {(row["env"], row["variant"]): row["microseconds_per_env_step"] for row in clock}
    rows = []
    for run in runs:
        env = run.config["env"]
        if side := columns.get((env, run.label)):
            least = min((cost for (other, _), cost in costs.items() if other == env), default=np.nan)
            rows.append(row_of(run, side, least / costs.get((env, side["variant"]), np.nan)))
    return rows


def joined(path, rows):
    """The rows of these runs, and those that `path` has of others: a study may be made on several days."""
    kept = read_csv(path) if path.exists() else []
    made = {(row["env"], row["variant"], row["seed"]): row for row in [*kept, *rows]}
    return [made[key] for key in sorted(made)]


def scores(rows, quantity):
    """Env -> variant -> scores; without variants that were not clocked, and envs where some run had no score yet."""
    by_env = {}
    for row in rows:
        if quantity != "return_equal_time" or row["variant"] in CLOCKED:
            by_env.setdefault(row["env"], {}).setdefault(row["variant"], []).append(row[quantity])
    return {env: found for env, found in by_env.items() if not np.isnan(np.concatenate(list(found.values()))).any()}


def with_interval(found):
    return "–" if found is None else f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def variants_of(rows):
    return list(
        dict.fromkeys(side.columns["variant"] for side in BENCHES[0].sides if values(rows, "seed", **side.columns))
    )


def tables(rows):
    envs, variants = list(dict.fromkeys(row["env"] for row in rows)), variants_of(rows)
    for quantity, said in (
        ("evaluation_return", "greedy return after equal steps"),
        ("return_equal_time", "training return after equal time"),
        ("gradient_steps", "gradient steps"),
    ):
        lines = [[name, *(cell(values(rows, quantity, env=env, variant=name)) for env in envs)] for name in variants]
        yield f"\n{said}\n" + table(["variant", *envs], lines)
    for quantity in ("evaluation_return", "return_equal_time", "return_100"):
        if not (by_env := scores(rows, quantity)):
            continue
        found = regrets(by_env, FIXED)
        told = found.telling()
        every = list(found.yardsticks)
        lines = [
            [name, *map(with_interval, (found.mean(name), found.mean(name, every), found.largest(name, every)))]
            + [f"{found.of(name, env).value:.2f}" if env in found.draws.get(name, {}) else "–" for env in every]
            for name in variants
        ]
        header = [f"{env}" if env in told else f"({env})" for env in found.yardsticks]
        yield f"\nregret by {quantity}\n" + table(["variant", "mean", "mean of all", "largest of all", *header], lines)
        luck = [[env, y.best, y.worst, f"{y.chance:.3f}", f"{y.luck:.2f}"] for env, y in found.yardsticks.items()]
        yield table(["env", "best", "worst", "chance of the spread", "luck of the best"], luck)
    lines = []
    for name in variants:
        found = [regrets(scores(rows, f"return_{share}"), FIXED) for share in SHARES]
        lines.append([name, *(with_interval(one.mean(name, list(one.yardsticks))) for one in found)])
    yield "\nmean regret of all envs had the run been stopped\n" + table(
        ["variant", *(f"{share} %" for share in SHARES)], lines
    )


def clock_table(clock):
    envs = list(dict.fromkeys(row["env"] for row in clock))
    costs = {(row["env"], row["variant"]): f"{row['microseconds_per_env_step']:.0f}" for row in clock}
    lines = [[name, *(costs[env, name] for env in envs)] for name in CLOCKED]
    return "\nmicroseconds of training for an env step\n" + table(["variant", *envs], lines)


def draw(rows, path):
    """Mean regret over all envs after equal steps, of the variants that ran on all, by two kinds of score."""
    from matplotlib import pyplot

    names = [name for name in (*FIXED, *CONTROLLERS, *SECOND, *THIRD) if name in variants_of(rows)][::-1]
    figure, axis = pyplot.subplots(figsize=(8, 0.42 * len(names) + 1.4), layout="constrained")
    for shift, (quantity, said) in enumerate(
        {"evaluation_return": "greedy return at the end", "return_100": "last 100 training episodes"}.items()
    ):
        found = regrets(scores(rows, quantity), FIXED)
        means = [found.mean(name, list(found.yardsticks)) for name in names]
        places = np.arange(len(names)) + 0.24 * (0.5 - shift)
        low, high = ([abs(getattr(mean, end) - mean.value) for mean in means] for end in ("low", "high"))
        axis.errorbar([mean.value for mean in means], places, xerr=(low, high), fmt="o", capsize=3, label=said)
    axis.axvline(0, color="0.6", linewidth=0.8)
    axis.axvline(0.1, color="0.6", linewidth=0.8, linestyle=":")
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("mean regret: 0 as good as the best fixed horizon in hindsight, 1 as bad as the worst")
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def make_runs(given, others):
    """All envs with one seed before the next: when time ends, the seeds that are complete count."""
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for bench in BENCHES:
            some = tuple(side for side in bench.sides if given.only is None or side.columns["variant"] in given.only)
            start_bench([*replace(bench, sides=some).command(1, given.out), "--first-seed", str(seed), *others])


def main():
    parser = make_parser(__doc__, seeds=5, out="runs/zero-regret")
    parser.add_argument("--only", nargs="+", metavar="VARIANT", help="variants to run, by default all")
    parser.add_argument("--first-seed", type=int, default=11)
    parser.add_argument("--tables", type=Path, help="a directory with runs.csv: only tables and picture, from it")
    given, others = parser.parse_known_args()
    results = given.tables or prepare_results(given)
    clock = read_csv(results / "seconds.csv") if (results / "seconds.csv").exists() else []
    if not given.tables:
        if not given.report_only:
            make_runs(given, others)
        write_csv(joined(results / "runs.csv", rows_of(finished_runs(given.out), clock)), results / "runs.csv")
    rows = read_csv(results / "runs.csv")
    print(*tables(rows), clock_table(clock), sep="\n")
    draw(rows, results / "regret.png")


if __name__ == "__main__":
    main()
