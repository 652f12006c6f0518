"""What a kind of run calls things: in its files, on the page, and in its options.

A run in an env counts env steps and returns, one that trains a language model counts completions and rewards. The rest
of the report knows neither: files are translated as they are read, and sentences ask the kind of their runs for words.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from swell.display.sinks import PHASES

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Words:
    """What sentences, titles and columns about runs say."""

    place: str
    """What a run trains on."""
    clock: str
    """What the length of a run is counted in."""
    updates: str
    batch: str
    """What the scaler moves."""
    samples: str
    """What the whole batch is counted in."""
    evaluation_score: str
    training_score: str


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of run, and the words for it."""

    name: str
    """As config.json has it."""
    title: str
    names: Mapping[str, str]
    """Name in metrics.jsonl, evaluations.jsonl or summary.json -> the reader's own; other names are kept."""
    words: Words
    score: str
    """What is learned from, as the axis of its curves."""
    evaluation: str
    training: str
    """Short names of the two scores a run may end with."""
    batch_unit: str
    score_note: str
    batch_note: str
    signal_note: str
    time_note: str
    option_note: str
    time_per: int
    """Seconds are told per so many on the clock."""
    without_score: str
    """Why a finished run may have no score."""
    phases: tuple[str, ...]
    fixed_batch: str
    """The option with the size of a fixed batch."""
    largest_batch: Callable[[Options], object]
    """From its options, in samples; what is no number is not known."""

    def translated(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row or a summary under the reader's own names."""
        return {self.names.get(name, name): value for name, value in row.items()}


def _largest_rollout(config: Options) -> object:
    ramp = config.get("ramp_horizons")
    last = cast("list[Any]", ramp)[-1] if isinstance(ramp, list) and ramp else None
    longest = {"fixed": config.get("horizon"), "ramp": last}.get(str(config.get("scaler")), config.get("max_horizon"))
    num_envs = config.get("num_envs")
    return longest * num_envs if isinstance(longest, int) and isinstance(num_envs, int) else None


def _largest_generation(config: Options) -> object:
    moves = config.get("scaler") in ("ramp", "adaptive")
    return config.get("max_generation_batch_size" if moves else "generation_batch_size")


ENV_RUN = Kind(
    name="env",
    title="Env runs",
    names={
        "env_steps": "clock",
        "episode_return": "score",
        "horizon": "batch",
        "next_horizon": "planned_batch",
        "effective_sample_size": "ess",
        "mean_return": "evaluation_score",
        "evaluation_return": "evaluation_score",
        "final_return": "training_score",
        "steps_per_second": "speed",
    },
    words=Words(
        place="env",
        clock="env steps",
        updates="gradient steps",
        batch="horizon",
        samples="samples",
        evaluation_score="greedy evaluation return",
        training_score="mean return of the last 100 training episodes",
    ),
    score="return",
    evaluation="greedy evaluation",
    training="last 100 training episodes",
    batch_unit="steps per env",
    score_note="Mean unclipped return of the last 100 training episodes, with exploration.",
    batch_note=(
        "Length of the rollouts as planned; times the number of envs it is the batch (Figure 2 of the ABS paper)."
    ),
    signal_note=(
        "The signal that the adaptive batch listens to, measured on probe states around an update (Figure 1 of the ABS "
        "paper). Behavioral divergence is the share of states whose greedy action changed, also called policy churn."
    ),
    time_note="choosing actions, stepping envs, updating, measuring the signal; “other” is evaluation and checkpoints",
    option_note=" Presets choose some by env.",
    time_per=100_000,
    without_score="no episode ended",
    phases=PHASES,
    fixed_batch="horizon",
    largest_batch=_largest_rollout,
)

LANGUAGE_MODEL_RUN = Kind(
    name="llm",
    title="Language-model runs",
    names={  # not next_batch: the batch of each row is drawn as it was, also that of a last one cut to the run's total
        "completions": "clock",
        "updates": "gradient_steps",
        "reward": "score",
        "mean_reward": "evaluation_score",
        "evaluation_reward": "evaluation_score",
        "final_reward": "training_score",
        "completions_per_second": "speed",
    },
    words=Words(
        place="task",
        clock="completions",
        updates="optimizer steps",
        batch="batch",
        samples="completions",
        evaluation_score="mean reward on fresh problems",
        training_score="mean training reward of the last 10 % of completions",
    ),
    score="reward",
    evaluation="reward on fresh problems",
    training="reward of the last 10\u00a0%",
    batch_unit="completions",
    score_note="Mean reward of the completions that were trained on, as they were sampled.",
    batch_note="Completions per generation: how many are sampled before the policy is updated on them.",
    signal_note=(
        "The signal that the adaptive batch listens to: how far an update moved the policy on tokens sampled before "
        "it, corrected for learning rate and batch as the run was told to. Behavioral divergence is the share of "
        "tokens whose greedy choice changed."
    ),
    time_note="sampling completions, updating, measuring the signal; “other” is the rest of the wall-clock time",
    option_note="",
    time_per=1_000,
    without_score="none was noted",
    phases=("generate", "update", "measure"),
    fixed_batch="generation_batch_size",
    largest_batch=_largest_generation,
)

KINDS = (ENV_RUN, LANGUAGE_MODEL_RUN)

_BOTH = Words(
    place="task",
    clock="env steps or completions",
    updates="gradient steps",
    batch="batch",
    samples="samples or completions",
    evaluation_score="greedy evaluation return, or mean reward on fresh problems",
    training_score=f"{ENV_RUN.words.training_score}, or {LANGUAGE_MODEL_RUN.words.training_score}",
)
"""For what is said about runs of both kinds at once."""


def kind_named(name: object) -> Kind:
    """The kind that config.json names; runs in envs name none."""
    return next((kind for kind in KINDS if kind.name == name), ENV_RUN)


def common_words(kinds: Iterable[Kind]) -> Words:
    """The words for runs of these kinds taken together."""
    present = set(kinds)
    return _BOTH if len(present) > 1 else next(iter(present), ENV_RUN).words
