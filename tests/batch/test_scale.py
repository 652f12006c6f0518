"""The calculator of the batch-size rules, as printed."""

import subprocess
import sys

import pytest

from swell.batch.scale import scale_report
from swell.presets import preset_config


def row(report, label):
    (line,) = [line for line in report.splitlines() if line.startswith(label)]
    return line.removeprefix(label).split()


def test_the_published_numbers_come_out_at_a_sixteenth_of_the_batch():
    report = scale_report(preset_config("ppg-ewma", "procgen/coinrun"), 65_536, 4096)
    assert row(report, "transitions per gradient step") == ["8192", "512"]
    assert row(report, "learning rate") == ["0.0005", "0.000125"]
    assert row(report, "decay of the averaged policy") == ["0.888889", "0.992248"]
    assert row(report, "decay of the advantage moments") == ["0", "0.882353"]
    assert row(report, "Adam betas (optional)") == ["0.900000,", "0.999000", "0.993437,", "0.999937"]


def test_a_phase_keeps_its_env_steps():
    config = preset_config("ppg", "procgen/coinrun")
    batch = config.num_envs * config.horizon
    report = scale_report(config, batch, batch // 4)
    assert row(report, f"rollouts per phase ({config.phase_env_steps:,} env steps)") == ["32", "128"]


def test_only_what_a_learner_has_is_listed():
    report = scale_report(preset_config("classic", "CartPole-v1"), 1024, 256)
    assert "decay" not in report and "phase" not in report
    assert "--reference-batch 1024 --invariance on" in report


def test_several_epochs_are_pointed_out():
    assert "the rules hold for one epoch; ppo-mujoco makes 10" in scale_report(
        preset_config("ppo-mujoco", "HalfCheetah-v5"), 2048, 512
    )


@pytest.mark.parametrize(("batch", "line"), [("0", "from_batch must be at least 1, got 0")])
def test_a_batch_of_nothing_is_refused(batch, line):
    command = [sys.executable, "-m", "swell", "scale", "--from-batch", batch, "--to-batch", "64"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 2
    assert finished.stderr.strip() == f"swell: {line}"
