"""Atari, MuJoCo and Procgen through EnvPool, which steps all envs of a batch in C++ threads.

What EnvPool 1.2 does, and what is therefore done here:

- It resets an env in the step after its end and ignores the action: such a row is no transition. The observation at
  an end is the last one of the episode, in Procgen too.
- Seeds are fixed when a pool is made, so a restart makes a new pool. It can not save an env (tier `continuing`).
- Its `episodic_life` follows each lost life with up to 30 unseen no-ops, whose rewards are lost. Here a lost life is
  read from the number of lives and the game goes on, as it does with ale-py.
- An end at the time limit counts as truncated even if the game is over; for Atari `info["terminated"]` knows better.
- Procgen's games know their own time limit. The option for it cuts nothing and only turns ends into truncations.
- Drawing a MuJoCo env without OpenGL ends the process, so it makes no images here.
"""

import ctypes
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from swell.envs.checked import CheckedVectorEnvs, one_line
from swell.envs.contract import MAX_ATARI_STEPS, EnvBatch, EnvStep, ResumeTier, env_seeds, learner_rewards
from swell.envs.ids import env_family
from swell.errors import ConfigError, EnvironmentFailedError

QT_LIBRARY = "libQt5Gui.so.5"
HOW_TO_GET_QT = "`apt install libqt5gui5` or `dnf install qt5-qtbase`; without root rights `pip install PyQt5-Qt5`"


class EnvPoolEnvs(CheckedVectorEnvs):
    """A batch of envs of one task of EnvPool's."""

    resume_tier: ResumeTier = "continuing"

    def __init__(self, settings: EnvBatch) -> None:
        self._family = env_family(settings.env)
        self._options = _task_options(settings)
        self._envpool = _import_envpool(settings.env)
        self._task = _task_name(self._envpool, settings.env)
        spec = self._make(self._envpool.make_spec, settings)
        super().__init__(settings, spec.gymnasium_observation_space, spec.gymnasium_action_space)
        self._pool: Any = None
        self._lives = np.zeros(self.num_envs, dtype=np.int64)

    def reset(self) -> np.ndarray:
        return self.restart(resume_count=0)

    def step(self, actions: np.ndarray) -> EnvStep:
        self._steps += 1
        try:
            observations, rewards, terminated, truncated, info = self._pool.step(self._decoder.decode(actions))
        except Exception as error:
            raise self._failure(one_line(error)) from error
        reset_rows, self._ended = self._ended, terminated | truncated
        if self._family == "atari":
            terminated = self._atari_terminations(info, reset_rows)
        scores = np.where(reset_rows, 0.0, self._checked_rewards(rewards))
        return EnvStep(
            observations=self._checked_observations(observations),
            rewards=learner_rewards(scores, self._settings.clip_rewards),
            terminated=terminated,
            truncated=truncated & ~terminated,
            valid=~reset_rows,
            scores=scores,
            episode_over=self._ended.copy(),
            final_observations=None,
        )

    def render(self) -> np.ndarray | None:
        return np.asarray(self._pool.render()[0]) if "render_mode" in self._options else None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
        return self.restart(resume_count)

    def restart(self, resume_count: int) -> np.ndarray:
        self.close()
        seeds = env_seeds(self._settings.seed, resume_count, self.num_envs, self._settings.first_env)
        self._pool = self._make(self._envpool.make_gymnasium, self._settings, seed=seeds)
        observations, info = self._pool.reset()
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        self._lives = info.get("lives", self._lives)
        return self._checked_observations(observations)

    def _make(self, maker: Any, settings: EnvBatch, **options: Any) -> Any:
        options |= {"num_envs": settings.num_envs, "num_threads": settings.threads, **self._options}
        try:
            return maker(self._task, **options)
        except Exception as error:
            if isinstance(error, ImportError) and "Qt" in str(error):
                raise ConfigError(f"{settings.env} needs the Qt 5 libraries: {HOW_TO_GET_QT}") from error
            raise EnvironmentFailedError(f"{settings.env} could not be made: {one_line(error)}") from error

    def _atari_terminations(self, info: dict[str, Any], reset_rows: np.ndarray) -> np.ndarray:
        """Where the game is over and, if the settings say so, where a life was lost."""
        game_over = info["terminated"].astype(np.bool_)
        lives, lives_before = info["lives"], self._lives
        self._lives = lives
        if not self._settings.episodic_life:
            return game_over
        return game_over | ((lives < lives_before) & ~reset_rows)


def load_qt() -> None:
    """Loads Qt from the PyQt5-Qt5 wheel where the system has none, so that EnvPool finds it by name.

    Procgen draws with Qt 5, which EnvPool does not bring along and looks for only once, when it is imported: this has
    to come first. Elsewhere than on Linux it does nothing.
    """
    try:
        ctypes.CDLL(QT_LIBRARY)
    except OSError:
        with suppress(OSError):  # the wheel's Qt in turn may miss libGL: EnvPool says that Qt is missing
            for path in _wheel_libraries():
                ctypes.CDLL(str(path))


def _task_options(settings: EnvBatch) -> dict[str, Any]:
    family, options = env_family(settings.env), dict[str, Any]()
    if settings.render_mode is not None and family != "mujoco":
        options["render_mode"] = settings.render_mode
    if family == "atari":
        return options | _atari_options(settings)
    if settings.max_episode_steps is None:
        return options
    if family == "procgen":
        raise ConfigError(f"max_episode_steps must be None for {settings.env}, got {settings.max_episode_steps}")
    return options | {"max_episode_steps": settings.max_episode_steps}


def _atari_options(settings: EnvBatch) -> dict[str, Any]:
    if settings.noop_max < 1:  # EnvPool would draw from an empty range
        raise ConfigError(f"noop_max must be at least 1 with backend envpool, got {settings.noop_max}")
    return {
        "frame_skip": 4,
        "stack_num": 4,
        "episodic_life": False,
        "reward_clip": False,
        "noop_max": settings.noop_max,
        "repeat_action_probability": settings.sticky_actions,
        "max_episode_steps": settings.max_episode_steps or MAX_ATARI_STEPS,
    }


def _import_envpool(env_id: str) -> Any:
    if env_family(env_id) == "procgen":
        load_qt()
    try:
        return import_module("envpool")
    except (ImportError, OSError) as error:  # OSError: it reads files of its asset packages
        reason = " ".join(str(error).split())
        raise ConfigError(f'{env_id}: cannot import envpool ({reason}): pip install "swell-rl[envpool]"') from error


def _task_name(envpool: Any, env_id: str) -> str:
    """EnvPool knows `ALE/Pong-v5` as `Pong-v5` and `Procgen/CoinrunHard-v0` as `CoinrunHard-v0`."""
    name = env_id.rpartition("/")[2]
    if name not in envpool.list_all_envs():
        raise ConfigError(f"backend must be gymnasium or auto for {env_id}: envpool does not have it")
    return name


def _wheel_libraries() -> list[Path]:
    spec = find_spec("PyQt5")
    places = spec.submodule_search_locations if spec is not None else None
    return [path for place in places or [] if (path := Path(place) / "Qt5" / "lib" / QT_LIBRARY).exists()]
