"""Benchmarks that take seconds, and an executor that trains nothing, for the tests of the queue."""

import json
from collections import deque

from swell.bench.plan import make_plan
from swell.bench.workers.process import IN_USE, Ending

ADAPTIVE = "adaptive:4-16"
WITH_CONTROLS = (ADAPTIVE, f"ramp-replay:{ADAPTIVE}", f"matched-updates:{ADAPTIVE}")
SMALL = {
    "total_env_steps": 2000,
    "num_envs": 8,
    "measure_every": 4,
    "smoothing": 0.5,
    "evaluation_episodes": 1,
    "checkpoint_every": 300,
    "max_episode_steps": 200,
    "minibatch_rule": "count",
    "minibatches": 4,
    "threads": 1,
}


def small_plan(*variants, seeds=1, envs=("CartPole-v1",), **fields):
    return make_plan(list(envs), list(variants or ("fixed:8", ADAPTIVE)), seeds, shared={**SMALL, **fields})


def result(directory):
    """What training alone decides. Extra checkpoints, as a stop makes them, may move the memory of the best score."""
    from kill import outcome  # here, because it imports torch, which a driver does without

    found = outcome(directory)
    return {"metrics": found["metrics"], "evaluations": found["evaluations"], "learner": found["state"]["learner"]}


def leave(run, root, status=None, env_steps=2000, config=None):
    """A run directory as a run leaves it that ended so; without a status, as one that was killed."""
    directory = run.directory(root)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"config": (config or run.config).to_dict()}))
    row = {"env_steps": env_steps, "wall_seconds": 2.0, "horizon": 8, "episode_return": 21.5}
    (directory / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    if status:
        summary = {"status": status, "env_steps": env_steps, "gradient_steps": 400, "evaluation_return": 30.0}
        (directory / "summary.json").write_text(json.dumps(summary))
    return directory


ENDINGS = {
    "done": Ending(0, "done"),
    "diverged": Ending(3, "the loss is nan"),
    "failed": Ending(4, "the env raised ZeroDivisionError"),
    "killed": Ending(-9, "killed by SIGKILL"),
    "in use": Ending(IN_USE),
}


class FakeExecutor:
    """Ends each run at the next poll as `script` says for it, attempt by attempt; by default it is done."""

    def __init__(self, root, jobs=2, script=None):
        self.root, self.jobs = root, jobs
        self.script = {name: deque(endings) for name, endings in (script or {}).items()}
        self.started: list[str] = []
        self.most_at_once = 0
        self.stopped = self.closed = False
        self._running = []

    def prepare(self, runs):
        pass

    @property
    def capacity(self):
        return self.jobs - len(self._running)

    def submit(self, run, config):
        assert self.capacity > 0
        self.started.append(run.name)
        self._running.append((run, config))
        self.most_at_once = max(self.most_at_once, len(self._running))

    def finished(self):
        ended, self._running = self._running, []
        return [(run, self._end(run, config)) for run, config in ended]

    def stop(self, only=None):
        self.stopped = True

    def close(self):
        self.closed = True

    def _end(self, run, config):
        script = self.script.get(run.name)
        word = script.popleft() if script else "done"
        if word in ("done", "diverged", "failed"):
            leave(run, self.root, word, config=config)
        elif word == "killed":
            leave(run, self.root, env_steps=1000, config=config)
        return ENDINGS[word]
