"""A GRPO trainer of the sorting task that takes a second to build."""

from swell.llm.config import GRPOConfig
from swell.llm.tasks import SORTING, character_tokenizer, exact_match
from swell.llm.trainer import GRPOTrainer

SETTINGS = {
    "per_device_train_batch_size": 16,
    "num_generations": 4,
    "max_completion_length": 6,
    "learning_rate": 3e-4,
    "lr_scheduler_type": "constant",
    "temperature": 1.0,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": [],
    "save_strategy": "no",
    "disable_tqdm": True,
    "logging_steps": 1,
    "seed": 1,
    "max_steps": 4,
}


def config(directory, **changes):
    return GRPOConfig(str(directory), **{**SETTINGS, **changes})


def make_trainer(directory, model, prompts=64, kind=GRPOTrainer, args=None, **changes):
    extra = {
        name: changes.pop(name)
        for name in ("callbacks", "peft_config", "rollout_func", "eval_dataset")
        if name in changes
    }
    return kind(
        model=model,
        reward_funcs=exact_match,
        args=args or config(directory, **changes),
        train_dataset=SORTING.dataset(prompts, seed=1),
        processing_class=character_tokenizer(),
        **extra,
    )


def weights(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def largest_difference(first, second):
    assert first.keys() == second.keys()
    return max((first[name].double() - second[name].double()).abs().max().item() for name in first)
