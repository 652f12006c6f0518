"""Compiled acting: what is recorded is the network's, what is drawn fits it; sums over time are the readable ones."""

import numpy as np
import pytest
import torch
from exact_copies import cloned, gap, in_float64, randomised
from float64 import everything_in_float64
from gymnasium import spaces
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays
from policy_learners import EchoEnvs, JointEnvs, learner_for, practise, rollout_of
from scripted_envs import IdentityEnvs, ScriptedEnvs
from tolerances import rounding_of

from swell.config.learners import ReturnSettings
from swell.learning import advantages, targets
from swell.types import BatchPlan, Rollout

pytest.importorskip("numba")
chisquare = pytest.importorskip("scipy.stats").chisquare
pytestmark = pytest.mark.portable

ENVS = {"discrete": IdentityEnvs, "joint": JointEnvs, "box": EchoEnvs}
UNLIKELY = 1e-4
"""Below it a statistic says no; seeds are fixed, so it says the same every time."""


class ShownEnvs(ScriptedEnvs):
    """Shows random observations of some space, and takes actions of another."""

    def __init__(self, observation_space, action_space, num_envs=4):
        super().__init__(num_envs)
        self.observation_space, self.action_space = observation_space, action_space
        self.random = np.random.default_rng(0)

    def _observations(self):
        space = self.observation_space
        shape = (self.num_envs, *space.shape)
        if space.dtype == np.bool_:
            return self.random.random(shape) < 0.3
        if np.issubdtype(space.dtype, np.integer):
            return self.random.integers(0, 256, shape).astype(space.dtype)
        return self.random.normal(size=shape).astype(space.dtype)


def learner_with_random_weights(envs, algorithm="ppo", **fields):
    learner = learner_for(envs, algorithm, **{"path": "compiled", **fields})
    randomised(learner.network)
    return learner


def acted(learner, observations, horizon=1, progress=0.0):
    """Actions [T, N] of so many steps on the same observations, and the actor."""
    actor = learner.actor(horizon, observations.shape[0])
    actor.start(horizon)
    return np.stack([actor.act(step, observations, progress).copy() for step in range(horizon)]), actor


@pytest.mark.parametrize("kind", list(ENVS))
@pytest.mark.parametrize("fields", [{}, {"normalize_observations": True}, {"architecture": "shared"}])
def test_the_recorded_distributions_and_values_are_the_networks(kind, fields):
    envs = ENVS[kind]()
    learner = learner_with_random_weights(envs, **fields)
    if fields.get("normalize_observations"):
        learner.network.normalizer.observe(
            torch.linspace(-1.0, 3.0, 50).unsqueeze(1).expand(50, envs.observation_space.shape[0])
        )
    rollout = rollout_of(learner, envs, 5)
    with torch.no_grad(), everything_in_float64():
        parameters, values = in_float64(learner.network)(rollout.states)
    assert gap(rollout.recorded["parameters"].flatten(0, 1), parameters) < 1e-5
    assert gap(rollout.recorded["values"].flatten(), values) < 1e-5


@pytest.mark.parametrize("kind", list(ENVS))
def test_act_says_the_same_of_a_moment_as_the_actor(kind):
    envs = ENVS[kind]()
    learner, observations = learner_with_random_weights(envs), envs.reset()
    _, actor = acted(learner, observations)
    actor.finish(torch.from_numpy(observations).unsqueeze(0))
    _, recorded = learner.act(torch.from_numpy(observations), 0.0)
    for name in ("parameters", "values"):
        assert gap(actor.recorded[name][0], recorded[name]) < 1e-6


SPACES = {
    "discrete": spaces.Discrete(3),
    "joint": spaces.MultiDiscrete([3, 2]),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "one": spaces.Box(-1, 1, (1,), np.float32),
    "single choice": spaces.MultiDiscrete([3]),
    "single bit": spaces.MultiBinary(1),
}
NUMBERS = spaces.Box(-10, 10, (3,), np.float32)


@pytest.mark.parametrize("name", SPACES)
def test_rollouts_of_both_paths_have_the_same_fields(name):
    made = []
    for path in ("compiled", "autograd"):
        envs = ShownEnvs(NUMBERS, SPACES[name])
        learner = learner_for(envs, path=path)
        assert learner.path == path
        made.append((rollout_of(learner, envs, 6), np.stack(envs.actions_seen)))
    (one, sent), (other, expected) = made
    assert (sent.shape, sent.dtype) == (expected.shape, expected.dtype)
    for field, tensor in vars(other).items():
        if isinstance(tensor, torch.Tensor):
            assert (getattr(one, field).shape, getattr(one, field).dtype) == (tensor.shape, tensor.dtype), field
    assert one.recorded.keys() == other.recorded.keys()
    for field, tensor in other.recorded.items():
        assert (one.recorded[field].shape, one.recorded[field].dtype) == (tensor.shape, tensor.dtype), field


def test_rollouts_of_pqn_have_the_same_fields_by_both_paths():
    one, other = (
        rollout_of(learner_for(ScriptedEnvs(), "pqn", path=path), ScriptedEnvs()) for path in ("compiled", "autograd")
    )
    assert one.recorded.keys() == other.recorded.keys() == {"values"}
    assert one.recorded["values"].shape == other.recorded["values"].shape
    assert (one.actions.shape, one.actions.dtype) == (other.actions.shape, other.actions.dtype)


OBSERVED = {
    "float64": spaces.Box(-10, 10, (3,), np.float64),
    "bytes": spaces.Box(0, 255, (5,), np.uint8),
    "bits": spaces.Box(0, 1, (5,), np.bool_),
    "integers": spaces.Box(0, 255, (4,), np.int64),
    "matrix": spaces.Box(-10, 10, (2, 3), np.float32),
    "bool images": spaces.Box(0, 1, (4, 10, 10), np.bool_),
    "byte images": spaces.Box(0, 255, (2, 10, 10), np.uint8),
}


@pytest.mark.parametrize("normalize_observations", [False, True])
@pytest.mark.parametrize("name", list(OBSERVED))
def test_observations_of_every_dtype_are_seen_as_the_network_sees_them(name, normalize_observations):
    envs = ShownEnvs(OBSERVED[name], spaces.Discrete(3))
    fields = {"normalize_observations": normalize_observations, "path": "auto"}
    learner = learner_with_random_weights(envs, **fields)
    assert learner.path == ("autograd" if normalize_observations and "images" in name else "compiled")
    for _ in range(2):  # the second with statistics of the first
        rollout = rollout_of(learner, envs, 5)
        with torch.no_grad(), everything_in_float64():
            parameters, values = in_float64(learner.network)(rollout.states)
        assert gap(rollout.recorded["parameters"].flatten(0, 1), parameters) < 1e-5
        assert gap(rollout.recorded["values"].flatten(), values) < 1e-5
        learner.observe(learner.peek(rollout))


@pytest.mark.parametrize("name", list(OBSERVED))
def test_q_values_of_every_dtype_are_the_networks(name):
    envs = ShownEnvs(OBSERVED[name], spaces.Discrete(3))
    learner = learner_with_random_weights(envs, "pqn")
    rollout = rollout_of(learner, envs, 5)
    with torch.no_grad(), everything_in_float64():
        q_values = in_float64(learner.network)(rollout.states)
    assert gap(rollout.recorded["values"].flatten(), q_values.amax(1)) < 1e-5


def test_choices_fit_their_probabilities():
    envs = IdentityEnvs(num_envs=100)
    learner, observations = learner_with_random_weights(envs), np.tile(np.eye(4, dtype=np.float32)[:1], (100, 1))
    drawn, _ = acted(learner, observations, 200)
    chances = learner.parameters(torch.from_numpy(observations[:1])).softmax(-1)[0].double().numpy()
    assert chances.max() > 0.3 and chances.min() > 0.01
    counted = np.bincount(drawn.ravel(), minlength=4)
    assert chisquare(counted, drawn.size * chances / chances.sum()).pvalue > UNLIKELY


def test_joint_choices_fit_their_probabilities_and_are_independent():
    envs = JointEnvs(num_envs=100)
    learner, observations = learner_with_random_weights(envs), np.tile(np.eye(5, dtype=np.float32)[:1], (100, 1))
    drawn, _ = acted(learner, observations, 200)
    logits = learner.parameters(torch.from_numpy(observations[:1]))[0].double()
    first, second = logits[:3].softmax(0), logits[3:].softmax(0)
    expected = torch.outer(first, second).flatten().numpy()
    pairs = drawn.reshape(-1, 2)
    counted = np.bincount(pairs[:, 0] * 2 + pairs[:, 1], minlength=6)
    assert chisquare(counted, len(pairs) * expected / expected.sum()).pvalue > UNLIKELY


def test_steps_and_envs_draw_apart():
    """Equal noise at two steps or in two envs would repeat actions where the policy is the same."""
    envs = IdentityEnvs(num_envs=100)
    learner, observations = learner_for(envs, path="compiled"), np.tile(np.eye(4, dtype=np.float32)[:1], (100, 1))
    with torch.no_grad():
        learner.network.policy_head.bias.zero_()
        learner.network.policy_head.weight.zero_()
    drawn, actor = acted(learner, observations, 100)
    for one, other in ((drawn[0], drawn[1]), (drawn[:, 0], drawn[:, 1])):
        assert 0.05 < (one == other).mean() < 0.5
    actor.start(100)
    assert 0.2 < (np.stack([actor.act(step, observations, 0.0) for step in range(100)]) == drawn).mean() < 0.3


def test_points_have_the_mean_and_the_deviation_of_the_policy_and_only_envs_see_them_clipped():
    envs = EchoEnvs(num_envs=100, bound=0.8)
    learner, observations = learner_with_random_weights(envs), np.full((100, 2), 0.3, np.float32)
    with torch.no_grad():
        learner.network.log_std.copy_(torch.tensor([-1.0, 0.5]))
    sent, actor = acted(learner, observations, 200)
    drawn = actor.recorded["sampled_actions"].numpy().reshape(-1, 2).astype(np.float64)
    mean, log_std = learner.parameters(torch.from_numpy(observations[:1]))[0].double().chunk(2)
    deviation = log_std.exp().numpy()
    count = len(drawn)
    assert (np.abs(drawn.mean(0) - mean.numpy()) < 4 * deviation / count**0.5).all()
    assert (np.abs(drawn.std(0) / deviation - 1.0) < 4 / (2 * count) ** 0.5).all()
    scaled = (drawn - mean.numpy()) / deviation
    assert abs((scaled[:, 0] * scaled[:, 1]).mean()) < 4 / count**0.5
    assert (np.abs(drawn) > 0.8).mean() > 0.1
    assert np.array_equal(sent.reshape(-1, 2), drawn.astype(np.float32).clip(-0.8, 0.8))


def test_bounds_are_those_of_each_component():
    low, high = np.array([-0.1, -2.0, 0.0], np.float32), np.array([0.2, -1.0, 0.5], np.float32)
    envs = ShownEnvs(NUMBERS, spaces.Box(low, high), num_envs=50)
    rollout = rollout_of(learner_with_random_weights(envs), envs, 20)
    assert torch.equal(
        rollout.actions, rollout.recorded["sampled_actions"].clamp(torch.from_numpy(low), torch.from_numpy(high))
    )
    assert (rollout.actions != rollout.recorded["sampled_actions"]).any(0).any(0).all()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_so_many_actions_are_random_as_epsilon_says(share):
    envs = IdentityEnvs(num_envs=100)
    learner = learner_with_random_weights(envs, "pqn", epsilon_start=share, epsilon_end=share)
    observations = envs.reset()
    drawn, actor = acted(learner, observations, 100)
    best = learner.greedy_actions(torch.from_numpy(observations)).numpy()
    others = (drawn != best).mean()
    # A random action is the best one in a quarter of cases.
    assert abs(others - 0.75 * share) <= 4 * (0.75 * share * (1 - 0.75 * share) / drawn.size) ** 0.5
    counted = np.bincount(((drawn - best) % 4).ravel(), minlength=4)
    if share:
        assert chisquare(counted[1:]).pvalue > UNLIKELY
    q_values = learner.model(torch.from_numpy(observations)).detach()
    assert gap(actor.recorded["values"][7], q_values.amax(1)) < 1e-6, "of the best action, whatever was taken"


def test_epsilon_falls_with_progress():
    envs = IdentityEnvs(num_envs=100)
    learner = learner_with_random_weights(envs, "pqn", epsilon_start=1.0, epsilon_end=0.0, epsilon_fraction=0.5)
    observations = envs.reset()
    best = learner.greedy_actions(torch.from_numpy(observations)).numpy()
    shares = [(acted(learner, observations, 40, progress)[0] != best).mean() for progress in (0.0, 0.25, 0.5)]
    assert shares[0] == pytest.approx(0.75, abs=0.03) and shares[1] == pytest.approx(0.375, abs=0.03)
    assert shares[2] == 0.0


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_an_actor_acts_with_the_weights_of_the_moment(algorithm):
    envs = IdentityEnvs()
    learner = learner_with_random_weights(envs, algorithm)
    observations = envs.reset()
    actor = learner.actor(2, 16)
    actor.start(2)
    for step in range(2):
        actor.act(step, observations, 0.0)
        with torch.no_grad():
            learner.optimizer.flat += 0.1
    first, second = actor.recorded["parameters" if algorithm == "ppo" else "values"]
    assert (first - second).abs().max() > 1e-2


def test_a_policy_that_was_trained_by_its_own_actors_sees_its_statistics():
    envs = EchoEnvs()
    learner = learner_for(envs, path="compiled", normalize_observations=True)
    practise(learner, envs, BatchPlan(8, 1, 2), 3)
    rollout = cloned(rollout_of(learner, envs, 4))
    assert learner.network.normalizer.scale.min() > 2.0, "nothing was scaled"
    with torch.no_grad():
        parameters, _ = learner.network(rollout.states)
    torch.testing.assert_close(rollout.recorded["parameters"].flatten(0, 1), parameters, rtol=1e-5, atol=1e-5)


SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 5))
WITHIN = {"min_value": -100.0, "max_value": 100.0, "width": 32}


@st.composite
def rows_over_time(draw, dtype):
    shape = draw(SHAPES)
    numbers = [draw(arrays.arrays(dtype, shape, elements=st.floats(**WITHIN))) for _ in range(2)]
    shares = [draw(arrays.arrays(dtype, shape, elements=st.sampled_from([0.0, 0.5, 0.9375, 1.0]))) for _ in range(2)]
    return numbers, shares


@given(rows_over_time(np.float32), st.booleans(), st.data())
def test_returns_of_a_rollout_are_the_readable_ones(rows, cuts_end, data):
    from swell.learning import fused

    (rewards, values), (ends, kinds) = rows
    terminated, truncated = (ends == 0.0) & (kinds < 0.5), (ends == 0.0) & (kinds >= 0.5)
    shown = truncated & data.draw(arrays.arrays(np.bool_, rewards.shape))  # of others the observations go on
    indices = np.flatnonzero(shown)
    last, finals = (
        data.draw(arrays.arrays(np.float32, count, elements=st.floats(**WITHIN)))
        for count in (rewards.shape[1], len(indices))
    )
    none = torch.empty(0)
    flags = [torch.from_numpy(each) for each in (terminated, truncated)]
    rollout = Rollout(none, none, none, *flags, none, none, torch.from_numpy(indices))
    settings = ReturnSettings(discount=0.9, trace_decay=0.7, truncation_is_termination=cuts_end)
    numbers = [torch.from_numpy(each) for each in (rewards, values, last, finals)]
    exact = targets.bootstrapped_returns(rollout, *(each.double() for each in numbers), settings)
    found = fused.bootstrapped_returns(rollout, *numbers, settings)
    assert found.dtype == torch.float32 and found.shape == exact.shape
    assert (found.double() - exact).abs().max().item() <= rounding_of(*numbers, roundings=8)


@given(rows_over_time(np.float64), st.data())
def test_running_sums_of_rewards_are_the_readable_ones(rows, data):
    from swell.learning import fused

    (rewards, _), (discounts, _) = rows
    carried = data.draw(arrays.arrays(np.float64, rewards.shape[1], elements=st.floats(**WITHIN)))
    before = rewards.copy()
    sums, rest = fused.running_sums(rewards, discounts, carried.copy())
    expected, expected_rest = advantages.running_sums(rewards, discounts, carried)
    np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(rest, expected_rest, rtol=1e-12, atol=1e-9)
    assert np.array_equal(rewards, before), "what was given is not for writing"


def test_both_paths_scale_rewards_alike():
    envs = ScriptedEnvs(num_envs=3, next_step=True)
    compiled, readable = (learner_for(envs, path=path, normalize_rewards=True) for path in ("compiled", "autograd"))
    for _ in range(3):
        rollout = cloned(rollout_of(compiled, envs, 7))
        for learner in (compiled, readable):
            learner.prepare(rollout)
    one, other = (learner.state_dict()["reward_normalizer"] for learner in (compiled, readable))
    assert one["count"] == other["count"]
    torch.testing.assert_close(one["returns"], other["returns"])
    assert one["squared_deviations"] == pytest.approx(other["squared_deviations"])
