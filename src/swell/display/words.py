"""A run in words: numbers, why the batch changed, and the report at the end. Strings only, no terminal."""

import math
from collections.abc import Mapping, Sequence

from swell.display.sinks import SPARKS, Row, finite, number, sparkline


def explain(
    reading: float | None,
    old_size: float | None,
    new_size: float | None,
    max_size: int,
    signal: str,
    size_name: str = "horizon",
) -> str:
    """What a reading did to a size, such as "divergence 0.06 → horizon 61 of 64, up from 58"."""
    size = f"{count(new_size)} of {max_size}"
    if reading is None:
        return f"no reading yet, {size_name} {size}"
    cause = _cause(reading, signal)
    if old_size is None or new_size is None or old_size == new_size:
        return f"{cause} → {size_name} unchanged at {size}"
    direction = "up" if new_size > old_size else "down"
    return f"{cause} → {size_name} {size}, {direction} from {count(old_size)}"


def explain_unadapted(
    reading: float | None, size: float | None, scaler: str, signal: str, size_name: str = "horizon"
) -> str:
    """The same for a scaler that follows its own plan, such as "divergence 0.06 (measured only), fixed 64"."""
    if reading is None:
        return f"{scaler}: {size_name} {count(size)}, nothing measured"
    return f"{_cause(reading, signal)} (measured only), {scaler}: {size_name} {count(size)}"


def _cause(reading: float, signal: str) -> str:
    return f"{_SIGNAL_WORDS.get(signal, signal.replace('_', ' '))} {decimal(reading)}"


_SIGNAL_WORDS = {
    "behavioral_divergence": "divergence",
    "kl_divergence": "KL",
    "gradient_noise_scale": "noise scale",
    "effective_sample_size": "ESS",
}


def describe_evaluation(row: Row) -> str:
    """An evaluation in words, such as "480.2 ± 12.1 over 10 episodes at 200,000 steps"."""
    if number(row, "mean_return") is None:
        return "–"
    score = f"{decimal(number(row, 'mean_return'))} ± {decimal(number(row, 'std_return'))}"
    episodes = f"{count(finite(row, 'episodes'))} episodes{_cut_off(finite(row, 'cut_episodes'))}"
    return f"{score} over {episodes} at {count(finite(row, 'env_steps'))} steps"


def _cut_off(episodes: float | None) -> str:
    """Of an evaluation; nothing where all came to their end."""
    return f", {count(episodes)} of them cut off," if episodes else ""


def summary_report(summary: Mapping[str, object], horizons: Sequence[int], next_commands: Sequence[str]) -> str:
    """What a person wants to know when a run has ended; `summary` is summary.json. Unknown lines are left out."""
    lines = [
        ("run", str(summary.get("directory") or "")),
        ("return", _final_return(summary)),
        ("evaluation", _final_evaluation(summary)),
        ("work", _work(summary)),
        ("time", _time_taken(summary)),
        ("memory", _peak_memory(summary)),
        ("horizon", size_story(horizons)),
    ]
    return closing_report(str(summary.get("status", "ended")), lines, next_commands)


def closing_report(status: str, lines: Sequence[tuple[str, str]], next_commands: Sequence[str]) -> str:
    """The status, what is known under its labels, and what one might try now."""
    told = [f"  {label:<11}{text}" for label, text in lines if text]
    commands = ["next", *(f"  {command}" for command in next_commands)] if next_commands else []
    return "\n".join([status, *told, *commands])


def _final_return(summary: Row) -> str:
    value = number(summary, "final_return")
    return "" if value is None else f"{decimal(value)} (mean of the last 100 training episodes)"


def _final_evaluation(summary: Row) -> str:
    mean, deviation = number(summary, "evaluation_return"), number(summary, "evaluation_std")
    if mean is None:
        return ""
    spread = "" if deviation is None else f" ± {decimal(deviation)}"
    episodes = finite(summary, "evaluation_episodes")
    cut = _cut_off(finite(summary, "evaluation_cut_episodes")).removesuffix(",")
    return f"{decimal(mean)}{spread}" + ("" if episodes is None else f" ({count(episodes)} greedy episodes{cut})")


def _work(summary: Row) -> str:
    env_steps, gradient_steps = finite(summary, "env_steps"), finite(summary, "gradient_steps")
    return f"{count(env_steps)} env steps · {count(gradient_steps)} gradient steps"


def _time_taken(summary: Row) -> str:
    return f"{duration(finite(summary, 'wall_seconds'))} · {count(finite(summary, 'steps_per_second'))} steps/s"


def _peak_memory(summary: Row) -> str:
    peak = finite(summary, "peak_memory_mb")
    return "" if peak is None else f"{count(peak)} MB at the peak"


def size_story(sizes: Sequence[float]) -> str:
    """How a horizon or a batch moved over a run, in one line."""
    if not sizes:
        return ""
    return f"{sizes[0]} → {sizes[-1]}  {sparkline(sizes, 24)}  least {min(sizes)}, most {max(sizes)}"


def count(value: float | None) -> str:
    """A whole number with thousands separated; a dash for what is not known."""
    return "–" if value is None else f"{value:,.0f}"


def decimal(value: float | None) -> str:
    """Two or three digits of a number of any size; a dash for what is not known."""
    if value is None:
        return "–"
    size = abs(value)
    if 0 < size < 0.01:
        return f"{value:.1e}".replace("e-0", "e-")
    if size < 1:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 1000 else f"{value:,.0f}"


def percent(fraction: float) -> str:
    """Whole percents, rounded down: a run is at 100% when it is done, not before."""
    return f"{int(fraction * 100)}%"


def duration(seconds: float | None) -> str:
    """Hours, minutes and seconds; a dash for what is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def to_ascii(text: str) -> str:
    """The same text for a stream that cannot write UTF-8."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


_ASCII = str.maketrans(
    {"→": "->", "·": "|", "±": "+/-", "–": "-", "×": "x", "━": "#", "─": "-"}
    | {"█": "#", "▓": "=", "▒": "-", "░": "."}
    | dict(zip(SPARKS, "_.-:=+*#", strict=True))
)
