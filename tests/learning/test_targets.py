"""λ-returns against a slow, obvious definition."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from swell.learning.targets import lambda_returns, successor_values

pytestmark = pytest.mark.portable

HORIZONS = st.integers(1, 12)
ENVS = st.integers(1, 3)


@st.composite
def rollouts(draw):
    """(rewards, next_values, terminated, truncated, γ, λ) in float64, any pattern of episode ends."""
    shape = (draw(HORIZONS), draw(ENVS))
    numbers = hnp.arrays(np.float64, shape, elements=st.floats(-10, 10, width=32))
    flags = hnp.arrays(np.bool_, shape)
    unit = st.floats(0, 1)
    return tuple(map(draw, (numbers, numbers, flags, flags, unit, unit)))


def returns_of(rewards, next_values, terminated, truncated, discount, trace_decay):
    discounts = discount * ~terminated
    traces = trace_decay * ~(terminated | truncated)
    return lambda_returns(*map(torch.from_numpy, (rewards, discounts, next_values, traces))).numpy()


def n_step_return(rewards, next_values, terminated, start, steps, discount):
    """r_t + γ r_{t+1} + … + γⁿ v_{t+n}; the value of a terminal state is 0."""
    total, factor = 0.0, 1.0
    for step in range(start, start + steps):
        total += factor * rewards[step]
        factor *= discount
    last = start + steps - 1
    return total + (0.0 if terminated[last] else factor * next_values[last])


def forward_view(rewards, next_values, terminated, truncated, discount, trace_decay):
    """The λ-return as the mixture of n-step returns, cut at the end of the episode or of the rollout."""
    returns = np.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        column = rewards[:, env], next_values[:, env], terminated[:, env]
        ended = terminated[:, env] | truncated[:, env]
        for start in range(rewards.shape[0]):
            ends = [step for step in range(start, rewards.shape[0]) if ended[step]]
            length = (ends[0] if ends else rewards.shape[0] - 1) - start + 1
            mixture = [(1 - trace_decay) * trace_decay ** (n - 1) for n in range(1, length)]
            mixture.append(trace_decay ** (length - 1))
            returns[start, env] = sum(
                weight * n_step_return(*column, start, n, discount) for n, weight in enumerate(mixture, start=1)
            )
    return returns


@given(rollouts())
@settings(max_examples=200, deadline=None)
def test_lambda_returns_match_the_definition(rollout):
    np.testing.assert_allclose(returns_of(*rollout), forward_view(*rollout), rtol=1e-9, atol=1e-9)


@given(rollouts(), st.integers(0, 11), st.floats(-5, 5))
@settings(max_examples=100, deadline=None)
def test_nothing_after_the_end_of_an_episode_changes_what_came_before(rollout, end, noise):
    rewards, next_values, terminated, truncated, discount, trace_decay = rollout
    end = min(end, rewards.shape[0] - 1)
    truncated[end] = True
    before = returns_of(*rollout)
    later = rewards.copy()
    later[end + 1 :] += noise
    after = returns_of(later, next_values, terminated, truncated, discount, trace_decay)
    np.testing.assert_array_equal(before[: end + 1], after[: end + 1])


def test_a_time_limit_bootstraps_and_a_terminal_state_does_not():
    rewards, values = np.ones((1, 2)), np.full((1, 2), 10.0)
    terminated, truncated = np.array([[True, False]]), np.array([[False, True]])
    np.testing.assert_allclose(returns_of(rewards, values, terminated, truncated, 0.5, 0.9), [[1.0, 6.0]])


def test_the_ends_of_lambda_are_one_step_and_monte_carlo_returns():
    rewards, values = np.array([[1.0], [2.0], [3.0]]), np.array([[10.0], [20.0], [30.0]])
    never = np.zeros((3, 1), dtype=bool)
    np.testing.assert_allclose(returns_of(rewards, values, never, never, 0.5, 0.0), [[6.0], [12.0], [18.0]])
    np.testing.assert_allclose(returns_of(rewards, values, never, never, 0.5, 1.0)[0], [1 + 1 + 0.75 + 30 / 8])


def test_the_successor_of_a_truncated_episode_is_its_own_last_observation():
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    successors = successor_values(values, torch.tensor([5.0, 6.0]), torch.tensor([70.0]), torch.tensor([1]))
    assert successors.tolist() == [[3.0, 70.0], [5.0, 6.0]]
