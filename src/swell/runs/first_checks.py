"""What can be refused before torch is loaded, which takes seconds: wrong envs, used directories, missing runs."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from swell.config.imports import HANDED_IN
from swell.config.run_config import RunConfig
from swell.envs import resolve_env_id
from swell.errors import ConfigError
from swell.runs.description import read_description, stored_config
from swell.runs.run_directory import default_run_name, require_free
from swell.runs.sealed import DamagedError

CHECKPOINTS_PER_RUN = 20
VIDEO_FORMATS = (".mp4", ".gif")


def resolve(config: RunConfig) -> RunConfig:
    """Settles what a config leaves open, so that what is stored means the same tomorrow."""
    every = config.checkpoint_every or max(1, config.total_env_steps // CHECKPOINTS_PER_RUN)
    return replace(config, env=resolve_env_id(config.env, config.backend), checkpoint_every=every)


def directory_of(config: RunConfig, out: str | Path | None) -> Path:
    env = config.env.removeprefix(HANDED_IN)
    return Path(out or Path("runs") / default_run_name(env, config.algorithm, config.scaler, config.seed))


def require_startable(config: RunConfig, out: Path | None, new: bool) -> None:
    """There is such an env, and no run is in the way."""
    directory = directory_of(resolve(config), out)
    if not new:
        require_free(directory)


def require_run(directory: Path) -> None:
    """A run was begun there. What is damaged may be in a checkpoint, which takes torch to read."""
    with suppress(DamagedError):
        stored_config(read_description(directory, "env"), directory)


def require_evaluable(directory: Path, episodes: int, seed: int | None, video: Path | None) -> None:
    """A run was begun there, and what is asked of it can be had."""
    faults = [f"episodes must be at least 1, got {episodes}"] if episodes < 1 else []
    if seed is not None and not 0 <= seed <= 2**31:
        faults.append(f"seed must be at least 0 and at most {2**31}, got {seed}")
    if video is not None and video.suffix.lower() not in VIDEO_FORMATS:
        faults.append(f"video must end in {' or '.join(VIDEO_FORMATS)}, got {str(video)!r}")
    if faults:
        raise ConfigError(*faults)
    require_run(directory)
