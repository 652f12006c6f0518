"""What averaging readings does to the horizon: replays one run's readings through the scaler.

    swell train MinAtar/Breakout-v1 --preset pqn-minatar --steps 1000000 --measure-every 1 --out runs/readings
    python benchmarks/averaging.py runs/readings

The run has a reading at every iteration, and measuring does not change training. So for a cadence of K the scaler can
be fed K different samples of the same run, one per phase of the clock. Their spread is the noise that a single cadence
would have put into the horizon; how far they got is the lag.
"""

import json
import sys
from pathlib import Path

import numpy as np

from swell.batch.scalers import AdaptiveRule, AdaptiveScaler, Effort

EFFORT = Effort(128, 2, "constant", 32, "count", 4, 512)


def trajectory(readings, every, phase, history, warmup):
    rule = AdaptiveRule(16, 64, 0.05, 0.95, "log", 0.1, history, warmup, "nearest")
    scaler, horizons = AdaptiveScaler(EFFORT, rule), []
    for iteration, reading in enumerate(readings):
        if iteration % every == phase:
            scaler.adjust(reading)
        horizons.append(scaler.state_dict()["horizon"])
    return horizons


def main(directory):
    rows = [json.loads(line) for line in (Path(directory) / "metrics.jsonl").read_text().splitlines()]
    readings = [row["reading"] for row in rows if "reading" in row]
    windows = np.lib.stride_tricks.sliding_window_view(np.array(readings), 21)
    trend = np.median(windows, axis=1)
    noise = np.array(readings)[10:-10] - trend
    early, late = np.mean(readings[:20]), np.mean(readings[-20:])
    print(f"{len(readings)} readings; the first 20 average {early:.3f}, the last 20 {late:.3f}")
    print(f"standard deviation around a running median of 21: {noise.std():.3f}")
    print(f"of which 2048 states explain: {np.sqrt(np.mean(trend * (1 - trend)) / 2048):.3f}")
    print("\n| K | readings averaged | warm-up | horizon at the end | spread over phases |\n|---|---|---|---|---|")
    for every in (5, 10):
        for history, warmup in ((1, 0), (5, 0), (20, 0), (20, 10)):
            runs = np.array([trajectory(readings, every, phase, history, warmup) for phase in range(every)])
            print(f"| {every} | {history} | {warmup} | {runs[:, -1].mean():.1f} | {runs.std(axis=0).mean():.2f} |")


if __name__ == "__main__":
    main(sys.argv[1])
