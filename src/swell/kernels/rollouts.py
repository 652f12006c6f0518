"""Whole rollouts in one call, where the envs, the policy and its noise are all compiled."""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import NamedTuple

import numpy as np

from swell.kernels.acting import act_greedily, act_in_row
from swell.kernels.classic_control import step_envs
from swell.kernels.jit import kernel
from swell.kernels.layers import Network, Room
from swell.kernels.objectives import Heads


class Envs(NamedTuple):
    """Those of `CompiledEnvs`, and room for one step of them."""

    kind: int
    limit: int
    clips_rewards: bool
    states: np.ndarray
    elapsed: np.ndarray
    random_states: np.ndarray
    choices: np.ndarray
    forces: np.ndarray
    scores: np.ndarray
    finals: np.ndarray


class Rows(NamedTuple):
    """Where a rollout is written, for the longest one: [T, N], with one row more of observations [T + 1, N, D]."""

    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_observations: np.ndarray
    """[T · N, D], of which the first few are used."""
    final_indices: np.ndarray


class Episodes(NamedTuple):
    """Returns and lengths of the episodes in flight [N], and room for those that end [T · N]."""

    returns: np.ndarray
    lengths: np.ndarray
    ended_returns: np.ndarray
    ended_lengths: np.ndarray


class PolicyActs(NamedTuple):
    """What `act_in_row` takes beside the network."""

    center: np.ndarray
    scale: np.ndarray
    noise: np.ndarray
    parameters: np.ndarray
    values: np.ndarray
    choices: np.ndarray
    points: np.ndarray
    low: np.ndarray
    high: np.ndarray
    clipped: np.ndarray


class GreedyActs(NamedTuple):
    """What `act_greedily` takes beside the network, for all steps."""

    explores: np.ndarray
    random_actions: np.ndarray
    epsilons: np.ndarray
    values: np.ndarray
    actions: np.ndarray


@kernel
def policy_rollout(
    network: Network, room: Room, heads: Heads, acts: PolicyActs, envs: Envs, rows: Rows, episodes: Episodes, steps: int
) -> tuple[int, int]:
    """So many steps of all envs; how many episodes ended, and how many of them by a time limit."""
    ended, cut = 0, 0
    for step in range(steps):
        room.inputs[:] = rows.observations[step]
        act_in_row(
            network,
            room,
            heads,
            step,
            acts.center,
            acts.scale,
            acts.noise,
            acts.parameters,
            acts.values,
            acts.choices,
            acts.points,
            acts.low,
            acts.high,
            acts.clipped,
        )
        for env in range(envs.choices.size):
            if heads.log_std >= 0:
                envs.forces[env, 0] = acts.clipped[step, env, 0]
            else:
                envs.choices[env] = acts.choices[step, env, 0]
        ended, cut = step_and_note(envs, rows, episodes, step, ended, cut)
    return ended, cut


@kernel
def greedy_rollout(
    network: Network, room: Room, head: int, acts: GreedyActs, envs: Envs, rows: Rows, episodes: Episodes, steps: int
) -> tuple[int, int]:
    """As `policy_rollout`, with the ε-greedy actions of a Q-network."""
    ended, cut = 0, 0
    for step in range(steps):
        room.inputs[:] = rows.observations[step]
        act_greedily(
            network,
            room,
            head,
            envs.choices.size,
            acts.explores[step],
            acts.random_actions[step],
            acts.epsilons[step],
            acts.values[step],
            acts.actions[step],
        )
        envs.choices[:] = acts.actions[step]
        ended, cut = step_and_note(envs, rows, episodes, step, ended, cut)
    return ended, cut


@kernel
def step_and_note(envs: Envs, rows: Rows, episodes: Episodes, step: int, ended: int, cut: int) -> tuple[int, int]:
    """One step of the envs into the row of a rollout, and into the statistics of episodes."""
    count = envs.choices.size
    terminated, truncated = rows.terminated[step], rows.truncated[step]
    step_envs(
        envs.kind,
        envs.limit,
        envs.states,
        envs.elapsed,
        envs.random_states,
        envs.choices,
        envs.forces,
        rows.observations[step + 1],
        envs.scores,
        terminated,
        truncated,
        envs.finals,
    )
    for env in range(count):
        score = envs.scores[env]
        rows.rewards[step, env] = np.sign(score) if envs.clips_rewards else score
        episodes.returns[env] += score
        episodes.lengths[env] += 1
        if truncated[env]:
            rows.final_observations[cut] = envs.finals[env]
            rows.final_indices[cut] = step * count + env
            cut += 1
        if truncated[env] or terminated[env]:
            episodes.ended_returns[ended] = episodes.returns[env]
            episodes.ended_lengths[ended] = episodes.lengths[env]
            episodes.returns[env], episodes.lengths[env] = 0.0, 0
            ended += 1
    return ended, cut
