"""Rollouts as an obvious loop gathers them: lists of rows, stacked at the end, one group of envs, no buffers."""

from dataclasses import fields

import numpy as np
import torch

from swell.types import Rollout


def contents(rollout):
    """A copy of all that a rollout holds, on the host."""
    held = {field.name: getattr(rollout, field.name) for field in fields(Rollout)}
    return {name: tensor.to("cpu", copy=True) for name, tensor in {**held.pop("recorded"), **held}.items()}


def plain_rollouts(envs, learner, horizons, total_env_steps=10**9):
    """The contents of one rollout after the other."""
    observations, env_steps, gathered = envs.reset(), 0, []
    for horizon in horizons:
        seen, rows, finals, final_indices = [observations], [], [], []
        for step in range(horizon):
            actions, recorded = learner.act(torch.tensor(observations), env_steps / total_env_steps)
            result = envs.step(actions.numpy())
            rows.append({"actions": actions.numpy(), **{name: row.numpy() for name, row in recorded.items()}})
            rows[-1] |= {name: getattr(result, name) for name in ("rewards", "terminated", "truncated", "valid")}
            observations = result.observations
            seen.append(observations)
            for env in range(envs.num_envs):
                if result.final_observations is not None and result.truncated[env]:
                    finals.append(result.final_observations[env])
                    final_indices.append(step * envs.num_envs + env)
            env_steps += int(result.valid.sum())
        stacked = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        stacked["observations"] = np.stack(seen)
        stacked["final_observations"] = np.stack(finals) if finals else observations[:0]
        stacked["final_indices"] = np.array(final_indices, dtype=np.int64)
        gathered.append({name: torch.tensor(array) for name, array in stacked.items()})
    return gathered
