"""Studies: the commands that pages name, the runs they would start, and the tables that pages hold."""

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # for benchmarks

from benchmarks.study import finished_runs, kept, outcome, read_csv

from benchmarks import (
    abs_minatar,
    averaging,
    batch_sensitivity,
    ess,
    invariance,
    nonstationarity,
    ppo_scores,
    staleness,
    study,
    zero_regret,
    zero_regret_clock,
)
from swell.cli import execute, parse

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", ROOT / "Makefile", *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.py")]
COMMANDS = {name for page in PAGES for name in re.findall(r"python (?:-m )?(benchmarks[./][\w./]+)", page.read_text())}
FILES = {name for page in PAGES for name in re.findall(r"benchmarks/[\w/]+\.py", page.read_text())}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_that_is_named_answers_to_help(monkeypatch, capsys, command):
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    for module in (command, f"{command}.__main__"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SystemExit) as end:
        start(command)
    assert end.value.code == 0
    assert "usage:" in capsys.readouterr().out


def start(command):
    if command.endswith(".py"):
        runpy.run_path(str(ROOT / command), run_name="__main__")
    else:
        runpy.run_module(command, run_name="__main__", alter_sys=True)


def test_pages_name_commands_and_files_that_exist():
    assert len(COMMANDS) >= 10
    assert [name for name in FILES if not (ROOT / name).exists()] == []


STUDIES = {
    "staleness": (staleness.benches(), 3),
    "ess": (ess.benches(), 4),
    "invariance": ([invariance.bench(env) for env in invariance.STEPS], 3),
    "ppo": (ppo_scores.benches(), 3),
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_plans_the_runs_that_its_csv_holds(name, tmp_path, capsys):
    benches, seeds = STUDIES[name]
    for bench in benches:
        execute(parse([*bench.command(seeds, tmp_path)[1:], "--dry-run"]))
    planned = re.findall(r"= (\d+) runs", capsys.readouterr().out)
    held = read_csv(RESULTS / f"{name}.csv")
    assert sum(map(int, planned)) == len(held)
    sides = [side for bench in benches for side in bench.sides]
    assert {tuple(row[column] for column in sides[0].columns) for row in held} == {
        tuple(side.columns.values()) for side in sides
    }


def printed(parts):
    """The rows of Markdown tables without their headers."""
    lines = [line for part in parts for line in part.splitlines() if line.startswith("| ")]
    return [line for line in lines if re.search(r"\d", line.split(" | ", 1)[1])]


def zero_regret_tables():
    """Those that the page has, by their titles."""
    rows, clock = (read_csv(RESULTS / "zero-regret" / f"{name}.csv") for name in ("runs", "seconds"))
    titles = ("greedy return", "regret by evaluation_return", "regret by return_equal_time", "mean regret of all envs")
    held = tuple(f"\n{title}" for title in titles)
    return [*(text for text in zero_regret.tables(rows) if text.startswith(held)), zero_regret.clock_table(clock)]


def test_the_clock_of_a_study_reads_every_side_in_every_round():
    tiny = study.Bench(("CartPole-v1",), zero_regret.sides(8, 4), 15_000, {"measure_every": 1, "num_envs": 4})
    found = zero_regret_clock.clocked(tiny, "CartPole-v1", rounds=2)
    assert set(found) == set(zero_regret.CLOCKED)
    assert all(len(readings) == 2 and min(readings) > 0 for readings in found.values())


def test_scores_after_equal_time_are_those_where_the_fastest_side_would_end():
    metrics = [{"env_steps": steps, "episode_return": steps / 10, "horizon": 8} for steps in (0, 50, 100)]
    summary = {"status": "done", "env_steps": 100, "gradient_steps": 1, "wall_seconds": 1.0}
    run = study.FinishedRun(
        Path(), {"env": "LunarLander-v3", "label": "small", "seed": 1, "total_env_steps": 100}, summary, metrics
    )
    clock = [
        {"env": "LunarLander-v3", "variant": name, "microseconds_per_env_step": cost}
        for name, cost in (("small", 20.0), ("fixed × 4", 10.0))
    ]
    (row,) = zero_regret.rows_of([run], clock)
    assert (row["return_equal_time"], row["return_100"]) == (5.0, 10.0)
    (row,) = zero_regret.rows_of([run], [])
    assert np.isnan(row["return_equal_time"])


PRINTED = {
    "zero-regret/README.md": zero_regret_tables,
    "staleness.md": lambda: staleness.tables(read_csv(RESULTS / "staleness.csv")),
    "ess.md": lambda: ess.tables(read_csv(RESULTS / "ess.csv")),
    "invariance.md": lambda: invariance.tables(read_csv(RESULTS / "invariance.csv")),
    "ppo.md": lambda: ppo_scores.tables(read_csv(RESULTS / "ppo.csv")),
    "averaging.md": lambda: list(
        averaging.report(np.array([row["reading"] for row in read_csv(RESULTS / "readings.csv")]))
    )[-1:],
    "abs-minatar/README.md": lambda: [
        *list(abs_minatar.tables(read_csv(RESULTS / "abs-minatar" / "runs.csv")))[:2],
        *batch_sensitivity.tables(read_csv(RESULTS / "abs-minatar" / "branches.csv")),
        *nonstationarity.tables(read_csv(RESULTS / "abs-minatar" / "signs.csv")),
    ],
}


@pytest.mark.parametrize("page", PRINTED)
def test_the_tables_of_a_page_are_what_its_study_makes_of_the_csv_beside_it(page):
    held = plain((RESULTS / page).read_text()).splitlines()
    rows = [plain(line) for line in printed(PRINTED[page]())]
    assert len(rows) >= 4
    assert [row for row in rows if row not in held] == []


def plain(text):
    """As a page may say it: without versions of envs, in bold or not, with the number of all runs."""
    return re.sub(r"-v[13]\b|\*\*", "", text).replace("all 14 runs", "all runs")


def leave_run(directory, seed, status, returns):
    directory.mkdir(parents=True)
    config = {"env": "CartPole-v1", "label": "a", "seed": seed}
    summary = {"status": status, "env_steps": 200, "gradient_steps": 8, "wall_seconds": 1.4}
    rows = [{"env_steps": 100 * number, **known} for number, known in enumerate(returns)]
    (directory / "config.json").write_text(json.dumps({"config": config}))
    (directory / "summary.json").write_text(json.dumps(summary))
    (directory / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_runs_with_a_result_become_rows(tmp_path):
    rising = [{}, {"episode_return": 1.0}, {"episode_return": 3.0}, {"episode_return": 3.0}]
    leave_run(tmp_path / "runs" / "2", 2, "diverged", [])
    leave_run(tmp_path / "runs" / "1", 1, "done", rising)
    leave_run(tmp_path / "runs" / "3", 3, "interrupted", rising)
    rows = [outcome(run, {"side": run.label}) for run in finished_runs(tmp_path)]
    assert [(row["seed"], row["status"], row["side"]) for row in rows] == [(1, "done", "a"), (2, "diverged", "a")]
    assert rows[0]["mean_return"] == pytest.approx(2.5)  # 2 on the way from 1 to 3, then 3
    assert np.isnan(rows[1]["mean_return"])


def test_what_is_kept_is_not_made_again(tmp_path):
    made = []

    def make(seed):
        made.append(seed)
        return [{"env": "a", "seed": seed, "score": 0.1 + 0.2}]

    twice = [kept(tmp_path / "new" / "rows.csv", make, 7) for _ in range(2)]
    assert made == [7]
    assert twice[0] == twice[1] == [{"env": "a", "seed": 7, "score": 0.1 + 0.2}]
