"""What averaging readings does to the horizon: replays one run's readings through the scaler.

    swell train MinAtar/Breakout-v1 --preset pqn-minatar --steps 1000000 --measure-every 1 --out runs/readings
    python -m benchmarks.averaging runs/readings

The run has a reading at every iteration, and measuring does not change training. So for a cadence of K the scaler can
be fed K different samples of the same run, one per phase of the clock. Their spread is the noise that a single cadence
would have put into the horizon; how far they got is the lag.
"""

import argparse
from pathlib import Path

import numpy as np
from benchmarks.study import curve, read_metrics, table

from swell.presets import make_config
from swell.runs.build import make_scaler

ENV = "MinAtar/Breakout-v1"


def trajectory(readings, every, phase, history, warmup):
    config = make_config(ENV, preset="paper", history=history, warmup_readings=warmup)
    scaler, horizons = make_scaler(config, ()), []
    for iteration, reading in enumerate(readings):
        if iteration % every == phase:
            scaler.adjust(reading)
        horizons.append(scaler.state_dict()["horizon"])
    return horizons


def report(readings):
    windows = np.lib.stride_tricks.sliding_window_view(readings, 21)
    trend = np.median(windows, axis=1)
    noise = readings[10:-10] - trend
    early, late = np.mean(readings[:20]), np.mean(readings[-20:])
    yield f"{len(readings)} readings; the first 20 average {early:.3f}, the last 20 {late:.3f}"
    yield f"standard deviation around a running median of 21: {noise.std():.3f}"
    yield f"of which 2048 states explain: {np.sqrt(np.mean(trend * (1 - trend)) / 2048):.3f}"
    lines = []
    for every in (5, 10):
        for history, warmup in ((1, 0), (5, 0), (20, 0), (20, 10)):
            runs = np.array([trajectory(readings, every, phase, history, warmup) for phase in range(every)])
            lines.append([every, history, warmup, f"{runs[:, -1].mean():.1f}", f"{runs.std(axis=0).mean():.2f}"])
    yield table(
        ["K", "readings averaged", "warm-up", "horizon at the end (16..64)", "spread between phases"],
        lines,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="a run with a reading at every iteration")
    print(*report(curve(read_metrics(parser.parse_args().directory), "reading")[1]), sep="\n")


if __name__ == "__main__":
    main()
