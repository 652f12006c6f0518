"""loss_type="ess" on TRL, against the formula written out here."""

import math

import pytest
import torch
import trl
from tests.support.small_llm import config, largest_difference, make_trainer, weights

from swell.errors import ConfigError
from swell.llm.ess_trainer import counted_tokens, full_sequences


def micro_batch(trainer, rows=16, seed=0, staleness=0.5, **changes):
    """Inputs of a loss, as TRL makes them: random tokens, behaviour log-probs off by noise, some rows cut short."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 15, (rows, 6), generator=generator)
    lengths = torch.randint(2, 7, (rows, 1), generator=generator)
    mask = (torch.arange(6) < lengths).long()
    inputs = {
        "prompt_ids": torch.randint(2, 15, (rows, 6), generator=generator),
        "prompt_mask": torch.ones(rows, 6, dtype=torch.long),
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": torch.randn(rows, generator=generator),
        "num_items_in_batch": mask.sum().float(),
    }
    if staleness:
        with torch.no_grad():
            noise = staleness * torch.randn(rows, 6, generator=generator)
            inputs["old_per_token_logps"] = log_probs(trainer.model, inputs, trainer.temperature) + noise
    return {**inputs, **changes}


def log_probs(model, inputs, temperature):
    ids, attention = full_sequences(inputs)
    length = inputs["completion_ids"].size(1)
    logits = model(input_ids=ids, attention_mask=attention).logits[:, -length - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(2, inputs["completion_ids"].unsqueeze(2)).squeeze(2)


def formula(trainer, inputs, ess=None, normalizer=None):
    """−sg(min(ρ, e))·A·log π + (1 − e)·(l + exp(−l) − 1), over the tokens that count."""
    behavior = inputs.get("sampling_per_token_logps", inputs.get("old_per_token_logps"))
    mask = counted_tokens(inputs).bool()
    now = log_probs(trainer.model, inputs, trainer.temperature)
    known = mask & ~behavior.isnan() if behavior is not None else torch.zeros_like(mask)
    ratios = now[known] - behavior[known] if behavior is not None else now[known]
    rho = ratios.detach().double().exp()
    e = ess if ess is not None else (rho.sum() ** 2 / (len(rho) * (rho**2).sum()) if len(rho) else torch.tensor(1.0))
    weight = torch.ones_like(now)
    weight[known] = ratios.detach().exp()
    weight = weight.clamp(max=float(e))
    policy = -(weight * inputs["advantages"].unsqueeze(1) * now)[mask].sum()
    pull = (1.0 - float(e)) * (ratios + torch.exp(-ratios) - 1.0).sum()
    return (policy + pull) / (normalizer or inputs["num_items_in_batch"]), float(e)


def gradient(trainer, loss):
    trainer.model.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}


def loss_of(trainer, inputs):
    trainer.model.train()
    trainer._buffered_inputs = [inputs]
    trainer.current_gradient_accumulation_steps = 1
    trainer.args.steps_per_generation = 1
    return trainer._compute_loss(trainer.model, inputs)


def nan_in_the_middle(inputs):
    sampled = inputs.pop("old_per_token_logps")
    sampled[::3, 1] = math.nan
    return {**inputs, "sampling_per_token_logps": sampled}


def a_tool_spoke(inputs):
    tool_mask = torch.ones_like(inputs["completion_mask"])
    tool_mask[:, 1] = 0
    mask = inputs["completion_mask"] * tool_mask
    return {**inputs, "tool_mask": tool_mask, "num_items_in_batch": mask.sum().float()}


@pytest.mark.portable
@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("on-policy", lambda inputs: {k: v for k, v in inputs.items() if k != "old_per_token_logps"}),
        ("stale", lambda inputs: inputs),
        ("unknown tokens", nan_in_the_middle),
        ("tool", a_tool_spoke),
    ],
)
def test_loss_and_gradient_are_those_of_the_formula(case, change, tmp_path, warm_model):
    trainer = make_trainer(tmp_path, warm_model, loss_type="ess")
    inputs = change(micro_batch(trainer))
    expected, ess = formula(trainer, inputs)
    wanted = gradient(trainer, expected)
    loss = loss_of(trainer, inputs)
    assert loss.item() == pytest.approx(expected.item(), abs=2e-6)
    assert largest_difference(gradient(trainer, loss), wanted) < 2e-6
    assert trainer.last_ess == pytest.approx(ess, abs=1e-6)
    assert (ess == 1.0) == (case == "on-policy")


def test_on_policy_it_is_cispo_with_a_cap_of_one_to_the_bit(tmp_path, warm_model):
    ours = make_trainer(tmp_path, warm_model, loss_type="ess")
    inputs = micro_batch(ours, staleness=0.0)
    loss = loss_of(ours, inputs)
    own = gradient(ours, loss)
    theirs = make_trainer(tmp_path, warm_model, loss_type="cispo", epsilon_high=1.0)
    reference = loss_of(theirs, inputs)
    assert loss.item() == reference.item()
    assert largest_difference(own, gradient(theirs, reference)) == 0.0


@pytest.mark.parametrize(("option", "missing"), [("ess_pull", "pull"), ("ess_cap", "cap")])
def test_ablations_leave_out_one_half(option, missing, tmp_path, warm_model):
    trainer = make_trainer(tmp_path, warm_model, loss_type="ess", **{option: False})
    inputs = micro_batch(trainer)
    loss = loss_of(trainer, inputs).item()
    whole, ess = formula(trainer, inputs)
    assert abs(loss - whole.item()) > 1e-3, missing
    assert trainer.last_ess == pytest.approx(ess)


@pytest.mark.portable
def test_the_gradient_of_a_step_does_not_depend_on_its_micro_batches(tmp_path, warm_model):
    trainer = make_trainer(tmp_path, warm_model, loss_type="ess")
    whole = micro_batch(trainer, rows=64)
    expected, ess = formula(trainer, whole)
    wanted = gradient(trainer, expected)
    for parts in (1, 2, 4, 8):
        losses = accumulated(trainer, whole, parts)
        assert largest_difference(losses, wanted) < 2e-6, parts
        assert trainer.last_ess == pytest.approx(ess, abs=1e-6)


def test_the_authors_scope_depends_on_them(tmp_path, warm_model):
    trainer = make_trainer(tmp_path, warm_model, loss_type="ess", ess_scope="micro-batch")
    whole = micro_batch(trainer, rows=64)
    difference = largest_difference(accumulated(trainer, whole, 8), accumulated(trainer, whole, 1))
    assert difference > 1e-4


def accumulated(trainer, whole, parts):
    """The gradient of one optimizer step in so many micro-batches."""
    size = whole["completion_ids"].size(0) // parts
    slices = [{k: v[i * size : (i + 1) * size] if v.dim() else v for k, v in whole.items()} for i in range(parts)]
    trainer.model.train()
    trainer.model.zero_grad()
    trainer._buffered_inputs = slices
    trainer.args.steps_per_generation = trainer.current_gradient_accumulation_steps = parts
    for trainer._step, inputs in enumerate(slices):
        trainer._compute_loss(trainer.model, inputs).backward()
    trainer._step = 0
    return {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}


def test_e_is_one_on_the_first_update_of_a_generation_and_falls_after(tmp_path, warm_model):
    trainer = make_trainer(tmp_path, warm_model, loss_type="ess", steps_per_generation=2, num_iterations=2, max_steps=8)
    trainer.train()
    seen = [row["ess"] for row in trainer.state.log_history if "ess" in row]
    assert seen[0] == pytest.approx(1.0, abs=1e-6) and seen[4] == pytest.approx(1.0, abs=1e-6)
    assert all(0.2 < e < 1.0 - 1e-6 for e in (*seen[1:4], *seen[5:]))
    assert not any("cispo_clip_ratio" in row for row in trainer.state.log_history)


def test_dropout_is_off_where_it_would_look_like_staleness(tmp_path, warm_model):
    from peft import LoraConfig

    adapter = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.3, target_modules=["q_proj", "v_proj"])
    trainer = make_trainer(
        tmp_path, warm_model, loss_type="ess", num_iterations=2, max_steps=2, peft_config=adapter, learning_rate=1e-2
    )
    trainer.train()
    first, second = (row["ess"] for row in trainer.state.log_history if "ess" in row)
    assert first == pytest.approx(1.0, abs=1e-6)
    assert second < 1.0 - 1e-6
    assert config(tmp_path, loss_type="dapo").disable_dropout is False
    assert config(tmp_path, loss_type="ess", disable_dropout=False).disable_dropout is False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "e is 1 in every update with these settings"),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 2}, "e is 1 in every update"),
        ({"num_iterations": 2}, "a generation serves 2 updates"),
        ({"steps_per_generation": 4, "num_iterations": 4}, "a generation serves 16 updates"),
        ({"num_iterations": 2, "top_p": 0.9}, "The sampler is truncated"),
        ({"batch_scaler": "fixed", "num_iterations": 3}, "a generation serves 3 updates"),
    ],
)
def test_the_first_line_says_whether_e_can_differ_from_one(changes, words, tmp_path, warm_model, capsys):
    trainer = make_trainer(tmp_path, warm_model, loss_type="ess", **{"max_steps": 1, **changes})
    trainer.train()
    assert [words in line for line in capsys.readouterr().out.splitlines() if line.startswith("swell: ESS")] == [True]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"importance_sampling_level": "sequence"}, "importance_sampling_level must be token"),
        ({"use_vllm": True}, "would be weighted twice"),
        ({"ess_scope": "window"}, "ess_scope must be one of step, micro-batch"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, words, tmp_path):
    with pytest.raises(Exception, match=words):
        config(tmp_path, loss_type="ess", **changes)


def test_a_loss_that_trl_does_not_have_is_refused_before_anything_is_sampled(tmp_path, warm_model):
    with pytest.raises(
        ConfigError, match=r"loss_type must be one of bnpo, cispo, dapo, dr_grpo, ess, grpo, .*got 'gppo'"
    ):
        make_trainer(tmp_path, warm_model, loss_type="gppo")


def test_a_config_of_trl_itself_is_named(tmp_path, warm_model):
    with pytest.raises(Exception, match=r"swell\.llm\.GRPOConfig"):
        make_trainer(tmp_path, warm_model, args=trl.GRPOConfig(str(tmp_path), use_cpu=True, bf16=False))


def test_other_losses_are_trls_to_the_bit(tmp_path, warm_model, warm_weights):
    ours = make_trainer(tmp_path, warm_model, loss_type="dapo", num_iterations=2)
    ours.train()
    trained = weights(ours)
    warm_model.load_state_dict(warm_weights)
    names = {
        "per_device_train_batch_size",
        "num_generations",
        "max_completion_length",
        "learning_rate",
        "num_iterations",
    }
    names |= {"lr_scheduler_type", "temperature", "use_cpu", "bf16", "report_to", "save_strategy", "seed", "max_steps"}
    args = trl.GRPOConfig(str(tmp_path), **{n: getattr(ours.args, n) for n in names}, gradient_checkpointing=False)
    theirs = make_trainer(tmp_path, warm_model, kind=trl.GRPOTrainer, args=args)
    theirs.train()
    assert largest_difference(trained, weights(theirs)) == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"top_entropy_quantile": 0.5, "entropy_coef": 0.01, "mask_truncated_completions": True},
        {"off_policy_mask_threshold": 0.5},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 4},
        {"gradient_accumulation_steps": 3, "steps_per_generation": 2},
    ],
)
def test_it_runs_beside_trls_own_options(changes, tmp_path, warm_model):
    trainer = make_trainer(tmp_path, warm_model, loss_type="ess", num_iterations=2, max_steps=3, **changes)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "ess" in row]
    assert len(rows) == 3 and all(math.isfinite(row["loss"]) and 0.0 < row["ess"] <= 1.0 for row in rows)
    assert all(0.0 <= row["ess/capped_share"] <= 1.0 and row["ess/pull"] >= 0.0 for row in rows)


def test_a_reference_model_and_evaluation_run_beside_it(tmp_path, warm_model, tokenizer):
    from swell.llm.tasks import SORTING

    source = tmp_path / "model"
    warm_model.save_pretrained(source)
    tokenizer.save_pretrained(source)
    trainer = make_trainer(
        tmp_path,
        str(source),
        loss_type="ess",
        num_iterations=2,
        beta=0.02,
        eval_strategy="steps",
        eval_steps=2,
        max_steps=2,
        eval_dataset=SORTING.dataset(8, seed=2),
        per_device_eval_batch_size=8,
    )
    trainer.train()
    evaluated = [row for row in trainer.state.log_history if "eval_reward" in row]
    assert len(evaluated) == 1 and not any(name.startswith("eval_ess") for name in evaluated[0])
    assert any("kl" in row for row in trainer.state.log_history)


@pytest.mark.portable
@pytest.mark.parametrize("changes", [{}, {"num_iterations": 2}])
def test_it_learns_to_sort(changes, tmp_path, warm_model):
    trainer = make_trainer(
        tmp_path,
        warm_model,
        prompts=512,
        loss_type="ess",
        per_device_train_batch_size=128,
        num_generations=8,
        max_steps=35 * changes.get("num_iterations", 1),
        **changes,
    )
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    assert sum(rewards[-10:]) / 10 > sum(rewards[:5]) / 5 + 0.05
