"""Steps per second and where the time goes, for one or several configurations, alternating between them.

    python benchmarks/throughput.py CartPole-v1 MinAtar/Breakout-v1
    python benchmarks/throughput.py pong:threads=1 pong:threads=2 --rounds 3 --iterations 5

The machine may be noisy: compare the medians of one call with each other, not with another day's.
"""

import argparse
import ast
import statistics
import time
from itertools import islice

from swell.loop import train
from swell.presets import make_config
from swell.runs.build import build


def measure(case, iterations):
    env, *fields = case.split(":")
    options = dict(field.split("=") for field in fields)
    config = make_config(env, **{name: ast.literal_eval(value) for name, value in options.items()})
    parts = build(config)
    loop = train(parts.collector, parts.learner, parts.measurement, parts.scaler, config.total_env_steps)
    next(loop)  # the first iteration warms caches
    before, steps = time.perf_counter(), parts.collector.env_steps
    spent = dict(parts.collector.seconds)
    for _ in islice(loop, iterations):
        pass
    seconds = time.perf_counter() - before
    shares = {phase: (parts.collector.seconds[phase] - spent[phase]) / seconds for phase in spent}
    parts.collector.envs.close()
    return (parts.collector.env_steps - steps) / seconds, shares


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="ENV or ENV:field=value:field=value")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=20)
    arguments = parser.parse_args()
    found = {case: [] for case in arguments.cases}
    for _ in range(arguments.rounds):
        for case in arguments.cases:
            found[case].append(measure(case, arguments.iterations))
    for case, results in found.items():
        speeds = [speed for speed, _ in results]
        shares = {phase: statistics.median(share[phase] for _, share in results) for phase in ("act", "env")}
        words = "  ".join(f"{phase} {share:.0%}" for phase, share in shares.items())
        print(
            f"{case:40s} {statistics.median(speeds):10,.0f} steps/s   {words}   update {1 - sum(shares.values()):.0%}"
        )


if __name__ == "__main__":
    main()
