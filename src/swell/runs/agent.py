"""A trained agent, read back from its run directory: to act, to be scored, to be filmed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled
from torch import Tensor

from swell.collect.collector import play_episodes
from swell.config.run_config import RunConfig, config_from_dict
from swell.config.seeds import derive_seed
from swell.envs import VectorEnv, make_envs
from swell.errors import ConfigError, StorageError
from swell.memory.planner import EVALUATION_ENVS
from swell.runs.build import make_learner, observation_shape, resolve_device
from swell.runs.checkpoint import checkpoint_name, load_checkpoint, load_newest
from swell.runs.run_directory import read_description

Which = Literal["newest", "best"]
FRAMES_PER_SECOND = 30
_VIDEO_EXTRA = '--video needs the video extra: pip install "swell-rl[video]"'


@dataclass(frozen=True)
class Policy:
    """Greedy actions of a trained network: `policy(observations)`, one observation or a batch of them."""

    config: RunConfig
    env_steps: int
    observation_shape: tuple[int, ...]
    act: Callable[[Tensor], Tensor]
    device: torch.device

    def __call__(self, observations: np.ndarray | Tensor) -> np.ndarray:
        batch = torch.as_tensor(np.asarray(observations)).to(self.device)
        if tuple(batch.shape) == self.observation_shape:
            return self.act(batch.unsqueeze(0)).cpu().numpy()[0]
        return self.act(batch).cpu().numpy()


def load_policy(directory: str | Path, which: Which = "newest", device: str = "auto") -> Policy:
    """The agent of a run, from its newest or its best checkpoint."""
    directory = Path(directory)
    config = config_from_dict(read_description(directory, "env")["config"])
    env_steps, state = _load(directory, which)
    envs = make_envs(config, num_envs=1, seed=config.seed, threads=config.threads)
    place = resolve_device(device)
    learner = make_learner(config, envs.observation_space, envs.action_space, place)
    learner.load_state_dict(state["learner"])
    envs.close()
    return Policy(config, env_steps, observation_shape(envs), learner.greedy_actions, place)


def evaluate(
    directory: str | Path,
    episodes: int = 100,
    which: Which = "newest",
    seed: int | None = None,
    video: Path | None = None,
) -> dict[str, Any]:
    """Scores whole greedy episodes of a trained agent, and films one of them where `video` names a file."""
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}")
    policy = load_policy(directory, which)
    seed = derive_seed(policy.config.seed, "evaluation") if seed is None else seed
    if video is not None:
        film(policy, seed, video)
    returns = greedy_returns(policy.act, policy.config, policy.device, episodes, seed)
    return {
        "env_steps": policy.env_steps,
        "episodes": len(returns),
        "mean_return": float(np.mean(returns)),
        "std_return": float(np.std(returns)),
        "returns": returns,
    }


def greedy_returns(
    act: Callable[[Tensor], Tensor], config: RunConfig, device: torch.device, episodes: int, seed: int
) -> list[float]:
    """Returns of whole episodes on envs of their own; lost lives do not end a game here."""
    envs = _evaluation_envs(config, min(episodes, EVALUATION_ENVS), seed)
    try:
        return play_episodes(act, envs, episodes, device)
    finally:
        envs.close()


def film(policy: Policy, seed: int, path: Path) -> None:
    """One whole greedy episode as a video; the ending of `path` picks the format (mp4, gif)."""
    writer = _video_writer()
    envs = _evaluation_envs(policy.config, 1, seed, render_mode="rgb_array")
    try:
        frames = _frames_of_one_episode(policy, envs)
    except DependencyNotInstalled:
        raise ConfigError(_VIDEO_EXTRA) from None
    finally:
        envs.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    writer(path, frames)


def _evaluation_envs(config: RunConfig, num_envs: int, seed: int, render_mode: str | None = None) -> VectorEnv:
    # In one process: a worker for each of a hundred envs would cost more than it brings.
    changes = {"num_envs": num_envs, "episodic_life": False, "async_envs": False}
    return make_envs(config, seed=seed, threads=config.threads, render_mode=render_mode, **changes)


def _frames_of_one_episode(policy: Policy, envs: VectorEnv) -> list[np.ndarray]:
    observations = envs.reset()
    frames: list[np.ndarray] = []
    over = False
    while not over:
        frame = envs.render()
        if frame is None:
            raise ConfigError(f"{policy.config.env} draws no images: it has no rgb_array render mode")
        frames.append(frame)
        result = envs.step(policy(observations))
        observations, over = result.observations, bool(result.episode_over[0])
    return frames


def _video_writer() -> Callable[[Path, list[np.ndarray]], None]:
    try:
        import imageio.v3 as imageio
    except ImportError:
        raise ConfigError(_VIDEO_EXTRA) from None

    def write(path: Path, frames: list[np.ndarray]) -> None:
        try:
            speed: dict[str, Any] = (
                {"duration": 1000 / FRAMES_PER_SECOND} if path.suffix == ".gif" else {"fps": FRAMES_PER_SECOND}
            )
            imageio.imwrite(path, np.stack(_even(frames)), **speed)
        except (OSError, ValueError) as error:
            raise StorageError(f"cannot write the video {path}: {error}; name it .mp4 or .gif") from error

    return write


def _even(frames: list[np.ndarray]) -> list[np.ndarray]:
    """Video codecs want even heights and widths."""
    height, width = (size - size % 2 for size in frames[0].shape[:2])
    return [frame[:height, :width] for frame in frames]


def _load(directory: Path, which: Which) -> tuple[int, dict[str, Any]]:
    notices: list[str] = []
    found = load_newest(directory / "checkpoints", notices.append)
    if found is None:
        raise StorageError(f"{directory} has no checkpoint yet: train it for longer, or `swell resume {directory}`")
    best = found[1]["run"]["best_step"]
    if which == "best" and best is not None:
        return best, load_checkpoint(directory / "checkpoints" / checkpoint_name(best))
    return found
