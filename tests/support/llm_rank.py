"""One process of a run on several, started by tests/llm/test_ranks.py; leaves its state and weights.

python -m tests.support.llm_rank DIRECTORY '{"settings": …}'
"""

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tests.support.small_llm import make_trainer

from swell.llm.tasks import SORTING, small_model


def made_up(prompts, trainer):
    """Completions that depend on the prompt and on nothing else, some right; log-probs as if another had sampled."""
    tokenizer = trainer.processing_class
    answers, seen = dict(SORTING.problems(64, seed=1)), {}
    ids, log_probs = [], []
    for prompt in prompts:
        seen[prompt] = number = seen.get(prompt, -1) + 1
        answer = answers[prompt]
        text = answer if number % 2 else answer[::-1]
        completion = [*tokenizer.encode(text), 1] if number < 3 else [*tokenizer.encode(text[:3]), 1]
        ids.append(completion)
        log_probs.append([-1.0 - 0.1 * ((number + place) % 5) for place in range(len(completion))])
    return {
        "prompt_ids": [tokenizer.encode(prompt) for prompt in prompts],
        "completion_ids": ids,
        "logprobs": log_probs,
    }


def main():
    directory, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    model = small_model(seed=1)
    model.load_state_dict(load_file(directory / "warm.safetensors"))
    changes = given["settings"]
    if given["made_up"]:
        changes["rollout_func"] = made_up
    backend = {"ddp_backend": "gloo"} if "WORLD_SIZE" in os.environ else {}
    trainer = make_trainer(directory / "out", model, **backend, **changes)
    trainer.train()
    rank = trainer.accelerator.process_index
    name = f"{given['name']}-{rank}"
    state = {"sizes": [row["batch/completions"] for row in trainer.state.log_history if "batch/completions" in row]}
    state["ess"] = [row["ess"] for row in trainer.state.log_history if "ess" in row]
    state["readings"] = [
        row["stability/raw_reading"] for row in trainer.state.log_history if "stability/raw_reading" in row
    ]
    if trainer.moving is not None:
        state["moving"] = trainer.moving.state_dict()
    (directory / f"{name}.json").write_text(json.dumps(state))
    trained = {
        key: value.contiguous() for key, value in trainer.accelerator.unwrap_model(trainer.model).state_dict().items()
    }
    save_file(trained, directory / f"{name}.safetensors")


if __name__ == "__main__":
    main()
