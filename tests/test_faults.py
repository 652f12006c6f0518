"""A small sample of `make test-faults`, and that its judges can say no."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.faults

from tests.faults import disks, flips, kills, signals
from tests.faults.cases import CASES, FEW_ROLLOUTS
from tests.faults.commands import Ended
from tests.faults.inputs import DAMAGES, judged as judged_input, read_table
from tests.faults.page import BEGIN, END, render, write
from tests.faults.record import Row, append_row, read_rows
from tests.faults.undisturbed import Workshop, judged

WELL = Ended(0, "done", "", 1.0)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("faults"), seed=0)


def test_a_killed_run_of_the_sample_is_bit_identical(workshop):
    row = kills.attempt(workshop, list(CASES).index("ppo"))
    assert row.held and row.outcome == "bit-identical" and row.faults >= 1


@pytest.mark.parametrize("number", [0, 4])
def test_a_flipped_bit_of_the_sample_is_noticed_or_harmless(workshop, number):
    assert flips.attempt(workshop, number).held


@pytest.mark.parametrize("name", ["SIGTERM", "SIGSTOP"])
def test_a_signal_of_the_sample_while_saving_is_obeyed(workshop, name):
    (saving,) = (phase for phase in signals.PHASES if phase.words == "saving: the rename")
    row = signals.at_a_call(workshop, 0, saving, name)
    assert row.held, row


def test_a_run_that_ended_with_other_numbers_does_not_pass_for_the_same(workshop, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(workshop.whole(FEW_ROLLOUTS), copy)
    assert judged(workshop, FEW_ROLLOUTS, copy, WELL) == ("bit-identical", True)
    metrics = copy / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"horizon": 4', '"horizon": 5', 1))
    assert judged(workshop, FEW_ROLLOUTS, copy, WELL) == ("same weights and state, other logs", False)
    assert not judged(workshop, FEW_ROLLOUTS, copy, replace(WELL, exit_code=5))[1]


def test_one_write_fails_and_the_next_one_does_not(workshop, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    script = "for name in 'abc':\n try: open(name, 'w').write('x')\n except OSError as error: print(name, error.errno)"
    where = {"FULL_DISK_UNDER": str(tmp_path), "FULL_DISK_AT": "3", "LD_PRELOAD": str(disks.library(workshop))}
    script = script.replace("open(name", f"open('{tmp_path}/' + name")
    done = subprocess.run([sys.executable, "-c", script], env=where, capture_output=True, text=True, check=True)
    assert done.stdout == "b 28\n"  # a's open and write were the first two
    assert (tmp_path / "c").read_text() == "x"


def test_the_inputs_are_many_and_each_says_what_is_due():
    table = read_table()
    assert len({(each.given, each.command) for each in table}) == len(table) >= 160
    assert {code for each in table for code in each.codes} <= {0, 2, 3, 4, 5, 6, 141}
    beside = [
        each.given.removeprefix("beside an interrupted run whose ") for each in table if "interrupted" in each.given
    ]
    assert {given.partition(" ")[2] for given in beside} <= DAMAGES.keys()


REFUSED = Ended(2, "", "swell: discount must be at least 0 and at most 1, got 1.5\n", 1.0)


@pytest.mark.parametrize(
    ("ended", "left", "held"),
    [
        (REFUSED, [], True),
        (REFUSED, ["runs/CartPole-v1-pqn-adaptive-s1"], False),
        (replace(REFUSED, exit_code=1), [], False),
        (replace(REFUSED, err="swell: no\n"), [], False),
        (replace(REFUSED, err=f"Traceback (most recent call last):\n{REFUSED.err}"), [], False),
    ],
)
def test_an_input_is_refused_with_its_code_and_its_name_or_the_table_says_so(ended, left, held):
    (given,) = (each for each in read_table() if each.command == "swell train CartPole-v1 --discount 1.5")
    assert judged_input(given, ended, left)[1] is held


def test_rows_are_kept_and_the_page_counts_them_and_names_what_did_not_hold(tmp_path):
    good = Row(0, "ppo", "9% of the log", 0, "done", "bit-identical", True, 3)
    bad = Row(1, "ppo", "1% of the log | again", 1, "swell: unexpected", "did not go on", False)
    for row in (bad, good):
        append_row(tmp_path / "kills.csv", row)
    rows = read_rows(tmp_path / "kills.csv")
    assert rows == [good, bad]
    assert "| SIGKILL | ppo | 4 | 3 | bit-identical × 1; did not go on × 1 |" in render({"kills": rows})
    assert "Not as promised: 1." in render({"kills": rows}) and "1% of the log \\| again" in render({"kills": rows})
    page = tmp_path / "faults.md"
    page.write_text(f"# Faults\n{BEGIN}\nold\n{END}\nend\n")
    write(page, {"kills": [good]})
    text = page.read_text()
    assert "old" not in text and "Every one of them ended as promised." in text and text.endswith(f"{END}\nend\n")
