"""The memory plan behind one call: starts the envs of a run, tries an iteration of it, and decides what fits."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from swell.config.run_config import RunConfig
from swell.envs import VectorEnv
from swell.measurement import Measurement
from swell.memory.dry_run import dry_run
from swell.memory.plan import DryRun, Footprint, MemoryPlan, Needs, memory_limit, needs_of, plan_memory
from swell.memory.sizes import require_envs, require_network, try_envs
from swell.memory.system import free_memory, give_back_freed_memory, resident_memory
from swell.ranks import apart, place
from swell.types import Learner

EVALUATION_ENVS = 100
"""Most envs that an evaluation plays on at once."""
DRY_RUN_SIZES = ((2, 4), (2, 8), (4, 4))
"""Horizon and number of envs of the dry runs that `needs_of` wants."""

TrialParts = Callable[[RunConfig, VectorEnv], tuple[Learner, Measurement]]
"""A learner and a measurement of their own for a config, of which nothing is shared with the run."""


def fit_into_memory(
    config: RunConfig,
    longest_horizon: int,
    device: torch.device,
    make_envs: Callable[[RunConfig], VectorEnv],
    make_parts: TrialParts,
    decided: MemoryPlan | None = None,
    longest_rollout: float = math.inf,
) -> tuple[VectorEnv, np.ndarray, MemoryPlan]:
    """The envs, their first observations, and what of the config there is room for.

    Nothing is predicted where a plan is `decided` already, and on devices whose memory is not that of this process.
    No rollout comes to more than `longest_rollout` steps, however long a horizon is asked for.
    """
    require_envs(config, current_limit(config))
    if decided is not None or device.type != "cpu" or resident_memory() is None:
        envs = make_envs(config)
        return envs, envs.reset(), decided or MemoryPlan(config.micro_batch_size, longest_horizon)
    if config.most_evaluation_episodes:
        # The packages that envs import weigh once, however many envs there are.
        first = make_envs(replace(config, async_envs=False, num_envs=1))
        require_network(config, first.observation_space, current_limit(config))
        first.close()
    try_envs(config, make_envs, current_limit(config))
    resident = resident_memory() or 0
    limit = current_limit(config)
    envs = make_envs(config)
    require_network(config, envs.observation_space, limit)
    weight_of_envs = (resident_memory() or 0) - resident
    with apart():
        needs = needs_of_an_iteration(config, envs, make_parts)
    before = resident_memory() or 0
    observations = envs.reset()  # which is when some take most of their memory
    weight_of_envs += (resident_memory() or 0) - before
    give_back_freed_memory()  # of the dry runs
    footprint = Footprint(
        config=config,
        needs=needs,
        resident=max(resident, resident_memory() or 0),
        each_env=weight_of_envs / config.num_envs,
        evaluation_envs=min(config.most_evaluation_episodes, EVALUATION_ENVS),
        longest_rollout=longest_rollout,
    )
    return envs, observations, plan_memory(footprint, longest_horizon, limit)


def current_limit(config: RunConfig) -> float | None:
    """Bytes that this process may come to, by what is free now; None if nobody says."""
    free = free_memory()
    return memory_limit(config, resident_memory() or 0, None if free is None else free / place().local_count)


def needs_of_an_iteration(config: RunConfig, envs: VectorEnv, make_parts: TrialParts) -> Needs:
    """From three dry runs, in one thread: so few samples are not worth more, and threads may wait for each other."""
    torch.set_num_threads(1)
    return needs_of(*(small_dry_run(config, envs, make_parts, *sizes) for sizes in DRY_RUN_SIZES))


def small_dry_run(config: RunConfig, envs: VectorEnv, make_parts: TrialParts, horizon: int, num_envs: int) -> DryRun:
    """An iteration of a small run like this one, in gradient steps of `num_envs` samples; it ends a phase of ppg."""
    changes = {
        "num_envs": num_envs,
        "scaler": "fixed",
        "horizon": horizon,
        "reference_batch": None,
        "minibatch_rule": "count",
        "minibatches": horizon,
        "micro_batch_size": num_envs,
        "signal": config.signal_name,
        "probe_states": num_envs,
        "noise_microbatches": horizon,
        "phase_env_steps": horizon * num_envs,
        "auxiliary_minibatch_size": num_envs,
    }
    small = replace(config, **{name: value for name, value in changes.items() if name in config.read_options})
    shape = tuple(envs.observation_space.shape or ())
    observations = np.zeros((horizon + 1, num_envs, *shape), dtype=envs.observation_space.dtype)
    held = dry_run(lambda: make_parts(small, envs), torch.from_numpy(observations), samples=num_envs)
    return DryRun(num_envs, horizon * num_envs, held)
