"""Atari through ale-py's own vector env: 84x84 grey frames, four stacked, every fourth one seen.

What ale-py 0.12 does, and what is therefore done here:

- Its `episodic_life` starts the whole game anew after each lost life. Its `life_loss_info` marks the lost life and
  plays on, so that is what `EnvBatch.episodic_life` turns on.
- It can not save a game. But a game is a function of the env's last seed, of the number of restarts since then and of
  the actions, so `load_state_dict` plays the unfinished games again and compares what it then sees (tier `replay`).
  Envs get a new seed every RESEED_EVERY games, which bounds the number of restarts.
- With sticky actions a game also depends on the length of all games before it, and a few games begin with what the
  game before left in the console's memory, which a restart does not clear. Such runs only continue.
"""

import warnings
from functools import partial
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from swell.envs.ale_pieces import AlePieces
from swell.envs.contract import MAX_ATARI_STEPS, EnvBatch, EnvStep, ResumeTier, episode_seed, same_step
from swell.envs.ids import atari_game
from swell.errors import EnvironmentFailedError

FRAME_SKIP = 4

RESEED_EVERY = 64
"""Games of one env between two seeds. ale-py loads the ROM again to seed an env, which takes 15 times as long as a
restart and halts all envs; but every restart since the last seed has to be repeated to resume."""

CARRIES_MEMORY = frozenset(
    "hangman haunted_house ice_hockey sir_lancelot space_war surround time_pilot yars_revenge".split()  # noqa: SIM905
)
"""Found by restarting all 104 games after different games and with random memory: only in these it was seen."""

REPLAY_LIMIT = 27_000
"""The longest game, in steps, that is played again. All envs step together, so this bounds the time it takes."""


class AtariEnvs:
    """A batch of one Atari game."""

    def __init__(self, settings: EnvBatch) -> None:
        self.num_envs = settings.num_envs
        self.resume_tier: ResumeTier = _resume_tier(settings)
        self._settings = settings
        self._resume_count = 0
        self._games = np.zeros(self.num_envs, dtype=np.int64)
        everything = np.ones(self.num_envs, dtype=np.bool_)
        self._envs = AlePieces(partial(_make_ale, settings), self.num_envs, self._seeds(everything))
        self._colour_env = None if settings.render_mode is None else _make_colour_twin(settings)
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        self._env_steps = 0
        self._log = ActionLog(self.num_envs)
        self._first_frames = np.zeros(self.num_envs, dtype=np.int64)
        self._observations = np.zeros((self.num_envs, *(self.observation_space.shape or ())), dtype=np.uint8)
        self._image: np.ndarray | None = None

    def reset(self) -> np.ndarray:
        return self.restart(resume_count=0)

    def step(self, actions: np.ndarray) -> EnvStep:
        observations, rewards, terminated, truncated, info = self._play(actions)
        self._log.append(actions)
        game_over = self._note_first_frames(info)
        final_observations = observations
        if game_over.any():
            final_observations = observations.copy()
            final_observations[game_over] = info["final_obs"][game_over]  # other rows of final_obs are not written
            observations = self._count_games(observations, game_over)
        self._observations = observations
        scores, clip_rewards = rewards.astype(np.float64), self._settings.clip_rewards
        step = same_step(observations, final_observations, scores, terminated, truncated, clip_rewards)
        return step._replace(episode_over=game_over)  # a lost life terminates, but the game goes on

    def render(self) -> np.ndarray | None:
        return self._image

    def close(self) -> None:
        self._envs.close()

    @property
    def place(self) -> str:
        """Which envs they are, and at which step, for messages."""
        return f"{self._settings.env}: envs at step {self._env_steps}"

    def state_dict(self) -> dict[str, Any]:
        """The seeds and the actions of the unfinished games, and the observations to check a replay against."""
        if self.resume_tier == "continuing":
            return {}
        return {
            "resume_count": self._resume_count,
            "games": self._games.copy(),
            "lengths": self._log.lengths.copy(),
            "actions": self._log.rows(),
            "observations": self._observations.copy(),
        }

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
        if self.resume_tier == "continuing":
            return self.restart(resume_count)
        if len(state["actions"]) > REPLAY_LIMIT:
            return self._give_up("are too long to be played again", resume_count)
        self._replay(state)
        if not np.array_equal(self._observations, state["observations"]):
            return self._give_up("came out differently when they were played again", resume_count)
        return None

    def _give_up(self, reason: str, resume_count: int) -> np.ndarray:
        warnings.warn(f"{self._settings.env}: the unfinished games {reason} and are lost", stacklevel=3)
        return self.restart(resume_count)

    def restart(self, resume_count: int) -> np.ndarray:
        self._resume_count = resume_count
        everything = np.ones(self.num_envs, dtype=np.bool_)
        self._games[:] = 0
        self._log.forget(everything)
        self._observations = self._seed(everything)
        return self._observations

    def _count_games(self, observations: np.ndarray, game_over: np.ndarray) -> np.ndarray:
        """Counts the new games and seeds those that are due; the observations with which they start."""
        self._games[game_over] += 1
        self._log.forget(game_over)
        due = game_over & (self._games % RESEED_EVERY == 0)
        return self._seed(due) if due.any() else observations

    def _seed(self, due: np.ndarray) -> np.ndarray:
        return self._start(due, self._seeds(due))

    def _seeds(self, due: np.ndarray) -> np.ndarray:
        """For each of these envs, the seed of its present block of games."""
        blocks = self._games // RESEED_EVERY
        indices = np.flatnonzero(due).tolist()
        run = (self._settings.seed, self._resume_count)
        first = self._settings.first_env
        return np.array([episode_seed(*run, first + index, int(blocks[index])) for index in indices])

    def _note_first_frames(self, info: dict[str, Any]) -> np.ndarray:
        """Where a new game has begun. The frame at which a game began stays the same until it is over."""
        first_frames = info["frame_number"] - info["episode_frame_number"]
        begun = first_frames != self._first_frames
        self._first_frames = first_frames
        return begun

    def _replay(self, state: dict[str, Any]) -> None:
        """Brings every env to where it was. All end together, so the shorter a game, the later it starts."""
        self._resume_count = state["resume_count"]
        self._start(np.ones(self.num_envs, dtype=np.bool_), None)  # ale-py wants a reset of all envs before any other
        self._games[:] = state["games"]
        starts = len(state["actions"]) - state["lengths"]
        for time, actions in enumerate([*state["actions"], None]):
            if (starting := starts == time).any():
                self._repeat_restarts(starting)
                self._log.forget(starting)
            if actions is not None:
                self._observations = self._play(actions)[0]
                self._log.append(actions)

    def _repeat_restarts(self, starting: np.ndarray) -> None:
        """Seeds these envs and restarts each as often as it was restarted since it got that seed."""
        self._observations = self._seed(starting)
        restarts = np.where(starting, self._games % RESEED_EVERY, 0)
        for count in range(int(restarts.max())):
            self._observations = self._start(restarts > count, None)

    def _start(self, mask: np.ndarray, seeds: np.ndarray | None) -> np.ndarray:
        observations, info = self._envs.reset(mask, seeds)
        if self._colour_env is not None and mask[0]:
            self._image = self._colour_env.reset(seed=None if seeds is None else seeds[:1])[0][0, 0]
        self._note_first_frames(info)
        return observations

    def _play(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._env_steps += 1
        actions = actions.astype(np.int64, copy=False)
        if self._colour_env is not None:
            self._image = self._colour_env.step(actions[:1])[0][0, 0]
        try:
            return self._envs.step(actions)
        except Exception as error:
            message = f"{self._settings.env} failed at step {self._env_steps}: {error}"
            raise EnvironmentFailedError(message) from error


class ActionLog:
    """The actions of every unfinished game, in a ring that doubles when the longest of them no longer fits."""

    def __init__(self, num_envs: int) -> None:
        self.lengths = np.zeros(num_envs, dtype=np.int64)
        """Steps taken in each env's unfinished game."""
        self._ring = np.zeros((256, num_envs), dtype=np.uint8)
        self._next = 0

    def append(self, actions: np.ndarray) -> None:
        longest = int(self.lengths.max())
        if longest == len(self._ring):
            self._ring = np.concatenate([self.rows(), np.zeros_like(self._ring)])
            self._next = longest
        self._ring[self._next % len(self._ring)] = actions
        self._next += 1
        self.lengths += 1

    def forget(self, ended: np.ndarray) -> None:
        """Drops the games of these envs; their next actions belong to new ones."""
        self.lengths[ended] = 0

    def rows(self) -> np.ndarray:
        """[steps, num_envs], oldest first, from the start of the longest game on."""
        newest = np.arange(self._next - int(self.lengths.max()), self._next)
        return self._ring[newest % len(self._ring)]


def _resume_tier(settings: EnvBatch) -> ResumeTier:
    depends_on_history = settings.sticky_actions > 0 or atari_game(settings.env) in CARRIES_MEMORY
    return "continuing" if depends_on_history else "replay"


def _make_ale(settings: EnvBatch, num_envs: int, **image_options: Any) -> AtariVectorEnv:
    return AtariVectorEnv(
        atari_game(settings.env),
        num_envs,
        num_threads=settings.threads,
        max_num_frames_per_episode=FRAME_SKIP * (settings.max_episode_steps or MAX_ATARI_STEPS),
        repeat_action_probability=settings.sticky_actions,
        noop_max=settings.noop_max,
        frameskip=FRAME_SKIP,
        life_loss_info=settings.episodic_life,
        reward_clipping=False,
        autoreset_mode=AutoresetMode.SAME_STEP,
        **image_options,
    )


def _make_colour_twin(settings: EnvBatch) -> AtariVectorEnv:
    """A copy of the first env that plays the same game in colour: the vector env shows only what the network sees."""
    return _make_ale(settings, 1, grayscale=False, stack_num=1, img_height=210, img_width=160)
