"""Tables and pictures of what `benchmarks.llm` has measured.

python -m benchmarks.llm_figures --results docs/results
"""

import argparse
from pathlib import Path

import numpy as np
from benchmarks.study import cell, draw, interval, read_csv, table, values

TASKS = {"": "sort-5-digits", "-add-2-digits": "add-2-digits"}


def unique(rows, name):
    return list(dict.fromkeys(row[name] for row in rows))


def objectives(rows, path):
    """Accuracy after training, by objective and learning rate."""
    rates = sorted(unique(rows, "learning_rate"))
    panels = []
    for staleness in sorted(unique(rows, "staleness"), reverse=True):
        chosen = [row for row in rows if row["staleness"] == staleness]
        names = unique(chosen, "objective")
        found = {n: [values(chosen, "accuracy", objective=n, learning_rate=rate) for rate in rates] for n in names}
        seeds = sorted({len(numbers) for points in found.values() for numbers in points})
        print(f"\n{chosen[0]['task']}, {staleness}, seeds {seeds}, start {cell(values(chosen, 'start'), 3)}")
        print(table(["", *(f"{rate:g}" for rate in rates)], [[n, *(cell(x, 3) for x in found[n])] for n in names]))
        panels.append(
            (f"{chosen[0]['task']}, {staleness}", "learning rate", "accuracy", [f"{r:g}" for r in rates], found)
        )
    draw(panels, path)


def batches(rows, path):
    """Accuracy at equal completions and at equal time, and the differences to the best fixed batch, seed by seed."""
    names = unique(rows, "variant")
    seeds = [s for s in unique(rows, "seed") if {r["variant"] for r in rows if r["seed"] == s} == set(names)]
    runs = {
        (name, seed): sorted(
            (row for row in rows if row["variant"] == name and row["seed"] == seed), key=lambda row: row["completions"]
        )
        for name in names
        for seed in seeds
    }
    final = {name: [runs[name, seed][-1]["accuracy"] for seed in seeds] for name in names}
    time = min(np.mean([runs[name, seed][-1]["seconds"] for seed in seeds]) for name in names)
    timed = {name: [at_time(runs[name, seed], time) for seed in seeds] for name in names}
    best = max((name for name in names if name.startswith("fixed")), key=lambda name: np.mean(final[name]))
    lines = []
    for name in names:
        last = [runs[name, seed][-1] for seed in seeds]
        against = np.subtract(final[name], final[best])
        updates, seconds = (np.mean([row[key] for row in last]) for key in ("updates", "seconds"))
        difference = "" if name == best else cell(against, 3)
        lines.append([name, cell(final[name], 3), difference, cell(timed[name], 3), f"{updates:.0f}", f"{seconds:.1f}"])
    print(f"\n{rows[0]['task']}, {len(seeds)} seeds, best fixed batch in hindsight: {best}")
    header = ["", "accuracy", f"minus {best}", f"after {time:.1f} s", "updates", "seconds"]
    print(table(header, lines))
    draw_batches(rows[0]["task"], names, seeds, runs, time, path)


def at_time(run, seconds):
    return float(np.interp(seconds, [row["seconds"] for row in run], [row["accuracy"] for row in run]))


def draw_batches(task, names, seeds, runs, time, path):
    from matplotlib import pyplot

    figure, (ends, over_time, sizes) = pyplot.subplots(1, 3, figsize=(17, 4.5), layout="constrained")
    for place, name in enumerate(names):
        marks = [
            [runs[name, seed][-1]["accuracy"] for seed in seeds],
            [at_time(runs[name, seed], time) for seed in seeds],
        ]
        for shift, (numbers, marker) in enumerate(zip(marks, "os", strict=True)):
            mean, low, high = interval(numbers)
            label = (["equal completions", f"after {time:.0f} s"][shift]) if place == 0 else None
            color = f"C{shift}"
            ends.errorbar(
                mean, place + 0.2 * shift, xerr=[[mean - low], [high - mean]], fmt=marker, color=color, label=label
            )
        grid = np.linspace(0, max(runs[name, seed][-1]["seconds"] for seed in seeds), 50)
        curve = np.mean([[at_time(runs[name, seed], t) for t in grid] for seed in seeds], axis=0)
        over_time.plot(grid, curve, label=name, color=f"C{place}")
        if not name.startswith("fixed"):
            done = np.linspace(1600, 11_200, 40)  # the last generation is cut to the budget
            size = [
                np.interp(done, [r["completions"] for r in run], [r["batch"] for r in run])
                for run in (runs[name, seed][1:] for seed in seeds)
            ]
            sizes.plot(done, np.mean(size, axis=0), label=name, color=f"C{place}")
    ends.set_yticks(range(len(names)), names)
    ends.invert_yaxis()
    ends.legend(fontsize=8)
    ends.set(title=f"{task}: accuracy", xlabel="accuracy, mean and 95 % interval")
    over_time.set(title="mean accuracy over time", xlabel="processor seconds of one thread", ylabel="accuracy")
    over_time.legend(fontsize=7)
    sizes.set(title="mean batch", xlabel="completions", ylabel="completions per update")
    sizes.legend(fontsize=7)
    figure.savefig(path, dpi=100)


def confounds(rows, path):
    """Readings as measured and as corrected, by learning rate and batch."""
    rates, sizes = sorted(unique(rows, "learning_rate")), sorted(unique(rows, "batch"))
    panels = []
    print(f"\nnoise scale of the gradient: median {np.median(values(rows, 'noise_scale')):.0f} completions")
    for signal in unique(rows, "signal"):
        lines = []
        for rate in rates:
            for kind in ("raw", "corrected"):
                found = [values(rows, kind, signal=signal, learning_rate=rate, batch=size) for size in sizes]
                lines.append([f"{rate:g}", kind, *(f"{np.mean(numbers):.4f}" for numbers in found)])
        print(f"\n{signal}")
        print(table(["learning rate", "", *map(str, sizes)], lines))
        for kind in ("raw", "corrected"):
            means = [np.mean(values(rows, kind, signal=signal, learning_rate=r, batch=b)) for r in rates for b in sizes]
            moved = [1 - mean for mean in means] if signal == "effective_sample_size" else means
            print(f"{kind}: largest over smallest {max(moved) / min(moved):.2f}")
    for kind in ("raw", "corrected"):
        series = {
            f"rate {rate:g}": [values(rows, kind, signal="kl_divergence", learning_rate=rate, batch=b) for b in sizes]
            for rate in rates
        }
        panels.append((f"KL reading of a policy that does not change, {kind}", "batch", "KL", sizes, series))
    draw(panels, path, bottom=0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    for study in (objectives, batches, confounds):
        for suffix in TASKS:
            path = given.results / f"llm-{study.__name__}{suffix}.csv"
            if path.exists():
                study(read_csv(path), path.with_suffix(".png"))


if __name__ == "__main__":
    main()
