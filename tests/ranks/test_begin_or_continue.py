"""What `train` does under a launcher that starts the same command again, and what it says of several processes."""

from types import SimpleNamespace

import pytest
import torch
from kill import outcome, same, small_config

from swell import ranks
from swell.cli.commands import Train
from swell.cli.execution import require_own_options
from swell.errors import ConfigError, DivergedError
from swell.ranks import Place
from swell.runs.introduction import process_notices
from swell.runs.launch import require_possible
from swell.runs.sealed import read_sealed, write_sealed
from swell.runs.start import begin_or_continue, run

SHORT = {"total_env_steps": 600, "evaluate_every": 0, "evaluation_episodes": 0, "checkpoint_every": 200}


def test_the_same_command_returns_a_run_that_is_done_and_refuses_other_options(tmp_path):
    config = small_config(**SHORT)
    first = begin_or_continue(config, tmp_path / "run", quiet=True)
    assert begin_or_continue(config, tmp_path / "run", quiet=True)["gradient_steps"] == first["gradient_steps"]
    with pytest.raises(ConfigError, match="holds a run with another learning_rate, seed"):
        begin_or_continue(small_config(**SHORT, seed=7, learning_rate=1e-3), tmp_path / "run", quiet=True)


def test_a_run_that_was_cut_off_goes_on_and_one_that_diverged_does_not(tmp_path):
    config = small_config(**SHORT)
    run(config, tmp_path / "whole", quiet=True)
    begin_or_continue(config, tmp_path / "run", quiet=True)
    summary = read_sealed(tmp_path / "run" / "summary.json")
    (tmp_path / "run" / "summary.json").unlink()
    begin_or_continue(config, tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), outcome(tmp_path / "whole"))
    write_sealed(tmp_path / "run" / "summary.json", {**summary, "status": "diverged"})
    with pytest.raises(DivergedError, match="has diverged; lower learning_rate"):
        begin_or_continue(config, tmp_path / "run", quiet=True)


def test_under_torchrun_neither_more_processes_nor_new_runs_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
    monkeypatch.setenv("WORLD_SIZE", "2")
    require_possible(1, new=False)
    with pytest.raises(ConfigError, match="torchrun has started 2 already"):
        require_possible(2, new=False)
    with pytest.raises(ConfigError, match="name one with --out"):
        require_possible(1, new=True)


def test_envs_of_one_generator_and_small_networks_are_pointed_out():
    envs = SimpleNamespace(shares_generator=True)
    parts = SimpleNamespace(collector=SimpleNamespace(envs=envs), device=torch.device("cpu"), network_name="mlp")
    assert process_notices(parts) == []
    with ranks._at(Place(count=2, local_count=2)):
        generator, small = process_notices(parts)
    assert "one generator in each process" in generator and "as small as mlp" in small


@pytest.mark.parametrize(("where", "asked"), [("local", {"workers": 4}), ("ray", {"processes": 2})])
def test_options_of_another_launcher_are_refused(where, asked):
    [name] = asked
    with pytest.raises(ConfigError, match=f"{name} is not read with --on {where}"):
        require_own_options(Train(small_config(**SHORT), on=where, **asked))
