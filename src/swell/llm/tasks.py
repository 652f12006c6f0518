"""Small tasks with a checkable answer, and a model and a tokenizer to try them with: made on the spot, no downloads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SYMBOLS = "0123456789+=>"


@dataclass(frozen=True)
class Task:
    """Problems as texts: a prompt, and the one right answer."""

    name: str
    problem: Callable[[np.random.Generator], tuple[str, str]]
    answer_length: int
    """Most characters of an answer."""

    def problems(self, count: int, seed: int) -> list[tuple[str, str]]:
        generator = np.random.default_rng(seed)
        return [self.problem(generator) for _ in range(count)]

    def dataset(self, count: int, seed: int) -> Dataset:
        """With the columns `prompt` and `answer`."""
        prompts, answers = zip(*self.problems(count, seed), strict=True)
        return Dataset.from_dict({"prompt": list(prompts), "answer": list(answers)})


def _sorting(generator: np.random.Generator) -> tuple[str, str]:
    digits = generator.integers(0, 10, 5)
    return "".join(map(str, digits)) + ">", "".join(map(str, sorted(digits)))


def _addition(generator: np.random.Generator) -> tuple[str, str]:
    first, second = generator.integers(10, 100, 2)
    return f"{first}+{second}=", str(first + second)


SORTING = Task("sort-5-digits", _sorting, 5)
ADDITION = Task("add-2-digits", _addition, 3)


def exact_match(completions: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
    """1 for the right answer and nothing else, else 0. A reward function as TRL has them."""
    return [float(given == right) for given, right in zip(completions, answer, strict=True)]


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, padded on the left."""
    names = ["<pad>", "<eos>", *SYMBOLS]
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.Fuse()  # pyright: ignore[reportAttributeAccessIssue]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def small_model(seed: int) -> Qwen2ForCausalLM:
    """A transformer of two layers and 133,696 parameters."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(SYMBOLS) + 2,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def warm_start(
    model: Any, tokenizer: Any, task: Task, *, steps: int, seed: int, until: float = 1.0, batch_size: int = 64
) -> None:
    """Trains the model on right answers, so that sampling finds some of them.

    Ends after so many steps, or as soon as a sampled answer is right `until` of the time.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for number in range(steps):
        if until < 1.0 and number % 25 == 0 and accuracy(model, tokenizer, task, problems=500, seed=seed) >= until:
            return
        problems = task.problems(batch_size, seed=(seed * 1_000_003 + number) % 2**31)
        ids, labels = _supervised(tokenizer, problems)
        loss = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _supervised(tokenizer: Any, problems: Sequence[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts with their answers, padded on the left; labels are −100 where there is nothing to learn."""
    rows = [(tokenizer.encode(prompt), [*tokenizer.encode(answer), 1]) for prompt, answer in problems]
    length = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for row, (prompt, answer) in enumerate(rows):
        ids[row, length - len(prompt) - len(answer) :] = torch.tensor(prompt + answer)
        labels[row, length - len(answer) :] = torch.tensor(answer)
    return ids, labels


@torch.no_grad()
def accuracy(model: Any, tokenizer: Any, task: Task, *, problems: int = 1000, seed: int, greedy: bool = False) -> float:
    """The share of fresh problems that a sampled (or greedy) completion solves; draws from a generator of its own."""
    was_training = model.training
    model.eval()
    asked = task.problems(problems, seed)
    inputs = tokenizer([prompt for prompt, _ in asked], return_tensors="pt", padding=True)
    ids, attention = inputs["input_ids"].to(model.device), inputs["attention_mask"].to(model.device)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        out = model.generate(
            input_ids=ids,
            attention_mask=attention,
            max_new_tokens=task.answer_length + 1,
            do_sample=not greedy,
            **({} if greedy else {"top_k": 0, "temperature": 1.0}),
        )
    model.train(was_training)
    given = tokenizer.batch_decode(out[:, ids.size(1) :], skip_special_tokens=True)
    return float(np.mean(exact_match(given, [answer for _, answer in asked])))
