"""Run as a program: a short PPO and a short PQN training on the compiled path; prints a digest of their weights."""

import hashlib
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from policy_learners import EchoEnvs, learner_for, practise, weights
from scripted_envs import ScriptedEnvs

from swell.types import BatchPlan


def main() -> None:
    torch.set_num_threads(1)
    digest = hashlib.sha256()
    for algorithm, envs in (("ppo", EchoEnvs()), ("ppo", ScriptedEnvs()), ("pqn", ScriptedEnvs())):
        learner = learner_for(envs, algorithm, path="compiled", hidden=(20, 12))
        practise(learner, envs, BatchPlan(16, 2, 3), 4)
        digest.update(weights(learner).numpy().tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
