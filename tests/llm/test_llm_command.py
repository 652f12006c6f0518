"""`swell llm`: its commands, their help, the demo, and one line for everything that can be wrong."""

import json
import re
import subprocess
import sys
from dataclasses import fields

import pytest
import trl
from llm_commands import make_sources, swell_llm, train_arguments

import swell.llm.demo
import swell.llm.session
from swell.llm import GRPOConfig
from swell.llm.options import parse
from swell.llm.panel import ModelHeader, ModelView, RewardsSoFar
from swell.runs.logs import read_jsonl
from swell.runs.sealed import write_sealed


@pytest.fixture(scope="module")
def sources(tmp_path_factory, warm_weights, tokenizer):
    from swell.llm.tasks import small_model

    directory = tmp_path_factory.mktemp("sources")
    model = small_model(seed=1)
    model.load_state_dict(warm_weights)
    make_sources(directory, model, tokenizer)
    (directory / "questions.jsonl").write_text('{"question": "31524>"}\n')
    (directory / "empty.jsonl").write_text("")
    (directory / "broken.jsonl").write_text('{"prompt": broken\n')
    return directory


@pytest.fixture
def here(sources, tmp_path, monkeypatch):
    """In the directory of the sources; `tmp_path` is for what is made."""
    monkeypatch.chdir(sources)
    return tmp_path


def only_line(capsys):
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("swell: "), lines
    return lines[0].removeprefix("swell: ")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_it_lists_its_commands(arguments, capsys):
    assert swell_llm(*arguments) == 0
    said = capsys.readouterr().out
    assert all(re.search(rf"^  {command} ", said, re.MULTILINE) for command in ("train", "resume", "demo"))


def test_help_has_the_commands_own_options_then_swells_and_all_of_trls_on_demand(capsys):
    assert swell_llm("train", "--help") == 0
    short = capsys.readouterr().out
    assert short.index("--model") < short.index("--out") < short.index("--batch-scaler")
    own = list(GRPOConfig.__annotations__)
    assert all(f"--{name.replace('_', '-')}" in short for name in own)
    assert "--learning-rate" not in short and "_" not in "".join(re.findall(r"^  (--\S+)", short, re.MULTILINE))
    assert swell_llm("train", "--help-all") == 0
    everything = capsys.readouterr().out
    named = {field.name for field in fields(trl.GRPOConfig) if field.init}
    assert [name for name in named if f"--{name.replace('_', '-')}" not in everything] == []


def test_options_are_taken_with_hyphens_and_with_underscores():
    asked = parse(["--total_completions", "64", "--max-steps", "3", "--no-ess-cap", "--calm-reading", "auto"], "", True)
    assert asked.config == {"total_completions": 64, "max_steps": 3, "ess_cap": False, "calm_reading": "auto"}
    assert parse(["--output-dir", "there", "--reward", "a:b", "c:d"], "", True).run.out == "there"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rat": 1}, "unknown option --learning-rat; did you mean --learning-rate?"),
        ({"learning_rate": "fast"}, "--learning-rate: invalid float value: 'fast'"),
        ({"batch_scaler": "grow"}, "--batch-scaler: invalid choice: 'grow'"),
        ({"generation_batch_size": 7}, "generation_batch_size (7) must be divisible by the global batch size (16)"),
        ({"total_completions": 64}, "total_completions needs a batch_scaler"),
        ({"batch_scaler": "adaptive", "max_generation_batch_size": 40}, "must be a multiple of 16"),
        ({"model": "./nowhere"}, "model ./nowhere: there is no such directory"),
        ({"model": "somebody/something"}, "model somebody/something is no directory here, and from the Hub it cannot"),
        ({"model": "empty.jsonl"}, "model empty.jsonl: there is no such directory"),
        ({"dataset": "nowhere.jsonl"}, "dataset nowhere.jsonl: there is no such file"),
        ({"dataset": "questions.jsonl"}, "dataset questions.jsonl needs a column prompt; it has question"),
        ({"dataset": "empty.jsonl"}, "dataset empty.jsonl has no rows"),
        ({"dataset": "broken.jsonl"}, "dataset broken.jsonl cannot be read: JSON parse error"),
        ({"dataset": "small_rewards.py"}, "dataset small_rewards.py must be one of .jsonl"),
        ({"eval_dataset": "questions.jsonl"}, "eval_dataset questions.jsonl needs a column prompt"),
        ({"reward": "exact"}, "reward exact must be module:function"),
        ({"reward": "no_module:exact"}, "reward no_module:exact: cannot import no_module"),
        ({"reward": "small_rewards:exat"}, "reward small_rewards:exat: small_rewards has no exat; did you mean exact"),
        ({"reward": "small_rewards:nothing_to_call"}, "must be a class or a function, got 3"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing_behind(changes, words, here, capsys):
    assert swell_llm(*train_arguments(here / "run", **changes)) == 2
    assert words in only_line(capsys)
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ("raises", "reward small_rewards:raises raised KeyError: 'answers'"),
        ("one_too_few", "must return one number per completion: 16, got 15"),
        ("words", "must return a list of numbers, got ['good', 'good'"),
        ("infinite", "must return finite numbers, got [inf, inf"),
    ],
)
def test_a_reward_that_fails_is_named(reward, words, here, capsys):
    assert swell_llm(*train_arguments(here / "run", reward=f"small_rewards:{reward}", max_steps=1)) == 4
    assert words in only_line(capsys)
    assert json.loads((here / "run" / "summary.json").read_text())["status"] == "failed"


@pytest.mark.parametrize("rewards", [["exact_later"], ["exact", "exact_later"]])
def test_rewards_may_be_async_and_several(rewards, here):
    arguments = [
        *train_arguments(here / "run", max_steps=1),
        "--reward",
        *(f"small_rewards:{name}" for name in rewards),
    ]
    assert swell_llm(*arguments) == 0
    (row,) = read_jsonl(here / "run" / "metrics.jsonl")
    assert 0.0 <= row["reward"] <= len(rewards)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "swell llm has no command 'trian': it has train, resume, demo; did you mean train?"),
        (["resume"], "swell llm resume: the following arguments are required: directory"),
        (["resume", "nowhere"], "'nowhere' holds no run: there is no config.json in it"),
        (["demo", "--learning_rat", "1"], "unknown option --learning_rat; did you mean --learning-rate?"),
        (["demo", "again"], "'again' is no option"),
    ],
)
def test_a_wrong_command_is_one_line(arguments, words, here, capsys):
    assert swell_llm(*arguments) == 2
    assert words in only_line(capsys)


def test_missing_sources_are_all_named(capsys):
    assert swell_llm("train") == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["--model", "--dataset", "--reward"]


def test_each_kind_of_run_has_its_own_resume(tmp_path, capsys, monkeypatch):
    for name, described in {"env": {"config": {}}, "llm": {"kind": "llm", "config": {}}}.items():
        (tmp_path / name).mkdir()
        write_sealed(tmp_path / name / "config.json", described)
    assert swell_llm("resume", tmp_path / "env") == 2
    assert "holds a run in an env; go on with `swell resume" in only_line(capsys)
    import swell.cli

    monkeypatch.setattr(sys, "argv", ["swell", "resume", str(tmp_path / "llm")])
    with pytest.raises(SystemExit) as end:
        swell.cli.main()
    assert end.value.code == 2
    assert "holds a run of a language model; go on with `swell llm resume" in only_line(capsys)


def test_without_trl_it_says_what_to_install():
    code = (
        "import sys; sys.modules['trl'] = None; sys.argv = ['swell', 'llm', 'demo']; import swell.cli; swell.cli.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr == 'swell: swell.llm needs TRL: pip install "swell-rl[trl]"\n'
    assert ended.returncode == 2


def test_the_run_is_named_after_what_it_is_made_of(here, monkeypatch, capsys):
    arguments = train_arguments(loss_type="ess", batch_scaler="fixed", total_completions=16, save_strategy="no")
    at = arguments.index("--out")
    del arguments[at : at + 2]
    monkeypatch.setattr(swell.llm.session, "create_run_directory", lambda path, command: directories.append(path))
    monkeypatch.setattr(swell.llm.session, "begin", lambda run, parts, directory, quiet: {"directory": str(directory)})
    monkeypatch.setattr("swell.llm.command.tell", lambda summary, report: None)
    directories = []
    assert swell_llm(*arguments) == 0
    assert [str(path) for path in directories] == ["runs/model-problems-ess-fixed-s1"]


def test_the_demo_learns_reports_and_can_be_resumed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(swell.llm.demo, "WARM_STEPS", 5)
    monkeypatch.setattr(swell.llm.session, "FRESH_PROBLEMS", 50)
    monkeypatch.chdir(tmp_path)
    assert (
        swell_llm(
            "demo", "--out", "demo", "--total-completions", 96, "--calibration-readings", 2, "--settling-readings", 0
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "calibrating: 1 of 2 readings, batch 32 until then" in said
    assert "report: demo/report.html" in said and (tmp_path / "demo" / "report.html").stat().st_size > 1000
    evaluations = read_jsonl(tmp_path / "demo" / "evaluations.jsonl")
    assert [(row["completions"], row["problems"]) for row in evaluations] == [(0, 50), (96, 50)]
    (tmp_path / "demo").rename(tmp_path / "elsewhere")
    assert swell_llm("resume", "elsewhere", "--total-completions", 160, "--quiet") == 0
    assert [row["completions"] for row in read_jsonl(tmp_path / "elsewhere" / "evaluations.jsonl")] == [0, 96, 160]


def header(**changes):
    values = {"task": "sorting", "objective": "ess", "network": "Qwen2", "scaler": "adaptive", "least_batch": 32}
    return ModelHeader(
        **{**values, "most_batch": 256, "calibration_readings": 10, "run_directory": "runs/sorting", **changes}
    )


ROW = {"completions": 640, "updates": 20, "reward": 0.25, "batch": 128, "next_batch": 144, "signal": "kl_divergence"}
READ = {**ROW, "reading": 0.004, "calm_reading": 0.001, "volatile_reading": 0.01}


@pytest.mark.parametrize(
    ("changes", "row", "words"),
    [
        ({}, {**ROW, "reading": 0.1}, "calibrating: 1 of 10 readings, batch 128 until then"),
        ({}, READ, "KL 4.0e-3 → batch 144 of 256, up from 128"),
        ({}, {**READ, "next_batch": 128}, "KL 4.0e-3 → batch unchanged at 128 of 256"),
        ({}, {**READ, "completions": 900, "next_batch": 100}, "batch 100 of 256, down from 128 (all that is left)"),
        ({"scaler": "ramp"}, {**ROW, "reading": 0.1}, "KL 0.10 (measured only), ramp 32..256: batch 128"),
        ({"scaler": "none"}, {**ROW, "signal": None}, "TRL's own loop: batch 128, nothing measured"),
    ],
)
def test_a_line_says_why_the_batch_has_its_size(changes, row, words):
    view = ModelView(header(**changes), RewardsSoFar(1000))
    view.add(row)
    assert view.line().endswith(words)


def test_the_panel_has_a_line_for_what_is_known_and_none_for_what_is_not():
    from rich.console import Console

    def drawn(**more):
        view = ModelView(header(), RewardsSoFar(1000))
        view.add({**READ, **more})
        console = Console(width=90, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(view)
        return console.export_text()

    plain = drawn()
    assert "640 of 1,000 completions" in plain and "144 of 256, up from 128" in plain
    assert "│ ESS" not in plain and "│ time" not in plain and "│ evaluated" not in plain
    full = drawn(ess=0.9, seconds_generate=1.0, seconds_update=2.0, seconds_measure=0.5, wall_seconds=4.0)
    assert "│ ESS       0.90" in full and "generate 25%" in full
