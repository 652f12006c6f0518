"""The options that all experiments share."""

import argparse
from pathlib import Path


def arguments(description, seeds):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=seeds, help="runs of each kind, with seeds 1, 2, …")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time; 0 only reports what is done")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where run directories go")
    parser.add_argument("--results", type=Path, default=Path("docs/results"), help="where CSV and picture go")
    return parser.parse_args()
