"""Gymnasium envs in worker processes, one for each."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from multiprocessing import TimeoutError as WorkerTimeoutError
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from swell.envs.checked import make_checked, one_line
from swell.envs.contract import EnvBatch, EnvStep, ResumeTier, env_seeds, same_step
from swell.envs.gymnasium_envs import LoopedEnvs
from swell.envs.resume_check import resume, resume_tier_of, save
from swell.errors import EnvironmentFailedError, SwellError

TIMEOUT_SECONDS = 60.0
"""How long a step or a reset may take before the env counts as hung."""


class WorkerEnvs:
    """gymnasium's AsyncVectorEnv, made to notice workers that died or hang."""

    def __init__(self, settings: EnvBatch, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.num_envs = settings.num_envs
        self._settings = settings
        self._timeout = timeout_seconds
        self._steps = 0
        makers = [partial(make_checked, settings, index) for index in range(settings.num_envs)]
        try:
            self._envs: Any = AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        except (EOFError, OSError) as error:
            raise EnvironmentFailedError(f"{settings.env}: a worker process died while it was made") from error
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space

    @property
    def resume_tier(self) -> ResumeTier:
        return resume_tier_of(LoopedEnvs, self._settings)  # the workers save the same wrapper in the same way

    def reset(self) -> np.ndarray:
        return self.restart(resume_count=0)

    def step(self, actions: np.ndarray) -> EnvStep:
        self._steps += 1
        with self._naming_failures():
            self._envs.step_async(actions)
            observations, rewards, terminated, truncated, info = self._envs.step_wait(self._timeout)
        truncated &= ~terminated
        final_observations = observations
        if (ended := terminated | truncated).any():
            final_observations = observations.copy()
            final_observations[ended] = np.stack(info["final_obs"][ended])
        return same_step(observations, final_observations, rewards, terminated, truncated, self._settings.clip_rewards)

    def render(self) -> np.ndarray | None:
        return None if self._settings.render_mode is None else np.asarray(self._call("render")[0])

    def close(self) -> None:
        if not self._envs.closed:
            self._envs.close(terminate=True)

    def saved_state(self) -> dict[str, Any]:
        return {"steps": self._steps, "envs": list(self._call("saved_state"))}

    def restore_state(self, state: dict[str, Any]) -> None:
        self.reset()
        self._steps = state["steps"]
        with self._naming_failures():
            self._envs.set_attr("saved_state", state["envs"])

    def state_dict(self) -> dict[str, Any]:
        return save(self)

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
        return resume(self, state, resume_count)

    def restart(self, resume_count: int) -> np.ndarray:
        with self._naming_failures():
            seeds = env_seeds(self._settings.seed, resume_count, self.num_envs, self._settings.first_env)
            self._envs.reset_async(seed=seeds)
            return self._envs.reset_wait(self._timeout)[0]

    def _call(self, name: str) -> tuple[Any, ...]:
        with self._naming_failures():
            self._envs.call_async(name)
            return self._envs.call_wait(self._timeout)

    @contextmanager
    def _naming_failures(self) -> Generator[None]:
        """After a failure the workers are gone: gymnasium would wait for the lost answers for ever."""
        try:
            yield
        except Exception as error:
            reason = self._reason(error)
            self._kill()
            raise EnvironmentFailedError(reason) from error

    def _reason(self, error: Exception) -> str:
        if isinstance(error, SwellError):
            return str(error)
        where = f"at step {self._steps}"
        if isinstance(error, WorkerTimeoutError):
            hung = ", ".join(str(index) for index, pipe in enumerate(self._envs.parent_pipes) if not pipe.poll())
            return f"{self._settings.env}: env {hung} gave no answer for {self._timeout:g} s {where}"
        if isinstance(error, EOFError | OSError):
            return f"{self._settings.env}: {self._deaths()} {where}"
        return f"{self._settings.env}: envs failed {where}: {one_line(error)}"

    def _deaths(self) -> str:
        for process in self._envs.processes:
            process.join(timeout=0.1)  # the pipe of a dying process closes before the process is gone
        exits = {index: process.exitcode for index, process in enumerate(self._envs.processes)}
        deaths = [f"env {index} {_cause_of_death(code)}" for index, code in exits.items() if code is not None]
        return "the worker process of " + ", ".join(deaths) if deaths else "a worker process closed its pipe"

    def _kill(self) -> None:
        for process in self._envs.processes:
            process.kill()
            process.join()
        self._envs.closed = True


def _cause_of_death(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
