"""The envs of a run in one group, or in several that step in threads of their own while others' actions are chosen."""

import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any, get_args

import numpy as np

from swell.envs.contract import EnvStep, ResumeTier, VectorEnv

GRACE_SECONDS = 10.0
"""How long a step in flight may take to end when its envs are closed. A hung env must not keep the process alive."""


class StepsHere:
    """Steps envs when their outcome is asked for, in the thread that asks."""

    def __init__(self, envs: VectorEnv) -> None:
        self._envs = envs
        self._actions = np.empty(0)

    def start(self, actions: np.ndarray) -> None:
        self._actions = actions

    def wait(self) -> EnvStep:
        return self._envs.step(self._actions)

    def close(self) -> None:
        self._envs.close()


class StepsBeside:
    """Steps envs in a thread of their own. It is a daemon: an executor's thread would be waited for at exit."""

    def __init__(self, envs: VectorEnv) -> None:
        self._envs = envs
        self._requests: SimpleQueue[np.ndarray | None] = SimpleQueue()
        self._outcomes: SimpleQueue[EnvStep | BaseException] = SimpleQueue()
        self._thread = Thread(target=_serve, args=(envs.step, self._requests, self._outcomes), daemon=True)
        self._thread.start()
        # Also when the collector is dropped, and at exit, where a thread must not be cut off inside an env's library.
        self._end_thread = weakref.finalize(self, _end, self._thread, self._requests)

    def start(self, actions: np.ndarray) -> None:
        self._requests.put(actions)

    def wait(self) -> EnvStep:
        outcome = self._outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        """Ends the thread and closes the envs; envs that hang are left to the end of the process."""
        self._end_thread()
        if not self._thread.is_alive():
            self._envs.close()


class EnvGroups:
    """Batches of envs that stand side by side in a rollout: each group has its columns there.

    While they are not stepping they are saved, restored and closed like one batch.
    """

    def __init__(self, groups: Sequence[VectorEnv]) -> None:
        self._groups = tuple(groups)
        self.steps = [StepsHere(envs) if len(groups) == 1 else StepsBeside(envs) for envs in groups]
        ends = np.cumsum([envs.num_envs for envs in groups]).tolist()
        self.columns = [slice(end - envs.num_envs, end) for envs, end in zip(groups, ends, strict=True)]
        self.num_envs: int = ends[-1]

    @property
    def resume_tier(self) -> ResumeTier:
        """The weakest promise of all groups."""
        tiers: list[ResumeTier] = [envs.resume_tier for envs in self._groups]
        return max(tiers, key=get_args(ResumeTier).index)

    def reset(self) -> np.ndarray:
        return np.concatenate([envs.reset() for envs in self._groups])

    def state_dict(self) -> Any:
        """Of a single group its own state, so that checkpoints from before there were groups can be read."""
        states = [envs.state_dict() for envs in self._groups]
        return states[0] if len(states) == 1 else states

    def load_state_dict(self, state: Any, resume_count: int) -> list[np.ndarray | None]:
        """For each group what `VectorEnv.load_state_dict` says: None, or the first observations of new episodes."""
        states = [state] if len(self._groups) == 1 else state
        return [envs.load_state_dict(own, resume_count) for envs, own in zip(self._groups, states, strict=True)]

    def close(self) -> None:
        for steps in self.steps:
            steps.close()


def _serve(
    step: Callable[[np.ndarray], EnvStep],
    requests: "SimpleQueue[np.ndarray | None]",
    outcomes: "SimpleQueue[EnvStep | BaseException]",
) -> None:
    """The life of a thread. It knows the queues and not their owner, which could otherwise never be dropped."""
    while (actions := requests.get()) is not None:
        try:
            outcomes.put(step(actions))
        except BaseException as error:  # raised again by `wait`, in the thread that asked
            outcomes.put(error)


def _end(thread: Thread, requests: "SimpleQueue[np.ndarray | None]") -> None:
    requests.put(None)
    if thread is not current_thread():  # garbage may be collected in any thread
        thread.join(GRACE_SECONDS)
