"""Stable-Baselines3: the state of the batch lives in the model's own file, and the zoo finds the callback by name."""

import json
import subprocess
import sys
import zipfile

import pytest
from sb3_models import Record, are_equal, make_envs, make_model, weights
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback

from swell.errors import ConfigError
from swell.plugins.sb3 import AdaptiveBatchCallback, AdaptivePPO

RANGE = {"min_steps": 8, "max_steps": 64, "every": 1, "calibration_readings": 3, "smoothing": 0.5}


def adaptive_callback():
    return AdaptiveBatchCallback(**RANGE)


def in_file(path):
    return json.loads(zipfile.ZipFile(path).read("data"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Written in the middle of a rollout, after some readings; and what the batch was at that moment."""
    directory = tmp_path_factory.mktemp("sb3")
    model, callback, record = make_model("PPO"), adaptive_callback(), Record()
    save = CheckpointCallback(150, str(directory))  # so many steps of all envs
    model.learn(4 * 160, callback=[callback, record, save])
    path = directory / "rl_model_600_steps.zip"
    assert 600 not in record.env_steps and record.env_steps[-1] > 600
    length = next(length for length, end in zip(record.lengths, record.env_steps, strict=True) if end > 600)
    return path, length


def test_the_state_is_plain_json_in_the_file_of_the_model(checkpoint):
    path, length = checkpoint
    state = in_file(path)["batch_state"]
    assert ":serialized:" not in state  # SB3's word for what it pickled
    assert state["controller"]["kind"] == "the CalibratedScaler of kl_divergence"
    assert len(state["controller"]["scaler"]["first"]) == 3 and in_file(path)["n_steps"] == length > 8
    assert state["minibatch_size"] == 32


@pytest.mark.parametrize("changes", [{}, {"n_steps": 16}, {"n_steps": 2048, "batch_size": 32}])
def test_a_model_saved_in_mid_rollout_goes_on_with_its_batch(checkpoint, changes):
    path, _ = checkpoint
    saved = in_file(path)["batch_state"]["controller"]
    model, callback, record = PPO.load(path, make_envs("CartPole-v1"), **changes), adaptive_callback(), Record()
    model.learn(4 * 100, callback=[callback, record], reset_num_timesteps=False)
    assert record.lengths[0] == round(saved["scaler"]["adaptive"]["horizon"])
    assert callback.controller.thresholds == pytest.approx((saved_median(saved) / 10, saved_median(saved)))
    assert callback.controller.state_dict()["updates"] == saved["updates"] + len(record.lengths)
    assert all(8 <= length <= 64 for length in record.lengths)
    assert all(min(sizes) >= 16 for sizes in record.minibatches)


def saved_median(saved):
    return sorted(saved["scaler"]["first"])[1]


def test_the_nominal_minibatch_size_survives_and_another_one_counts(checkpoint, tmp_path):
    path, _ = checkpoint
    model = PPO.load(path, make_envs("CartPole-v1"))
    model.learn(400, callback=adaptive_callback())
    model.save(tmp_path / "again")
    state = in_file(tmp_path / "again.zip")["batch_state"]
    assert state["minibatch_size"] == 32 and state["minibatch_size_used"] == model.batch_size
    model = PPO.load(tmp_path / "again", make_envs("CartPole-v1"), batch_size=17)
    model.learn(100, callback=adaptive_callback())
    assert model.batch_state["minibatch_size"] == 17


def test_a_model_of_the_callback_trains_on_without_it(checkpoint):
    path, length = checkpoint
    record = Record()
    PPO.load(path, make_envs("CartPole-v1")).learn(4 * length, callback=record)
    assert record.lengths == [length]


def test_a_state_of_another_rule_is_refused_in_one_line(checkpoint):
    model = PPO.load(checkpoint[0], make_envs("CartPole-v1"))
    with pytest.raises(ConfigError) as caught:
        model.learn(100, callback=AdaptiveBatchCallback(8, 64, "behavioral_divergence"))
    assert list(caught.value.faults) == [
        "the state is that of the CalibratedScaler of kl_divergence and does not fit the CalibratedScaler of "
        "behavioral_divergence; go on as it began"
    ]


def test_a_narrower_range_holds_from_the_first_rollout_on(checkpoint):
    model, record = PPO.load(checkpoint[0], make_envs("CartPole-v1")), Record()
    model.learn(100, callback=[AdaptiveBatchCallback(4, 6, calibration_readings=3), record])
    assert set(record.lengths) == {6}


def test_the_mixin_comes_back_with_its_settings_and_also_as_plain_ppo(tmp_path):
    model = make_model("PPO", AdaptivePPO, batch_settings=RANGE)
    model.learn(1_000)
    model.save(tmp_path / "model")
    assert (
        "_batch" not in in_file(tmp_path / "model.zip") and in_file(tmp_path / "model.zip")["batch_settings"] == RANGE
    )
    again, record = AdaptivePPO.load(tmp_path / "model", make_envs("CartPole-v1"), n_steps=16), Record()
    assert are_equal(weights(model), weights(again)) and again.batch_state == model.batch_state
    again.learn(100, callback=record)
    assert record.lengths[0] == model.n_steps > 8
    plain = PPO.load(tmp_path / "model", make_envs("CartPole-v1"))
    plain.learn(100)
    assert plain.n_steps == model.n_steps


def test_a_plain_file_becomes_adaptive_with_settings(tmp_path):
    make_model("PPO").save(tmp_path / "plain")
    model = AdaptivePPO.load(tmp_path / "plain", make_envs("CartPole-v1"), batch_settings=RANGE)
    model.learn(200)
    assert model.batch_state["controller"]["updates"] > 3
    with pytest.raises(ConfigError, match=r"^AdaptivePPO needs batch_settings"):
        AdaptivePPO.load(tmp_path / "plain", make_envs("CartPole-v1"))


YAML = """
CartPole-v1:
  n_envs: 4
  n_timesteps: 800
  policy: MlpPolicy
  n_steps: 16
  batch_size: 32
  n_epochs: 2
  callback:
    - swell.plugins.sb3.AdaptiveBatchCallback:
        min_steps: 8
        max_steps: 64
        every: 1
        calibration_readings: 3
"""


def test_a_recipe_of_the_zoo_names_the_callback_and_goes_on(tmp_path):
    pytest.importorskip("rl_zoo3")
    (tmp_path / "ppo.yml").write_text(YAML)
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", "CartPole-v1", "--seed", "1"]
    command += ["--conf-file", "ppo.yml", "--log-folder", "logs", "--eval-freq", "-1", "--device", "cpu"]
    for more in ([], ["-i", "logs/ppo/CartPole-v1_1/CartPole-v1.zip"]):
        done = subprocess.run(
            [*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=1200, check=False
        )
        assert done.returncode == 0, done.stderr
    first, second = (
        in_file(tmp_path / f"logs/ppo/CartPole-v1_{number}/CartPole-v1.zip")["batch_state"]["controller"]
        for number in (1, 2)
    )
    assert second["updates"] > first["updates"] > 10
    assert second["scaler"]["first"] == first["scaler"]["first"] and len(first["scaler"]["first"]) == 3
    assert "batch/reading" in done.stdout or "reading" in done.stdout
