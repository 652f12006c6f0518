"""A batch that moves inside TRL's trainer."""

import math
import warnings
from pathlib import Path

import pytest
import torch
import trl
from tests.llm.test_moving_batch import Scripted
from tests.support.small_llm import config, largest_difference, make_trainer, weights
from transformers import TrainerCallback

from swell.errors import ConfigError
from swell.llm.tasks import SORTING


class Record(TrainerCallback):
    """Prompts, micro-batches, batch sizes and learning rates, update by update."""

    def __init__(self):
        self.rows = []

    def watch(self, trainer):
        self.trainer = trainer
        micro_batch, self.micro_batches = trainer._micro_batch, 0

        def counted(*arguments, **keywords):
            self.micro_batches += 1
            return micro_batch(*arguments, **keywords)

        trainer._micro_batch = counted
        return trainer

    def on_step_end(self, args, state, control, **_):
        moving = self.trainer.moving
        row = {"micro_batches": self.micro_batches, "batch": moving.batch, "completions": moving.completions}
        row["rate"] = self.trainer.optimizer.param_groups[0]["lr"]
        self.rows.append({**row, "prompts": [prompt["prompt"] for prompt in self.trainer._prompts[::4]]})
        self.micro_batches = 0


def recorded(directory, model, **changes):
    record = Record()
    return record.watch(make_trainer(directory, model, callbacks=[record], **changes)), record


def test_scripted_sizes_give_micro_batches_and_prompts_in_order(tmp_path, warm_model):
    trainer, record = recorded(tmp_path, warm_model, prompts=30, batch_scaler="fixed", total_completions=96)
    scaler = trainer.moving.controller.scaler = Scripted([1, 3, 2])
    trainer.stability.finish = lambda share: scaler.horizons.append(scaler.horizons.pop(0))
    trainer.train()
    assert [row["micro_batches"] for row in record.rows] == [1, 3, 2]
    asked = [prompt for row in record.rows for prompt in row["prompts"]]
    dataset = [row["prompt"] for row in SORTING.dataset(30, seed=1)]
    assert len(asked) == 24 and len(set(asked)) == len({dataset.index(prompt) for prompt in asked}) == 24


@pytest.mark.portable
def test_micro_batches_add_up_to_the_gradient_of_one_large_batch(tmp_path, warm_model, warm_weights):
    """The same completions in 1 and in 4 slices."""
    gradients = []
    for size in (64, 16):
        warm_model.load_state_dict(warm_weights)
        trainer = make_trainer(
            tmp_path,
            warm_model,
            batch_scaler="fixed",
            per_device_train_batch_size=size,
            max_steps=1,
            gradient_accumulation_steps=64 // size,
            shuffle_dataset=False,
            max_grad_norm=0.0,
            measure_every=0,
        )
        seen = {}

        class Look(TrainerCallback):
            def on_pre_optimizer_step(self, *_, **__):
                seen.update({n: p.grad.clone() for n, p in trainer.model.named_parameters()})  # noqa: B023

        trainer.add_callback(Look())
        trainer.train()
        gradients.append(seen)
    assert largest_difference(*gradients) < 2e-6


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo", "cispo"])
def test_a_fixed_batch_is_stock_trl_to_the_bit(loss_type, tmp_path, warm_model, warm_weights):
    shared = {"loss_type": loss_type, "gradient_accumulation_steps": 2, "steps_per_generation": 4, "max_steps": 6}
    shared |= {"epsilon_high": 5.0, "num_iterations": 2, "shuffle_dataset": False}
    ours = make_trainer(tmp_path, warm_model, batch_scaler="fixed", **shared)
    ours.train()
    trained = weights(ours)
    warm_model.load_state_dict(warm_weights)
    stock = make_trainer(tmp_path, warm_model, **shared)
    stock.train()
    assert (
        ours.state.global_step == stock.state.global_step + 2
    )  # whole generations: 8 updates of 4 each, TRL stops at 6
    warm_model.load_state_dict(warm_weights)
    longer = make_trainer(tmp_path, warm_model, **{**shared, "max_steps": 8})
    longer.train()
    assert largest_difference(trained, weights(longer)) == 0.0


def test_looking_changes_nothing(tmp_path, warm_model, warm_weights):
    from peft import LoraConfig

    trained = []
    for every in (0, 1):
        warm_model.load_state_dict(warm_weights)
        adapter = LoraConfig(r=4, lora_dropout=0.3, target_modules=["q_proj"])
        torch.manual_seed(0)  # older versions of TRL do not, before they make an adapter
        trainer = make_trainer(
            tmp_path, warm_model, batch_scaler="fixed", measure_every=every, peft_config=adapter, disable_dropout=False
        )
        trainer.train()
        trained.append({n: v for n, v in weights(trainer).items() if "lora" in n})
        warm_model = trainer.model.unload()
        assert (trainer.stability.reading is not None) == bool(every)
    assert largest_difference(*trained) == 0.0


ADAPTIVE = {
    "batch_scaler": "adaptive",
    "max_generation_batch_size": 64,
    "total_completions": 640,
    "calibration_readings": 2,
    "settling_readings": 0,
    "smoothing": 0.5,
}


@pytest.mark.parametrize("signal", ["kl_divergence", "effective_sample_size", "behavioral_divergence"])
def test_every_signal_moves_the_batch_within_its_bounds(signal, tmp_path, warm_model):
    trainer, record = recorded(tmp_path, warm_model, signal=signal, **ADAPTIVE)
    trainer.train()
    sizes = [row["batch"] for row in record.rows]
    assert sizes[:2] == [16, 16] and len(set(sizes)) > 1 and max(sizes) <= 64
    assert trainer.moving.generated == 640 == record.rows[-1]["completions"]
    logged = [row[f"stability/{signal}"] for row in trainer.state.log_history if f"stability/{signal}" in row]
    assert len(logged) == len(sizes) and all(math.isfinite(value) for value in logged)
    assert [row["batch/completions"] for row in trainer.state.log_history if "batch/completions" in row] == sizes


def test_a_ramp_grows_with_the_budget_and_the_rate_ends_where_it_should(tmp_path, warm_model):
    trainer, record = recorded(
        tmp_path,
        warm_model,
        batch_scaler="ramp",
        max_generation_batch_size=64,
        total_completions=500,
        lr_scheduler_type="linear",
    )
    trainer.train()
    sizes = [row["batch"] for row in record.rows]
    assert sizes[:-1] == sorted(sizes[:-1]) and sizes[0] == 16 and max(sizes) >= 48
    assert 500 <= trainer.moving.generated < 516
    assert record.rows[-1]["rate"] == 0.0
    used = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    begun = [0.0, *(row["completions"] for row in record.rows[:-1])]
    assert used == pytest.approx([3e-4 * (1 - done / 500) for done in begun])


def test_warmup_is_counted_in_updates_of_the_first_batch(tmp_path, warm_model):
    trainer, _ = recorded(
        tmp_path,
        warm_model,
        batch_scaler="fixed",
        total_completions=96,
        warmup_steps=4,
        lr_scheduler_type="constant_with_warmup",
    )
    trainer.train()
    used = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert used == pytest.approx([0.0, 0.75e-4, 1.5e-4, 2.25e-4, 3e-4, 3e-4])


def test_the_rate_grows_with_the_root_of_the_batch_where_asked(tmp_path, warm_model):
    trainer, record = recorded(
        tmp_path, warm_model, batch_scaler="ramp", max_generation_batch_size=64, total_completions=500, invariance="on"
    )
    trainer.train()
    used = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert used == pytest.approx([3e-4 * (row["batch"] / 16) ** 0.5 for row in record.rows])


def test_under_the_size_rule_a_larger_generation_is_more_updates(tmp_path, warm_model):
    trainer, record = recorded(
        tmp_path,
        warm_model,
        batch_scaler="ramp",
        batch_rule="size",
        max_generation_batch_size=64,
        total_completions=400,
        loss_type="ess",
    )
    trainer.train()
    assert {row["micro_batches"] for row in record.rows} == {1}
    assert trainer.state.global_step == trainer.moving.generated // 16
    assert any(row["ess"] < 1.0 for row in trainer.state.log_history if "ess" in row)


def test_a_generation_is_reused_until_its_trust_is_gone(tmp_path, warm_model, warm_weights):
    counts = {}
    for floor in (None, 0.97, 1.0):
        warm_model.load_state_dict(warm_weights)
        trainer, _ = recorded(
            tmp_path,
            warm_model,
            loss_type="ess",
            batch_scaler="fixed",
            num_iterations=8,
            total_completions=64,
            regenerate_below_ess=floor,
            learning_rate=1e-3,
        )
        trainer.train()
        counts[floor] = trainer.state.global_step
        assert trainer.moving.generated == 64
    assert counts[None] == 32 > counts[0.97] > counts[1.0] >= 4


# Checkpoints.

RESUMED = {
    **ADAPTIVE,
    "loss_type": "ess",
    "num_iterations": 2,
    "lr_scheduler_type": "linear",
    "save_strategy": "steps",
    "save_steps": 3,
    "prompts": 16,  # many epochs
}


def test_a_resumed_run_is_the_same_to_the_bit(tmp_path, warm_model, warm_weights):
    whole, record = recorded(tmp_path / "whole", warm_model, **RESUMED)
    whole.train()
    expected = weights(whole)
    saved = sorted(int(path.name.split("-")[1]) for path in (tmp_path / "whole").glob("checkpoint-*"))
    # Each generation serves two updates, so a save that falls into one waits for its end.
    assert saved[:3] == [4, 6, 10]
    for step in saved[1:-1:3]:
        warm_model.load_state_dict(warm_weights)
        again, resumed = recorded(tmp_path / f"again-{step}", warm_model, **RESUMED)
        again.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert largest_difference(weights(again), expected) == 0.0, step
        assert resumed.rows == record.rows[step:]
        assert again.moving.state_dict() == whole.moving.state_dict()
        assert again.stability.state_dict() == whole.stability.state_dict()


def test_a_checkpoint_of_another_loop_is_named(tmp_path, warm_model):
    stock = make_trainer(tmp_path / "stock", warm_model, save_strategy="steps", save_steps=2, max_steps=2)
    stock.train()
    moving = make_trainer(tmp_path / "moving", warm_model, batch_scaler="fixed")
    with pytest.raises(ConfigError, match="without a batch_scaler"):
        moving.train(resume_from_checkpoint=str(tmp_path / "stock" / "checkpoint-2"))


# Beside TRL's own options.


@pytest.mark.parametrize(
    "changes",
    [
        {"top_entropy_quantile": 0.5, "entropy_coef": 0.01, "mask_truncated_completions": True},
        {"use_adaptive_entropy": True, "entropy_target": 0.5},
        {"save_strategy": "epoch", "eval_strategy": "epoch", "prompts": 8, "per_device_eval_batch_size": 8},
    ],
)
def test_it_runs_beside_trls_own_options(changes, tmp_path, warm_model):
    if "eval_strategy" in changes:
        changes = {**changes, "eval_dataset": SORTING.dataset(4, seed=9)}
    trainer, _ = recorded(tmp_path, warm_model, **{**ADAPTIVE, "total_completions": 128, **changes})
    trainer.train()
    assert all(math.isfinite(row["loss"]) for row in trainer.state.log_history if "loss" in row)
    if "eval_strategy" in changes:
        epochs = 128 // (8 * 4)
        assert len(list(tmp_path.glob("checkpoint-*"))) == epochs
        assert sum("eval_reward" in row for row in trainer.state.log_history) == epochs
        assert trainer.state.log_history[-1]["epoch"] == pytest.approx(epochs)


def test_metrics_reach_tensorboard(tmp_path, warm_model, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer = make_trainer(
        tmp_path,
        warm_model,
        loss_type="ess",
        num_iterations=2,
        report_to=["tensorboard"],
        **{**ADAPTIVE, "total_completions": 64},
    )
    trainer.train()
    (file,) = Path(tmp_path).rglob("events.out.tfevents.*")
    board = EventAccumulator(str(file)).Reload()
    names = {"ess", "ess/ratio_mean", "ess/capped_share", "ess/pull", "batch/completions", "stability/kl_divergence"}
    assert {f"train/{name}" for name in names} <= set(board.Tags()["scalars"])
    assert len(board.Scalars("train/ess")) == trainer.state.global_step


# What is refused.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_scaler": "grow"}, "batch_scaler must be one of none, fixed, ramp, adaptive"),
        ({"min_generation_batch_size": 16}, "min_generation_batch_size needs a batch_scaler"),
        ({"invariance": "on"}, "invariance needs a batch_scaler"),
        ({"batch_scaler": "fixed", "max_generation_batch_size": 64}, "not read by batch_scaler fixed"),
        ({"batch_scaler": "adaptive", "calm_reading": 0.1}, "must both be auto or both be given"),
        ({"batch_scaler": "adaptive", "calm_reading": 0.1, "volatile_reading": "0.1"}, "must differ from"),
        (
            {"batch_scaler": "adaptive", "calm_reading": "low", "volatile_reading": 0.1},
            "calm_reading must be auto or a",
        ),
        ({"batch_scaler": "adaptive", "measure_every": 0}, "measure_every must be at least 1"),
        ({"batch_scaler": "adaptive", "smoothing": 0.0}, "smoothing must be more than 0"),
        ({"batch_scaler": "fixed", "regenerate_below_ess": 0.9}, "loss_type ess, and this run has none"),
        (
            {"batch_scaler": "fixed", "gradient_accumulation_steps": 2, "steps_per_generation": 3},
            "must be a multiple of",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(changes, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        config(tmp_path, **changes)


def test_sizes_and_datasets_are_checked_before_a_model_is_made(tmp_path, warm_model):
    with pytest.raises(ConfigError, match="max_generation_batch_size must be a multiple of 16"):
        make_trainer(tmp_path, warm_model, batch_scaler="adaptive", max_generation_batch_size=40)
    with pytest.raises(ConfigError, match="at most max_generation_batch_size, got 64 and 32"):
        make_trainer(
            tmp_path, warm_model, batch_scaler="ramp", min_generation_batch_size=64, max_generation_batch_size=32
        )
    stream = SORTING.dataset(8, seed=1).to_iterable_dataset()
    from swell.llm import GRPOTrainer

    with pytest.raises(ConfigError, match="needs a train_dataset with a length"):
        GRPOTrainer(warm_model, lambda **_: [], config(tmp_path, batch_scaler="fixed"), stream)


def test_trls_names_are_kept(tmp_path):
    assert issubclass(type(config(tmp_path)), trl.GRPOConfig)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert config(tmp_path).generation_batch_size == 16
    assert torch.get_num_threads() == 1
