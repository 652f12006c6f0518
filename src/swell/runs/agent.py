"""A trained agent, read back from its run directory: to act, to be scored, to be filmed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled
from torch import Tensor, nn

from swell.config.imports import HANDED_IN
from swell.config.own_envs import env_name
from swell.config.run_config import RunConfig
from swell.config.seeds import derive_seed
from swell.config.validation import is_import
from swell.display.console import Quiet, warn
from swell.display.evaluating import StatusLine, show_evaluation
from swell.envs import VectorEnv, make_envs
from swell.envs.ids import require_window
from swell.errors import ConfigError, EnvironmentFailedError, StorageError
from swell.runs.build import make_learner, resolve_device
from swell.runs.checkpoint import checkpoint_name, load_checkpoint, load_newest
from swell.runs.description import stored_config
from swell.runs.evaluation import evaluation_envs, greedy_episodes, longest_episode, score_of
from swell.runs.first_checks import require_evaluable
from swell.runs.interrupt import InterruptedRunError, StopRequest
from swell.runs.run_directory import typed
from swell.runs.spaces import RunSpaces, restored_spaces, spaces_of
from swell.runs.state_check import misfits_refused, require_alike
from swell.runs.stored_run import sound_description
from swell.runs.trust import require_trusted
from swell.runs.watchdog import Watchdog
from swell.types import Learner

Which = Literal["newest", "best"]
FRAMES_PER_SECOND = 30
ENV_OPTIONS = ("env", "wrappers")
_VIDEO_EXTRA = '--video needs the video extra: pip install "swell-rl[video]"'


@dataclass(frozen=True)
class Policy:
    """A trained network that acts: `policy(observations)` greedily, `policy.sample(observations)` as it trained.

    One observation of the env, or several in a list or an array. Where the env says which actions are allowed,
    `action_mask` says so here.
    """

    config: RunConfig
    env_steps: int
    spaces: RunSpaces
    learner: Learner
    device: torch.device

    @property
    def network(self) -> nn.Module:
        """From observations to Q-values, or to the parameters of a distribution of actions and to values."""
        return self.learner.network

    @property
    def act(self) -> Callable[[Tensor], Tensor]:
        """Greedy actions of tensors [B, ...] on its device, as the learner sees them."""
        return self.learner.greedy_actions

    def __call__(self, observations: Any, action_mask: Any = None) -> np.ndarray:
        return self._acted(self.act, observations, action_mask)

    def sample(self, observations: Any, action_mask: Any = None) -> np.ndarray:
        """Drawn from the policy; of a Q-network ε-greedy with the ε at the end of its run."""
        return self._acted(lambda batch: self.learner.act(batch, 1.0)[0], observations, action_mask)

    def _acted(self, act: Callable[[Tensor], Tensor], observations: Any, action_mask: Any) -> np.ndarray:
        given = observations.cpu().numpy() if isinstance(observations, Tensor) else observations
        rows, is_one = self.spaces.rows(given, action_mask)
        actions = act(torch.from_numpy(np.ascontiguousarray(rows)).to(self.device)).cpu().numpy()
        return actions[0] if is_one else actions


def load_policy(directory: str | Path, which: Which = "newest", device: str = "auto", trust: bool = False) -> Policy:
    """The agent of a run, from its newest or its best checkpoint; its env need not be installed.

    `trust` imports whatever network the directory names; without it, only a class of an installed package.
    """
    directory = Path(directory)
    if which not in get_args(Which):
        raise ConfigError(f"which must be newest or best, got {which!r}")
    described = sound_description(directory, "env", warn)
    config = stored_config(described, directory)
    needed = ("network",) if described.get("spaces") else ("network", *ENV_OPTIONS)
    require_trusted(config, directory, trust, needed)
    env_steps, state = _load(directory, which)
    spaces = restored_spaces(described["spaces"]) if described.get("spaces") else _spaces_of_env(config)
    place = resolve_device(device)
    learner = make_learner(config, spaces.observation, spaces.action, place)
    with misfits_refused(directory, env_steps):
        require_alike(learner.state_dict(), state["learner"])
        learner.load_state_dict(state["learner"])
    return Policy(config, env_steps, spaces, learner, place)


def _spaces_of_env(config: RunConfig) -> RunSpaces:
    """For runs of earlier versions, and for spaces that cannot be stored."""
    envs = make_envs(config, num_envs=1, seed=config.seed, threads=config.threads)
    envs.close()
    return spaces_of(envs)


def evaluate(
    directory: str | Path,
    episodes: int = 100,
    which: Which = "newest",
    seed: int | None = None,
    video: Path | None = None,
    make_env: Callable[..., Any] | None = None,
    render: bool = False,
    quiet: bool = True,
    trust: bool = False,
) -> dict[str, Any]:
    """Scores whole greedy episodes of a trained agent; one of them is filmed where `video` names a file.

    `render` first plays one in the env's own window. `make_env` is what made the envs, if it has to be handed in again.
    Unless `quiet`, it says how far it is.
    `trust` imports whatever the directory names; without it, only classes of installed packages.
    """
    require_evaluable(Path(directory), episodes, seed, video)
    policy = load_policy(directory, which, trust=trust)
    policy = replace(policy, config=with_maker(policy.config, make_env))
    require_trusted(policy.config, directory, trust, ENV_OPTIONS)
    seed = derive_seed(policy.config.seed, "evaluation") if seed is None else seed

    def told(finished: int, steps: int) -> None:
        show_played(finished, episodes, steps)
        if stop.signal_number:
            message = f"stopped after {finished} of {episodes} episodes: nothing was scored"
            raise InterruptedRunError(message, stop.signal_number)

    with Watchdog(policy.config.env_timeout):
        if render:
            show(policy, seed)
        if video is not None:
            film(policy, seed, video)
        with StopRequest() as stop, show_evaluation(Quiet() if quiet else StatusLine()) as show_played:
            played = greedy_episodes(policy.act, policy.config, policy.device, episodes, seed, told)
    return score_of(played, policy.env_steps)


def show(policy: Policy, seed: int) -> None:
    """One whole greedy episode in the window of the env."""
    require_window(policy.config.env)
    try:
        envs = evaluation_envs(policy.config, 1, seed, render_mode="human")
    except EnvironmentFailedError as error:
        raise ConfigError(f"{policy.config.env} has no window here ({error}); --video draws into a file") from error
    observations = envs.reset()
    for _ in range(longest_episode(policy.config)):
        result = envs.step(policy(observations))
        observations = result.observations
        if result.episode_over[0]:
            break
    envs.close()


def film(policy: Policy, seed: int, path: Path) -> None:
    """One whole greedy episode as a video; the ending of `path` picks the format (mp4, gif)."""
    writer = _video_writer()
    envs = evaluation_envs(policy.config, 1, seed, render_mode="rgb_array")
    try:
        frames = _frames_of_one_episode(policy, envs)
    except DependencyNotInstalled:
        raise ConfigError(_VIDEO_EXTRA) from None
    finally:
        envs.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    writer(path, frames)


def with_maker(config: RunConfig, make_env: Callable[..., Any] | None) -> RunConfig:
    """The config of a run whose envs are made by what is handed in; those of an id are not."""
    if make_env is None:
        return config
    if not callable(make_env):
        raise ConfigError(f"make_env must be a function or a class that makes an env, got {make_env!r:.80}")
    if not config.env.startswith(HANDED_IN) and not is_import(config.env):
        raise ConfigError(f"make_env must be left out: the env of this run is {config.env}")
    return replace(config, env=env_name(make_env))


def _frames_of_one_episode(policy: Policy, envs: VectorEnv) -> list[np.ndarray]:
    observations = envs.reset()
    frames: list[np.ndarray] = []
    for _ in range(longest_episode(policy.config)):
        frame = envs.render()
        if frame is None:
            raise ConfigError(f"{policy.config.env} draws no images: it has no rgb_array render mode")
        frames.append(frame)
        result = envs.step(policy(observations))
        observations = result.observations
        if result.episode_over[0]:
            break
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
    found = load_newest(directory / "checkpoints", warn)
    if found is None:
        raise StorageError(
            f"{directory} has no checkpoint yet: train it for longer, or {typed('swell resume', directory)}"
        )
    with misfits_refused(directory, found[0]):
        best = found[1]["run"]["best_step"]
    if which == "best" and isinstance(best, int):
        return best, load_checkpoint(directory / "checkpoints" / checkpoint_name(best))
    return found
