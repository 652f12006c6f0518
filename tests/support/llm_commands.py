"""`swell llm` on a model, a file of problems and a reward of a few seconds."""

import json
import os
import sys

import swell.cli
from swell.llm.tasks import SORTING
from swell.runs.logs import read_jsonl

REWARDS = """
def exact(completions, answer, **_):
    return [float(given == right) for given, right in zip(completions, answer)]

async def exact_later(completions, answer, **_):
    return exact(completions, answer)

def raises(completions, **_):
    raise KeyError("answers")

def one_too_few(completions, **_):
    return [1.0] * (len(completions) - 1)

def words(completions, **_):
    return ["good"] * len(completions)

def infinite(completions, **_):
    return [float("inf")] * len(completions)

nothing_to_call = 3
"""
SMALL = {
    "per-device-train-batch-size": 16,
    "num-generations": 4,
    "max-completion-length": 6,
    "learning-rate": 1e-3,
    "seed": 1,
}
CLOCKS = ("wall_seconds", "seconds_generate", "seconds_update", "seconds_measure")


def make_sources(directory, model, tokenizer, problems=64):
    """model/, problems.jsonl and small_rewards.py in a directory."""
    model.save_pretrained(directory / "model")
    tokenizer.save_pretrained(directory / "model")
    rows = ({"prompt": prompt, "answer": answer} for prompt, answer in SORTING.problems(problems, seed=1))
    (directory / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "small_rewards.py").write_text(REWARDS)


def train_arguments(out="run", **options):
    """As typed in the directory of the sources."""
    named = {"model": "model", "dataset": "problems.jsonl", "reward": "small_rewards:exact", "out": out}
    values = {**named, **SMALL, **{name.replace("_", "-"): value for name, value in options.items()}}
    return ["train", "--quiet", *(word for name, value in values.items() for word in (f"--{name}", str(value)))]


def swell_llm(*arguments):
    """The exit code of `swell llm …`."""
    before = sys.argv, sys.path[:]
    sys.argv = ["swell", "llm", *map(str, arguments)]
    try:
        swell.cli.main()
    except SystemExit as end:
        return end.code
    finally:
        sys.argv, sys.path[:] = before
    return 0


def in_child(work):
    """Runs `work()` in a forked child; returns its exit code, or minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def rows_without_clocks(directory):
    rows = read_jsonl(directory / "metrics.jsonl")
    return [{name: value for name, value in row.items() if name not in CLOCKS} for row in rows]
