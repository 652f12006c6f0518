"""`swell llm demo`: a transformer that learns to sort digits, made on the spot, without downloads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from swell.llm.model_run import MADE, ModelRun, Parts, make_config, with_usual
from swell.llm.options import Asked
from swell.llm.session import begin, hush, new_directory, removed_on_failure
from swell.llm.tasks import SORTING, character_tokenizer, small_model, warm_start

PROBLEMS = 2048
WARM_STEPS = 30
"""Of supervised training, after which a sampled answer is right about one time in five."""
SETTINGS: dict[str, Any] = {
    "loss_type": "ess",
    "batch_scaler": "adaptive",
    "total_completions": 30_000,
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 2,
    "num_generations": 8,
    "num_iterations": 2,
    "max_completion_length": SORTING.answer_length + 1,
    "learning_rate": 3e-4,
    "lr_scheduler_type": "linear",
    "seed": 1,
}
"""Two updates of each generation, so that e can fall below 1."""
UPDATES = 1875
"""That TRL's own loop makes of as many completions."""


def demo(asked: Asked) -> dict[str, Any]:
    """Makes a model and problems in a new run directory, trains, and returns the summary."""
    hush()
    config = with_usual({**SETTINGS, **asked.config})
    if config["batch_scaler"] == "none" and "total_completions" not in asked.config:  # TRL's own loop counts updates
        del config["total_completions"]
        config.setdefault("max_steps", UPDATES)
    seed = make_config(config).seed
    run = ModelRun(
        name=SORTING.name,
        model=MADE["model"],
        dataset=MADE["dataset"],
        reward=("swell.llm.tasks:exact_match",),
        config=config,
        label=asked.run.label,
        checkpoints=asked.run.checkpoints,
        task=SORTING.name,
    )
    directory = new_directory(run, asked.run.out, asked.run.new)
    with removed_on_failure(directory):
        make_sources(directory, seed)
        run = replace(run, **{name: str(directory / made) for name, made in MADE.items()})
        parts = Parts.load(run)
    return begin(run, parts, directory, quiet=asked.run.quiet)


def make_sources(directory: Path, seed: int) -> None:
    """A model that knows a little, its tokenizer, and problems for it."""
    model, tokenizer = small_model(seed), character_tokenizer()
    warm_start(model, tokenizer, SORTING, steps=WARM_STEPS, seed=seed)
    model.save_pretrained(directory / MADE["model"])
    tokenizer.save_pretrained(directory / MADE["model"])
    rows = ({"prompt": prompt, "answer": answer} for prompt, answer in SORTING.problems(PROBLEMS, seed))
    (directory / MADE["dataset"]).write_text("".join(json.dumps(row) + "\n" for row in rows))
