"""How stale may data be? PPO with the old policy in one role, in the other or in both: figure 1 of arXiv 2110.00641.

    python -m benchmarks.staleness --results docs/results

Rollouts wait 0 to 16 iterations before they are trained on. Runs are longer by the steps that fill the queue, so that
all make the same number of gradient steps. Starts `swell bench`, writes staleness.csv and staleness.png, and prints the
tables of docs/results/staleness.md.
"""

from benchmarks.study import METRICS, Bench, Side, carry_out, cell, draw, table, values

ENV = "CartPole-v1"
LEVELS = (0, 1, 2, 4, 8, 16)
MODES = ("behavior", "recent", "decoupled")
NUM_ENVS, HORIZON, STEPS = 16, 64, 100_000


def side(staleness, mode):
    steps = STEPS + staleness * NUM_ENVS * HORIZON
    variant = f"ppo-classic+staleness={staleness}+staleness_mode={mode}+steps={steps}"
    return Side(f"{mode}-{staleness}", variant, {"staleness": staleness, "mode": mode})


def benches():
    stale = [side(staleness, mode) for staleness in LEVELS[1:] for mode in MODES]
    batch = {"num_envs": NUM_ENVS, "horizon": HORIZON, "epochs": 4, "minibatches": 4}
    fresh = side(0, MODES[0])  # on fresh data the modes are the same
    return [Bench((ENV,), (fresh, *stale), STEPS, batch | {"anneal_learning_rate": "false", "evaluation_episodes": 0})]


def tables(rows):
    for metric, name in METRICS.items():
        first = [0, cell(values(rows, metric, staleness=0)), *["the same"] * (len(MODES) - 1)]
        stale = [[s, *(cell(values(rows, metric, staleness=s, mode=m)) for m in MODES)] for s in LEVELS[1:]]
        yield f"\n{name}\n" + table(["staleness", *MODES], [first, *stale])


def panels(rows):
    for metric, name in METRICS.items():
        lines = {m: [values(rows, metric, staleness=s, mode=m if s else MODES[0]) for s in LEVELS] for m in MODES}
        yield ENV, "staleness in iterations", name, LEVELS, lines


def main():
    rows, _, picture = carry_out(benches(), __doc__, seeds=3, name="staleness")
    print(*tables(rows), sep="\n")
    draw(list(panels(rows)), picture)


if __name__ == "__main__":
    main()
