"""What a command line names: a model, a file of prompts, reward functions. Whatever is wrong with them is one line."""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import datasets
from transformers import AutoConfig

from swell.config.imports import imported_maker
from swell.config.validation import did_you_mean, is_import
from swell.errors import ConfigError, EnvironmentFailedError

READERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


def require_model(name: str, **options: Any) -> None:
    """Looks for a model by its config alone, which is small."""
    if _is_path(name) and not Path(name).is_dir():
        raise ConfigError(f"model {name}: there is no such directory")
    try:
        AutoConfig.from_pretrained(name, **options)
    except (OSError, ValueError, KeyError) as error:
        where = f"model {name}" if Path(name).is_dir() else f"model {name} is no directory here, and from the Hub it"
        raise ConfigError(f"{where} cannot be loaded: {_first_line(error)}") from error


def load_prompts(name: str, option: str = "dataset") -> Any:
    """The rows of a file, of a directory or of a dataset on the Hub; they must have a `prompt`."""
    path = Path(name)
    if not path.exists() and _is_path(name):
        raise ConfigError(f"{option} {name}: there is no such file")
    if path.is_file() and path.suffix not in READERS:
        raise ConfigError(f"{option} {name} must be one of {', '.join(READERS)}, got {path.suffix or 'no ending'!r}")
    if path.is_file() and not path.stat().st_size:
        raise ConfigError(f"{option} {name} has no rows")
    try:
        rows = _read(path) if path.exists() else datasets.load_dataset(name, split="train")
    except Exception as error:  # datasets raises of every kind
        raise ConfigError(f"{option} {name} cannot be read: {_first_line(_root(error))}") from error
    columns = cast("list[str]", rows.column_names)
    if "prompt" not in columns:
        hint = did_you_mean("prompt", columns)
        raise ConfigError(f"{option} {name} needs a column prompt; it has {', '.join(columns) or 'none'}{hint}")
    if not len(rows):
        raise ConfigError(f"{option} {name} has no rows")
    return rows


def _read(path: Path) -> Any:
    if path.is_dir():
        saved = (path / "dataset_info.json").exists() and (path / "state.json").exists()
        return datasets.load_from_disk(str(path)) if saved else datasets.load_dataset(str(path), split="train")
    return datasets.load_dataset(READERS[path.suffix], data_files=str(path), split="train")


def reward_function(name: str) -> Callable[..., Any]:
    """The function that `module:function` names, as TRL calls it; a fault of its own is told in one line."""
    if not is_import(name):
        raise ConfigError(f"reward {name} must be module:function, as in rewards:exact_match for rewards.py")
    try:
        function = imported_maker(name, "reward")
    except ConfigError:
        raise
    except Exception as error:  # whatever a module of the user's does as it is imported
        raise ConfigError(f"reward {name}: importing it raised {type(error).__name__}: {_first_line(error)}") from error
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checked_later(completions: Sequence[Any], **columns: Any) -> list[float | None]:
            try:
                rewards = await function(completions=completions, **columns)
            except Exception as error:
                raise _raised(name, error) from error
            return _checked(name, rewards, len(completions))

        return checked_later

    @functools.wraps(function)
    def checked(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        try:
            rewards = function(completions=completions, **columns)
        except Exception as error:
            raise _raised(name, error) from error
        return _checked(name, rewards, len(completions))

    return checked


def _raised(name: str, error: Exception) -> EnvironmentFailedError:
    return EnvironmentFailedError(f"reward {name} raised {type(error).__name__}: {_first_line(error)}")


def _checked(name: str, rewards: Any, expected: int) -> list[float | None]:
    """One number per completion; None for one that cannot be judged."""
    try:
        values = [None if reward is None else float(reward) for reward in rewards]
    except (TypeError, ValueError) as error:
        raise EnvironmentFailedError(f"reward {name} must return a list of numbers, got {_short(rewards)}") from error
    if len(values) != expected:
        raise EnvironmentFailedError(
            f"reward {name} must return one number per completion: {expected}, got {len(values)}"
        )
    if any(value is not None and not math.isfinite(value) for value in values):
        raise EnvironmentFailedError(f"reward {name} must return finite numbers, got {_short(rewards)}")
    return values


def _is_path(name: str) -> bool:
    """Whether a name can only be meant as a path: names on the Hub have at most one slash and no such ending."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or Path(name).suffix in READERS


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
