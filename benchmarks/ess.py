"""PPO with three clip ranges against the ESS objective, which has none to choose (arXiv 2605.12380).

    python -m benchmarks.ess --results docs/results

On fresh data and on data that is 4 iterations old. Starts `swell bench`, writes ess.csv and ess.png, and prints the
tables of docs/results/ess.md.
"""

from benchmarks.study import METRICS, Bench, Side, carry_out, cell, draw, table, values

ENV = "CartPole-v1"
NUM_ENVS, HORIZON, STEPS = 16, 64, 100_000
AGES = {0: "fresh", 4: "4 iterations old"}
OBJECTIVES = {
    **{f"clip {clip}": f"ppo-classic+clip_range={clip}+staleness_mode=behavior" for clip in (0.1, 0.2, 0.4)},
    "ESS": "ess",
}
"""PPO is plain: it has one old policy, the one that acted."""


def side(objective, staleness):
    name = objective.replace(" ", "-")
    variant = f"{OBJECTIVES[objective]}+staleness={staleness}+steps={STEPS + staleness * NUM_ENVS * HORIZON}"
    return Side(f"{name}-stale-{staleness}", variant, {"objective": name, "staleness": staleness})


def benches():
    batch = {"num_envs": NUM_ENVS, "horizon": HORIZON, "epochs": 4, "minibatches": 4, "advantage_norm": "batch"}
    sides = tuple(side(objective, staleness) for staleness in AGES for objective in OBJECTIVES)
    return [Bench((ENV,), sides, STEPS, batch | {"anneal_learning_rate": "false", "evaluation_episodes": 0})]


def returns(rows, metric, objective):
    return [values(rows, metric, objective=objective.replace(" ", "-"), staleness=staleness) for staleness in AGES]


def tables(rows):
    for metric, name in METRICS.items():
        lines = [[objective, *map(cell, returns(rows, metric, objective))] for objective in OBJECTIVES]
        yield f"\n{name}\n" + table(["", *AGES.values()], lines)


def main():
    rows, _, picture = carry_out(benches(), __doc__, seeds=4, name="ess")
    print(*tables(rows), sep="\n")
    lines = {objective: returns(rows, "mean_return", objective) for objective in OBJECTIVES}
    draw([(ENV, "data", METRICS["mean_return"], list(AGES.values()), lines)], picture)


if __name__ == "__main__":
    main()
