"""Gymnasium envs in worker processes, one for each."""

import signal
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from multiprocessing import TimeoutError as WorkerTimeoutError
from multiprocessing.connection import wait
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker  # pyright: ignore[reportPrivateUsage]

from swell.envs.checked import make_checked, one_line
from swell.envs.contract import OTHER_LIMIT, EnvBatch, EnvStep, ResumeTier, env_seeds, same_step
from swell.envs.gymnasium_envs import LoopedEnvs
from swell.envs.resume_check import resume, resume_tier_of, save
from swell.errors import EnvironmentFailedError, SwellError

TICK_SECONDS = 1.0
"""Waiting is counted in ticks: a process that was stopped for an hour, or slept, has missed one and not an hour."""


class WorkerEnvs:
    """gymnasium's AsyncVectorEnv, made to notice workers that died or hang, and to keep them through Ctrl-C."""

    may_die = True
    """By no fault of the run, whose state is then lost with them."""

    def __init__(self, settings: EnvBatch) -> None:
        self.num_envs = settings.num_envs
        self._settings = settings
        self._steps = 0
        makers = [partial(make_checked, settings, index) for index in range(settings.num_envs)]
        try:
            self._envs: Any = _Workers(makers, autoreset_mode=AutoresetMode.SAME_STEP, worker=_work)
        except (EOFError, OSError) as error:
            raise EnvironmentFailedError(f"{settings.env}: a worker process died while it was made") from error
        # Before multiprocessing would end them at the exit of Python, by a signal that they ignore.
        Finalize(self, self._envs.close_extras, exitpriority=1)
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
            self._await_answers()
            observations, rewards, terminated, truncated, info = self._envs.step_wait()
        truncated &= ~terminated
        final_observations = observations
        if (ended := terminated | truncated).any():
            final_observations = observations.copy()
            final_observations[ended] = np.stack(info["final_obs"][ended])
        return same_step(observations, final_observations, rewards, terminated, truncated, self._settings.clip_rewards)

    def render(self) -> np.ndarray | None:
        return None if self._settings.render_mode is None else np.asarray(self._call("render")[0])

    def close(self) -> None:
        self._envs.close()

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
            self._await_answers()
            return self._envs.reset_wait()[0]

    def _call(self, name: str) -> tuple[Any, ...]:
        with self._naming_failures():
            self._envs.call_async(name)
            self._await_answers()
            return self._envs.call_wait()

    def _await_answers(self) -> None:
        left = self._settings.env_timeout
        for pipe in self._envs.parent_pipes if left else ():
            while not pipe.poll(min(left, TICK_SECONDS)):
                left -= TICK_SECONDS
                if left <= 0:
                    raise WorkerTimeoutError

    @contextmanager
    def _naming_failures(self) -> Generator[None]:
        """After a failure the workers are gone: gymnasium would wait for the lost answers for ever."""
        try:
            yield
        except Exception as error:
            reason = self._reason(error)
            self._envs.close()
            raise EnvironmentFailedError(reason) from error

    def _reason(self, error: Exception) -> str:
        if isinstance(error, SwellError):
            return str(error)
        where = f"at step {self._steps}"
        if isinstance(error, WorkerTimeoutError):
            hung = ", ".join(str(index) for index, pipe in enumerate(self._envs.parent_pipes) if not pipe.poll())
            waited = f"gave no answer for {self._settings.env_timeout:g} s"
            return f"{self._settings.env}: env {hung} {waited} {where}; {OTHER_LIMIT}"
        if isinstance(error, EOFError | OSError):
            return f"{self._settings.env}: {self._deaths()} {where}"
        return f"{self._settings.env}: envs failed {where}: {one_line(error)}"

    def _deaths(self) -> str:
        processes = {process.sentinel: process for process in self._envs.processes}
        for sentinel in wait(list(processes), timeout=1.0):  # the pipe of a dying process closes before it is gone
            processes[sentinel].join()
        exits = {index: process.exitcode for index, process in enumerate(processes.values())}
        deaths = [f"env {index} {_cause_of_death(code)}" for index, code in exits.items() if code is not None]
        return "the worker process of " + ", ".join(deaths) if deaths else "a worker process closed its pipe"


class _Workers(AsyncVectorEnv):
    """Ends its processes by SIGKILL, as they ignore all else, and reports a failure in them once and by raising it."""

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        for process in getattr(self, "processes", ()):
            process.kill()
            process.join()
        self.closed = True

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        if not all(successes):
            _, kind, message, trace = self.error_queue.get()
            error: BaseException = kind(message)
            error.add_note(trace)  # is printed with --debug only
            raise error


def _work(
    index: int, make: Callable[[], Any], pipe: Any, parent_pipe: Any, shared: Any, errors: Any, *how: Any
) -> None:
    """A worker. Ctrl-C and SIGTERM reach the whole group of processes, and are for the run to obey: it still needs
    the state of every env for its checkpoint, and then ends the workers itself.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        _async_worker(index, make, pipe, parent_pipe, shared, errors, *how)
    except (EOFError, OSError):
        pass  # the run is gone, and nobody is left to be told
    except Exception as error:
        errors.put((index, type(error), str(error), traceback.format_exc()))
        pipe.send((None, False))


def _cause_of_death(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
