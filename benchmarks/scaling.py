"""What a run costs on more processes than this machine has: a cost model, calibrated by processes.csv, and its curves.

    python -m benchmarks.scaling --results docs/results

Reads processes.csv (benchmarks/processes.py), prints measured beside modelled rates, then what the model says of 8, 64
and 512 GPUs under the assumptions of `ASSUMED`, and which batch would keep them busy. Writes scaling.csv and
scaling.png; the page about them is docs/scaling.md.
"""

import argparse
import math
import os
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from benchmarks.processes import MESSAGE_FLOATS, MESSAGE_GROUPS, WORKLOADS
from benchmarks.study import read_csv, table, values, write_csv

BYTES_PER_WEIGHT = 4
RANKS = (8, 64, 512)
POWERS = tuple(2**power for power in range(10))
PUBLISHED_MINIBATCH = 8_192
"""The largest for which arXiv 2110.00641 shows its rules at work."""
SHARE = 0.1
"""Of a gradient step that messages may take."""


@dataclass(frozen=True)
class Link:
    """What carries messages: seconds of a hop, and bytes that go through each process's end a second."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Cost:
    """Of one iteration of a run: what can be divided among processes, and what each has to do by itself."""

    num_envs: int
    horizon: int
    minibatch: float
    gradient_steps: float
    weights: int
    transition_seconds: float
    """To step one env once and to act in it; divided."""
    sample_seconds: float
    """Forward and backward pass of one sample of a minibatch; divided."""
    env_step_seconds: float = 0.0
    """What a step of all envs takes besides, however few a process has."""
    gradient_step_seconds: float = 0.0
    """What a gradient step takes besides, however few samples a process has."""
    together_seconds: float = 0.0
    """What a gradient step takes longer as soon as there are several processes, besides its message."""

    @property
    def batch(self):
        return self.num_envs * self.horizon


def message_seconds(processes, weights, link):
    """Of one all-reduce: log₂ W hops, and 2 (W − 1) / W of the gradient through each end. One process sends none.

    t = λ ⌈log₂ W⌉ + 2 (W − 1) / W · 4 P / β
    """
    hops, passes = message_terms(processes)
    return hops * link.latency + passes * BYTES_PER_WEIGHT * weights / link.bandwidth


def message_terms(processes):
    return math.ceil(math.log2(processes)), 2 * (processes - 1) / processes


def gradient_step_seconds(processes, cost, link, processors=None):
    """Processes beyond the processors do not divide the work any further."""
    divided = cost.minibatch * cost.sample_seconds / min(processes, processors or processes)
    together = cost.together_seconds if processes > 1 else 0.0
    return cost.gradient_step_seconds + divided + together + message_seconds(processes, cost.weights, link)


def iteration_seconds(processes, cost, link, processors=None):
    collected = cost.batch * cost.transition_seconds / min(processes, processors or processes)
    learned = cost.gradient_steps * gradient_step_seconds(processes, cost, link, processors)
    return cost.horizon * cost.env_step_seconds + collected + learned


def rate(processes, cost, link, processors=None):
    """Env steps a second."""
    return cost.batch / iteration_seconds(processes, cost, link, processors)


def message_share(processes, cost, link):
    """The part of a gradient step that is its message."""
    return message_seconds(processes, cost.weights, link) / gradient_step_seconds(processes, cost, link)


def minibatch_at_share(processes, cost, link, share):
    """The smallest minibatch whose messages take no more than this share of a gradient step; 0 if any does.

    message = share · (fixed + b · sample / W + message), solved for b
    """
    message = message_seconds(processes, cost.weights, link)
    fixed = cost.gradient_step_seconds + (cost.together_seconds if processes > 1 else 0.0)
    return max(0.0, (message * (1 - share) / share - fixed) * processes / cost.sample_seconds)


def most_processes(cost, link_of, share, candidates):
    """The largest of these numbers of processes whose messages take no more than this share of a gradient step."""
    return max(n for n in candidates if message_share(n, cost, link_of(n)) <= share)


def widened(cost, factor):
    """The same run with this many times the envs, in as many gradient steps of as many times the samples."""
    return replace(cost, num_envs=round(cost.num_envs * factor), minibatch=cost.minibatch * factor)


def fit_link(rows, processors):
    """Latency and bandwidth by least squares on relative errors, so that short messages count as much as long ones.

    By messages of processes that all had a core: others mostly wait for their turn.
    """
    known = [row for row in rows if row["kind"] == "all-reduce" and row["processes"] <= processors]
    seconds = np.array([row["seconds"] for row in known])
    terms = [message_terms(row["processes"]) for row in known]
    columns = np.array(
        [(hops, passes * BYTES_PER_WEIGHT * row["floats"]) for (hops, passes), row in zip(terms, known, strict=True)]
    )
    latency, inverse = np.linalg.lstsq(columns / seconds[:, None], np.ones(len(known)), rcond=None)[0]
    return Link(float(latency), 1.0 / float(inverse))


def fit_cost(rows, workload, link, processors):
    """From 1 × 1 what is divided, from 2 × 1 what being together costs. 4 × 1 is left to be predicted."""

    def median(name, processes):
        return statistics.median(values(rows, name, workload=workload, processes=processes, threads=1))

    batch, gradient_steps, minibatch = (median(name, 1) for name in ("batch", "gradient_steps", "minibatch"))
    update = median("seconds_update", 1)
    alone = Cost(
        num_envs=1,
        horizon=round(batch),
        minibatch=minibatch,
        gradient_steps=gradient_steps,
        weights=round(median("floats", 1)),
        transition_seconds=(median("seconds", 1) - update) / batch,
        sample_seconds=update / (gradient_steps * minibatch),
    )
    missing = median("seconds", 2) - iteration_seconds(2, alone, link, processors)
    return replace(alone, together_seconds=max(0.0, missing / gradient_steps))


ATARI_SAMPLE_FLOPS = 49.5e6
"""Forward and backward pass of one sample: `nature-cnn` by the count of benchmarks/speed/limits.py."""
NODE = 8
"""GPUs of a node, with fast links between them."""
ASSUMED = {
    "arithmetic": (10e12, "FLOP/s", "that a small convolutional network gets out of a GPU"),
    "launches": (0.5e-3, "s", "a gradient step takes on a GPU however few its samples (forward, backward, optimizer)"),
    "acting": (0.3e-3, "s", "for one step of all envs (transfer and launches)"),
    "cores": (8, "CPU cores", "step the envs of a rank, each as fast as the measured one"),
    "hop": (10e-6, "s", "a hop of an NCCL all-reduce"),
    "inside": (150e9, "bytes/s", f"through each GPU, up to {NODE} ranks in one node (NVLink)"),
    "between": (20e9, "bytes/s", "through each GPU, between nodes"),
}
"""None of this was measured: round numbers of a plausible size. Change them and run again."""


def assumed(name):
    return ASSUMED[name][0]


def gpu_cost(measured, env_seconds):
    """The run of the CSV on one GPU: envs as measured but on more cores, everything else as assumed."""
    return replace(
        measured,
        transition_seconds=env_seconds / assumed("cores"),
        sample_seconds=ATARI_SAMPLE_FLOPS / assumed("arithmetic"),
        env_step_seconds=assumed("acting"),
        gradient_step_seconds=assumed("launches"),
        together_seconds=0.0,
    )


def gpu_link(processes):
    """The slowest link that a ring has to cross."""
    return Link(assumed("hop"), assumed("inside" if processes <= NODE else "between"))


def atari_on_gpu(rows, link, processors):
    name = "Atari Breakout, pqn"
    measured = fit_cost(rows, name, link, processors)
    num_envs = WORKLOADS[name].num_envs
    env = statistics.median(values(rows, "seconds_env", workload=name, processes=1, threads=1)) / measured.batch
    return gpu_cost(replace(measured, num_envs=num_envs, horizon=measured.batch // num_envs), env)


def prediction(processes, cost):
    """One row of the CSV: the batch as it is, as much for each rank, and the one whose messages are short enough.

    `horizon_at_share` is that of the last, with as many envs for each rank as one rank has.
    """
    from swell.batch.rules import scaled_learning_rate

    link = gpu_link(processes)
    wanted = max(cost.minibatch, minibatch_at_share(processes, cost, link, SHARE))
    factor = wanted / cost.minibatch
    return {
        "ranks": processes,
        "message_ms": round(1e3 * message_seconds(processes, cost.weights, link), 3),
        "rate_same_batch": round(rate(processes, cost, link)),
        "message_share_same_batch": round(message_share(processes, cost, link), 3),
        "batch_per_rank_kept": round(cost.batch * processes),
        "rate_per_rank_kept": round(rate(processes, widened(cost, processes), link)),
        "message_share_per_rank_kept": round(message_share(processes, widened(cost, processes), link), 3),
        "minibatch_at_share": round(wanted),
        "batch_at_share": round(cost.batch * factor),
        "horizon_at_share": round(cost.batch * factor / (cost.num_envs * processes), 1),
        "rate_at_share": round(rate(processes, widened(cost, factor), link)),
        "learning_rate_factor": round(scaled_learning_rate(1.0, 1.0 / factor), 2),
    }


def calibration(rows, link, processors):
    """Measured beside modelled rates, as lines of a table."""
    for workload in dict.fromkeys(row["workload"] for row in rows if row["kind"] == "training"):
        cost = fit_cost(rows, workload, link, processors)
        cells = []
        for processes in (1, 2, 4):
            known = values(rows, "steps_per_second", workload=workload, processes=processes, threads=1)
            measured, modelled = statistics.median(known), rate(processes, cost, link, processors)
            cells.append(f"{measured:,.0f} / {modelled:,.0f}")
        step = 1e3 * gradient_step_seconds(1, cost, link)
        message = 1e3 * message_seconds(2, cost.weights, link)
        together = 1e3 * cost.together_seconds
        yield [workload, f"{step:.2f} ms", f"{message:.2f} ms", f"{together:.2f} ms", *cells]


def message_lines(rows, link):
    for processes in MESSAGE_GROUPS:
        cells = []
        for size in MESSAGE_FLOATS:
            measured = statistics.median(values(rows, "seconds", kind="all-reduce", processes=processes, floats=size))
            cells.append(f"{1e3 * measured:.2f} / {1e3 * message_seconds(processes, size, link):.2f}")
        yield [processes, *cells]


def draw(cost, path):
    from matplotlib import pyplot

    figure, (speed, share) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    curves = {
        f"batch of {cost.batch:,}, as it is": lambda processes: cost,
        f"batch of {cost.batch:,} for each rank": lambda processes: widened(cost, processes),
    }
    for label, chosen in curves.items():
        speed.plot(POWERS, [rate(n, chosen(n), gpu_link(n)) for n in POWERS], marker="o", label=label)
        share.plot(POWERS, [100 * message_share(n, chosen(n), gpu_link(n)) for n in POWERS], marker="o", label=label)
    speed.plot(POWERS, [n * rate(1, cost, gpu_link(1)) for n in POWERS], "--", color="gray", label="one rank times W")
    share.axhline(100 * SHARE, ls="--", color="gray")
    speed.set(xscale="log", yscale="log", xlabel="ranks W, one GPU each (predicted)", ylabel="env steps per second")
    share.set(xscale="log", xlabel="ranks W, one GPU each (predicted)", ylabel="message, % of a gradient step")
    for axis in (speed, share):
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.3)
    speed.legend(frameon=False)
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("docs/results"), help="where processes.csv is")
    parser.add_argument("--processors", type=int, default=os.cpu_count(), help="cores of the machine that made it")
    given = parser.parse_args()
    rows = read_csv(given.results / "processes.csv")
    link = fit_link(rows, given.processors)
    print(f"gloo: {1e3 * link.latency:.2f} ms a hop, {link.bandwidth / 1e6:,.0f} MB/s")
    print(table(["all-reduce, ms: measured / fitted", *(f"{n:,}" for n in MESSAGE_FLOATS)], message_lines(rows, link)))
    header = [
        "env steps/s: measured / modelled",
        "gradient step",
        "message of 2",
        "together",
        "1 × 1",
        "2 × 1",
        "4 × 1",
    ]
    print(table(header, calibration(rows, link, given.processors)))
    print(table(["assumed", ""], [[f"{number:g} {unit}", what] for number, unit, what in ASSUMED.values()]))
    cost = atari_on_gpu(rows, link, given.processors)
    found = [prediction(processes, cost) for processes in (1, *RANKS)]
    print(table(list(found[0]), [[f"{number:,}" for number in row.values()] for row in found]))
    for minibatch in (cost.minibatch, PUBLISHED_MINIBATCH):
        most = most_processes(replace(cost, minibatch=minibatch), gpu_link, SHARE, POWERS)
        print(
            f"\nminibatches of {minibatch:,.0f}: messages are at most {SHARE:.0%} of a gradient step up to {most} ranks"
        )
    write_csv(found, given.results / "scaling.csv")
    draw(cost, given.results / "scaling.png")


if __name__ == "__main__":
    main()
