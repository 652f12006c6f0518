"""The run directory of a language-model run: what is in its files, and that a kill costs none of it."""

import json
import re
import signal
from itertools import pairwise
from pathlib import Path

import pytest
from full_disk import files_limited_to
from kill import kill_at
from llm_commands import in_child, make_sources, rows_without_clocks, swell_llm, train_arguments
from safetensors.torch import load_file
from small_llm import make_trainer

from swell.llm import run_log
from swell.llm.checkpoints import SEAL_NAME, newest_checkpoint
from swell.llm.description import describe_run
from swell.llm.run_log import RunLog, final_reward
from swell.report.records import read_run
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import RunLock

ADAPTIVE = {
    "loss_type": "ess",
    "batch_scaler": "adaptive",
    "max_generation_batch_size": 64,
    "num_iterations": 2,
    "calibration_readings": 2,
    "settling_readings": 0,
    "smoothing": 0.5,
    "total_completions": 256,
    "checkpoints": 4,
}
PLAIN = {"batch_scaler": "none", "num_iterations": 2, "max_steps": 12, "save_steps": 4}
ALWAYS = {"completions", "updates", "reward", "reward_deviation", "batch", "update_batch", "learning_rate", "loss"} | {
    *("gradient_norm", "entropy", "completion_length", "wall_seconds")
}
OF_ESS = {"ess", "ess_ratio_mean", "ess_capped_share", "ess_pull"}
OF_A_MOVING_BATCH = {"signal", "seconds_generate", "seconds_update", "seconds_measure"}
SOMETIMES = {"next_batch", "reading", "raw_reading", "calm_reading", "volatile_reading"}


@pytest.fixture
def sources(tmp_path, monkeypatch, warm_model, tokenizer):
    make_sources(tmp_path, warm_model, tokenizer)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weights_of(directory):
    found = newest_checkpoint(directory, moves=False)
    assert found is not None
    return load_file(found[0] / "model.safetensors")


def test_a_moving_batch_leaves_the_files_that_the_report_reads(sources):
    assert swell_llm(*train_arguments(**ADAPTIVE, label="mine")) == 0
    run = sources / "run"
    described = json.loads((run / "config.json").read_text())
    assert described.keys() >= {"kind", "config", "network", "device", "machine", "threads", "versions", "asked"}
    assert described["kind"] == "llm" and described["network"] == "Qwen2 · 133,696 parameters"
    wanted = {"env": "problems", "algorithm": "ess", "scaler": "adaptive", "signal": "kl_divergence", "label": "mine"}
    wanted |= {"seed": 1, "learning_rate": 1e-3, "total_completions": 256, "max_generation_batch_size": 64}
    wanted |= {"model": "model", "dataset": "problems.jsonl", "reward": "small_rewards:exact", "num_iterations": 2}
    assert {name: described["config"][name] for name in wanted} == wanted
    assert {"trl", "transformers", "torch", "swell-rl"} <= described["versions"].keys() | {"swell-rl"}
    rows = read_jsonl(run / "metrics.jsonl")
    for row in rows:
        assert ALWAYS | OF_ESS | OF_A_MOVING_BATCH <= row.keys() <= ALWAYS | OF_ESS | OF_A_MOVING_BATCH | SOMETIMES
        assert None not in row.values()
    assert [row["completions"] for row in rows] == [sum(r["batch"] for r in rows[: n + 1]) for n in range(len(rows))]
    assert rows[-1]["completions"] == 256 and "next_batch" not in rows[-1]
    assert ["calm_reading" in row for row in rows[:3]] == [False, True, True]
    assert all(row["next_batch"] == after["batch"] for row, after in pairwise(rows))
    assert rows[-1]["updates"] == 2 * len(rows)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "done" and summary["completions"] == 256
    assert summary["final_reward"] == pytest.approx(final_reward(rows))
    assert "evaluation_reward" not in summary
    record = read_run(run)
    assert record.status == "done" and record.label == "mine" and record.kind.name == "llm" and not record.problem


def test_trls_own_loop_is_counted_by_its_own_options_and_evaluated(sources):
    options = {**PLAIN, "gradient_accumulation_steps": 2, "steps_per_generation": 4, "max_steps": 8}
    assert swell_llm(*train_arguments(**options, eval_dataset="problems.jsonl", per_device_eval_batch_size=64)) == 0
    rows = read_jsonl(sources / "run" / "metrics.jsonl")
    assert [row["completions"] for row in rows] == [64, 128]  # of 4 updates each: 2 a pass, 2 passes
    assert [row["updates"] for row in rows] == [4, 8]
    assert all(row["batch"] == 64 and row["update_batch"] == 32 for row in rows)
    assert all(row.keys() == ALWAYS for row in rows)
    (evaluation,) = read_jsonl(sources / "run" / "evaluations.jsonl")
    assert evaluation["completions"] == 128 and evaluation["problems"] == 64 and 0.0 <= evaluation["mean_reward"] <= 1.0
    summary = json.loads((sources / "run" / "summary.json").read_text())
    assert summary["evaluation_reward"] == evaluation["mean_reward"]
    assert json.loads((sources / "run" / "config.json").read_text())["config"]["total_completions"] == 128


@pytest.mark.parametrize("options", [ADAPTIVE, PLAIN], ids=["adaptive", "TRL's loop"])
def test_a_run_that_was_killed_goes_on_to_the_same_weights_and_rows(options, sources):
    assert swell_llm(*train_arguments("whole", **options)) == 0

    def killed_before_its_second_seal():
        def dies(path, payload):
            if path.name == SEAL_NAME and any((sources / "killed").glob(f"*/{path.name}")):
                kill_at(run_log, "write_json_atomic", 1, "before")
                run_log.write_json_atomic(path, payload)
            original(path, payload)

        original, run_log.write_json_atomic = run_log.write_json_atomic, dies
        return swell_llm(*train_arguments("killed", **options))

    assert in_child(killed_before_its_second_seal) == -signal.SIGKILL
    torn = max((sources / "killed").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert not (torn / SEAL_NAME).exists()
    before = read_jsonl(sources / "killed" / "metrics.jsonl")
    assert swell_llm("resume", "killed", "--quiet") == 0
    whole, resumed = weights_of(sources / "whole"), weights_of(sources / "killed")
    assert all((whole[name] == resumed[name]).all() for name in whole)
    assert rows_without_clocks(sources / "killed") == rows_without_clocks(sources / "whole")
    after = read_jsonl(sources / "killed" / "metrics.jsonl")
    assert len(after) > len(before)
    clock = [row["wall_seconds"] for row in after]
    assert clock == sorted(clock)


def test_a_signal_saves_between_generations_and_exits_with_its_code(sources, monkeypatch, capsys):
    on_log = RunLog.on_log

    def signalled(self, args, state, control, **keywords):
        on_log(self, args, state, control, **keywords)
        if state.global_step == 2:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(RunLog, "on_log", signalled)
    assert swell_llm(*train_arguments(**ADAPTIVE)) == 128 + signal.SIGTERM
    assert "swell: stopped at 32 completions; go on with `swell llm resume run`" in capsys.readouterr().err
    assert json.loads((sources / "run" / "summary.json").read_text())["status"] == "interrupted"
    assert (sources / "run" / "checkpoint-4" / SEAL_NAME).exists()
    monkeypatch.undo()
    monkeypatch.chdir(sources)
    assert swell_llm("resume", "run") == 0
    said = capsys.readouterr().out
    assert "going on from checkpoint-4: 32 of 256 completions" in said and "\ndone\n" in said
    assert [row["completions"] for row in read_jsonl(sources / "run" / "metrics.jsonl")][:2] == [16, 32]


def test_a_run_in_use_or_done_is_left_alone(sources, capsys):
    assert swell_llm(*train_arguments(**{**ADAPTIVE, "total_completions": 32})) == 0
    done = (sources / "run" / "metrics.jsonl").read_bytes()
    assert swell_llm("resume", "run") == 0
    assert "run is done already" in capsys.readouterr().out
    assert swell_llm(*train_arguments(**ADAPTIVE)) == 2
    assert "continue it with `swell llm resume run` or add `--new`" in capsys.readouterr().err
    (sources / "run" / "summary.json").unlink()
    with RunLock(Path("run")):
        assert swell_llm("resume", "run") == 2
    assert "run is in use by process" in capsys.readouterr().err
    assert swell_llm("resume", "run", "--quiet") == 0  # killed just before its summary: nothing is trained again
    assert (sources / "run" / "metrics.jsonl").read_bytes() == done
    assert json.loads((sources / "run" / "summary.json").read_text())["completions"] == 32
    assert swell_llm("resume", "run", "--total-completions", 64, "--quiet") == 0
    assert [row["completions"] for row in read_jsonl(sources / "run" / "metrics.jsonl")][-1] == 64


def test_a_gradient_that_is_not_finite_ends_the_run(sources, capsys, monkeypatch):
    on_log = RunLog.on_log

    def poisoned(self, args, state, control, logs=None, **keywords):
        if state.global_step == 4 and "grad_norm" in logs:
            logs = {**logs, "grad_norm": float("nan")}
        on_log(self, args, state, control, logs=logs, **keywords)

    monkeypatch.setattr(RunLog, "on_log", poisoned)
    assert swell_llm(*train_arguments(**ADAPTIVE)) == 3
    assert "gradient norm became nan at update 4; " in capsys.readouterr().err
    assert json.loads((sources / "run" / "summary.json").read_text())["status"] == "diverged"


def test_the_final_reward_weighs_the_last_tenth_of_completions():
    rows = [{"completions": 50, "reward": 0.0}, {"completions": 95, "reward": 0.2}, {"completions": 100, "reward": 0.6}]
    assert final_reward(rows) == pytest.approx((5 * 0.2 + 5 * 0.6) / 10)
    assert final_reward([{"completions": 8}]) is None


def test_it_is_a_callback_for_a_trainer_of_ones_own(tmp_path, warm_model):
    trainer = make_trainer(tmp_path, warm_model, batch_scaler="fixed", max_steps=2)
    log = RunLog(trainer, tmp_path, describe_run(trainer, trainer.args, {"env": "sorting"}))
    trainer.add_callback(log)
    trainer.train()
    log.finish("done")
    record = read_run(tmp_path)
    assert record.status == "done" and record.env == "sorting" and record.clock == 32


@pytest.mark.parametrize("room", [100_000, 600_000], ids=["weights", "optimizer"])
def test_a_disk_that_is_full_is_one_line_and_the_run_goes_on_from_the_checkpoint_before(sources, room, capfd):
    """Files of more than `room` bytes cannot be written: the model has 540,000, its optimizer's state twice as many."""

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with files_limited_to(room):
            return swell_llm(*train_arguments(**ADAPTIVE))

    assert in_child(work) == 5
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("swell: cannot write a checkpoint into 'run': ")
    assert json.loads((sources / "run" / "summary.json").read_text())["status"] == "failed"
    assert newest_checkpoint(sources / "run", moves=True) is None
    assert swell_llm("resume", "run", "--quiet") == 0
    assert swell_llm(*train_arguments("whole", **ADAPTIVE)) == 0
    assert rows_without_clocks(sources / "run") == rows_without_clocks(sources / "whole")


def test_every_name_that_a_run_writes_is_in_the_glossary():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    explained = set(re.findall(r"^\| `(\w+)` \|", page.partition("## Language-model runs")[2], flags=re.MULTILINE))
    assert explained >= ALWAYS | OF_ESS | OF_A_MOVING_BATCH | SOMETIMES
