"""Compiled classic control: what Gymnasium's envs do, resets of the same distribution, exact resume, the contract."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from env_comparisons import goes_on_alike, through_json
from gymnasium.spaces import Discrete

import swell.envs.ids as ids
from swell.envs import resolve_env_id
from swell.envs.resume_check import same_state
from swell.errors import ConfigError, EnvironmentFailedError

pytest.importorskip("numba")

NUMBERS = {"CartPole-v1": 4, "Acrobot-v1": 4, "MountainCar-v0": 2, "MountainCarContinuous-v0": 2, "Pendulum-v1": 2}
"""How many numbers the state of each has."""
ENV_IDS = list(NUMBERS)
TOLERANCE = 1e-12
REWARD_TOLERANCE = 1e-9
"""NumPy squares Pendulum's float32 torque with a rounding of its own, now and then."""
HELD_BY_NUMPY_2 = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="other rules for float32")


@pytest.fixture
def compiled(make):
    return lambda env_id, num_envs=2, seed=0, **settings: make(env_id, num_envs, seed, backend="compiled", **settings)


def state_for_gymnasium(envs, env_id, index=0):
    """Gymnasium holds the state of its continuous car as float32, except before the first step of an episode."""
    rounded = env_id == "MountainCarContinuous-v0" and envs.elapsed[index] > 0
    return envs.states[index, : NUMBERS[env_id]].astype(np.float32 if rounded else np.float64)


def random_actions(envs, steps, seed=0):
    rng = np.random.default_rng(seed)
    space = envs.action_space
    if isinstance(space, Discrete):
        return rng.integers(space.n, size=(steps, envs.num_envs))
    return rng.uniform(space.low, space.high, (steps, envs.num_envs, 1)).astype(np.float32)


def plucky_actions(envs, steps):
    """Pushes along with the speed, which reaches the goals that random actions do not."""
    for _ in range(steps):
        speed = envs.states[:, 1] if envs.is_continuous or envs.kind == 2 else envs.states[:, 3]
        direction = np.where(speed < 0, -1, 1)
        if envs.is_continuous:
            yield (direction[:, None] * envs.action_space.high).astype(np.float32)
        else:
            yield direction + 1 if envs.action_space.n == 3 else (direction + 1) // 2


def check_against_gymnasium(envs, env_id, actions, every_step=True, tolerance=TOLERANCE):
    """Plays the first env and Gymnasium's side by side; returns how many episodes ended by themselves and by time."""
    theirs = gymnasium.make(env_id, disable_env_checker=True)
    theirs.reset(seed=0)
    envs.reset()
    ended, cut = 0, 0
    for action in actions:
        if every_step or envs.elapsed[0] == 0:
            theirs.unwrapped.state = state_for_gymnasium(envs, env_id)
        step = envs.step(action)
        observation, reward, terminated, truncated, _ = theirs.step(action[0])
        np.testing.assert_allclose(step.final_observations[0], observation, rtol=1e-6, atol=1e-6)
        assert step.scores[0] == pytest.approx(reward, rel=TOLERANCE, abs=max(REWARD_TOLERANCE, tolerance))
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated and not terminated)
        ended, cut = ended + terminated, cut + (truncated and not terminated)
        if terminated or truncated:
            theirs.reset()
        else:
            state = state_for_gymnasium(envs, env_id)
            np.testing.assert_allclose(state, theirs.unwrapped.state, rtol=tolerance, atol=tolerance)
    return ended, cut


@HELD_BY_NUMPY_2
@pytest.mark.parametrize("env_id", ENV_IDS)
def test_every_step_is_gymnasiums(env_id, compiled):
    envs = compiled(env_id, num_envs=1)
    ended, cut = check_against_gymnasium(envs, env_id, random_actions(envs, 3000))
    assert ended + cut >= 3


@HELD_BY_NUMPY_2
@pytest.mark.parametrize("env_id", ENV_IDS)
def test_steps_towards_the_goal_are_gymnasiums(env_id, compiled):
    envs = compiled(env_id, num_envs=1)
    ended, cut = check_against_gymnasium(envs, env_id, plucky_actions(envs, 2000))
    assert (ended if env_id != "Pendulum-v1" else cut) >= 3


@HELD_BY_NUMPY_2
@pytest.mark.parametrize("env_id", ENV_IDS)
def test_whole_episodes_are_gymnasiums(env_id, compiled):
    """Rounding grows along an episode: ten digits are left of Acrobot's, where the last ones are chaotic."""
    envs = compiled(env_id, num_envs=1)
    check_against_gymnasium(envs, env_id, random_actions(envs, 1500), every_step=False, tolerance=1e-7)


@pytest.mark.parametrize("env_id", ["CartPole-v0", *ENV_IDS])
def test_spaces_and_time_limits_are_gymnasiums(env_id, compiled):
    envs, theirs = compiled(env_id), gymnasium.make(env_id)
    assert envs.observation_space == theirs.observation_space
    assert envs.action_space == theirs.action_space
    assert envs.limit == theirs.spec.max_episode_steps


def test_every_id_of_the_backend_can_be_made(compiled):
    for env_id in ids.COMPILED_IDS:
        assert compiled(env_id).reset().shape[0] == 2


BOUNDS = {
    "CartPole-v1": [(-0.05, 0.05)] * 4,
    "Acrobot-v1": [(-0.1, 0.1)] * 4,
    "MountainCar-v0": [(-0.6, -0.4), (0, 0)],
    "MountainCarContinuous-v0": [(-0.6, -0.4), (0, 0)],
    "Pendulum-v1": [(-np.pi, np.pi), (-1, 1)],
}


@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.parametrize("how", ["reset", "time limit"])
def test_first_states_are_uniform_within_gymnasiums_bounds(env_id, how, compiled):
    envs = compiled(env_id, num_envs=4000, max_episode_steps=1)
    envs.reset()
    if how == "time limit":
        envs.step(random_actions(envs, 1)[0])
    assert not envs.states[:, NUMBERS[env_id] :].any()
    for values, (low, high) in zip(envs.states.T, BOUNDS[env_id], strict=False):
        width, count = high - low, len(values)
        assert low - 1e-7 <= values.min() <= values.max() <= high + 1e-7
        assert abs(values.mean() - (low + high) / 2) <= 4.5 * width / np.sqrt(12 * count)
        assert abs(values.var() - width**2 / 12) <= 4.5 * width**2 / np.sqrt(180 * count)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_first_numbers_are_independent(env_id, compiled):
    envs = compiled(env_id, num_envs=4000)
    envs.reset()
    first = envs.states[:, 0].copy()
    envs.elapsed[:] = envs.limit - 1
    envs.step(random_actions(envs, 1)[0])
    columns = [first, first[np.roll(np.arange(4000), 1)], *envs.states.T[: NUMBERS[env_id]]]
    varied = [column for column in columns if column.std() > 0]
    correlations = np.corrcoef(varied) - np.eye(len(varied))
    assert np.abs(correlations).max() < 4.5 / np.sqrt(4000)


def returns_and_lengths(envs, steps):
    envs.reset()
    scores, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs)
    finished = []
    for actions in random_actions(envs, steps, seed=1):
        step = envs.step(actions)
        scores += step.scores
        lengths += step.valid
        over = step.episode_over
        finished += zip(scores[over], lengths[over], strict=True)
        scores[over], lengths[over] = 0, 0
    return np.array(finished)


@pytest.mark.parametrize(("env_id", "steps"), [("CartPole-v1", 1500), ("Acrobot-v1", 160), ("Pendulum-v1", 160)])
def test_random_play_scores_as_in_gymnasium(env_id, steps, compiled, make):
    settings = {} if env_id == "CartPole-v1" else {"max_episode_steps": 40}
    ours = returns_and_lengths(compiled(env_id, num_envs=24, **settings), steps)
    theirs = returns_and_lengths(make(env_id, num_envs=24, backend="gymnasium", **settings), steps)
    for mine, other in zip(ours.T, theirs.T, strict=True):
        error = np.sqrt(mine.var() / len(mine) + other.var() / len(other))
        assert abs(mine.mean() - other.mean()) <= 4.5 * error


def test_every_env_starts_differently_and_every_run_alike(compiled):
    first = compiled("CartPole-v1", num_envs=8, seed=3)
    observations = first.reset()
    assert len(np.unique(observations, axis=0)) == 8
    assert len(np.unique(first.random_states)) == 8
    assert np.array_equal(observations, first.reset())
    assert np.array_equal(observations, compiled("CartPole-v1", num_envs=8, seed=3).reset())
    assert not np.isin(observations, compiled("CartPole-v1", num_envs=8, seed=4).reset()).any()


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_restored_batch_goes_on_to_the_last_bit(env_id, compiled):
    original = compiled(env_id, num_envs=3, max_episode_steps=20)
    restored = compiled(env_id, num_envs=3, max_episode_steps=20, seed=9)
    original.reset()
    actions = random_actions(original, 90)
    for row in actions[:30]:
        original.step(row)
    state = through_json(original.state_dict())
    kept = through_json(state)
    assert restored.load_state_dict(state, resume_count=1) is None
    assert goes_on_alike(original, restored, actions[30:])
    assert same_state(state, kept)
    assert original.resume_tier == "exact"


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_step_keeps_the_contract(env_id, compiled):
    envs = compiled(env_id, num_envs=3, max_episode_steps=5)
    shape = (3, *envs.observation_space.shape)
    assert envs.reset().shape == shape
    steps = [envs.step(row) for row in random_actions(envs, 10)]
    assert [step.truncated.all() for step in steps] == ([False] * 4 + [True]) * 2
    for step in steps:
        assert step.observations.shape == step.final_observations.shape == shape
        assert step.observations.dtype == step.final_observations.dtype == step.rewards.dtype == np.float32
        assert step.scores.dtype == np.float64
        assert [step[place].dtype for place in (2, 3, 4, 6)] == [np.bool_] * 4
        assert step.valid.all()
        assert np.array_equal(step.episode_over, step.terminated | step.truncated)
        assert all(envs.observation_space.contains(row) for row in step.observations)
        same = (step.observations == step.final_observations).all(axis=1)
        assert np.array_equal(same, ~step.episode_over)


def test_an_end_at_the_time_limit_is_a_termination(compiled):
    envs = compiled("CartPole-v1", num_envs=1, max_episode_steps=10)
    envs.reset()
    steps = [envs.step(np.array([1])) for _ in range(100)]
    lengths = np.diff(np.flatnonzero([step.episode_over[0] for step in steps]))
    assert 10 in lengths
    assert min(lengths) < 10
    at_limit = [step for step in steps if step.terminated[0] and abs(step.final_observations[0, 2]) > 0.2094]
    assert not any(step.truncated[0] for step in at_limit)


def test_what_a_step_returned_is_not_overwritten_by_the_next(compiled):
    envs = compiled("CartPole-v1")
    envs.reset()
    step = envs.step(np.array([0, 1]))
    kept = [array.copy() for array in step]
    for _ in range(20):
        envs.step(np.array([1, 1]))
    assert same_state(list(step), kept)


def test_clipping_changes_rewards_but_not_scores(compiled):
    envs = compiled("Pendulum-v1", clip_rewards=True)
    envs.reset()
    step = envs.step(np.ones((2, 1), dtype=np.float32))
    assert step.rewards.tolist() == [-1, -1]
    assert (step.scores % 1 != 0).all()


def test_the_image_is_gymnasiums(compiled):
    pytest.importorskip("pygame")
    for env_id in ENV_IDS:
        envs = compiled(env_id, render_mode="rgb_array", max_episode_steps=30)
        envs.reset()
        before = envs.render()
        for row in random_actions(envs, 20):
            envs.step(row)
        assert before.shape == envs.render().shape
        assert not np.array_equal(before, envs.render())
        assert compiled(env_id).render() is None


@pytest.mark.parametrize(
    ("env_id", "actions", "message"),
    [
        ("CartPole-v1", np.zeros(3, dtype=np.int64), "expected actions of shape (2,), got (3,)"),
        ("CartPole-v1", np.zeros((2, 1), dtype=np.int64), "expected actions of shape (2,), got (2, 1)"),
        ("Pendulum-v1", np.zeros(2, dtype=np.float32), "expected actions of shape (2, 1), got (2,)"),
        ("Pendulum-v1", np.array([[0], [np.nan]]), "expected finite actions"),
        ("MountainCarContinuous-v0", np.array([[np.nan], [0]]), "expected finite actions"),
    ],
)
def test_wrong_actions_are_refused(env_id, actions, message, compiled):
    envs = compiled(env_id)
    envs.reset()
    with pytest.raises(EnvironmentFailedError) as caught:
        envs.step(actions)
    assert str(caught.value) == f"{env_id}: envs failed at step 1: {message}"


@pytest.mark.parametrize("backend", ["auto", "gymnasium"])
def test_only_its_own_name_chooses_it(backend, make):
    assert type(make("CartPole-v1", backend=backend)).__module__ == "swell.envs.gymnasium_envs"


def test_without_the_fast_extra_one_line_says_so(monkeypatch):
    monkeypatch.setattr(ids, "find_spec", lambda package: None if package == "numba" else object())
    assert resolve_env_id("cartpole", "gymnasium") == "CartPole-v1"
    with pytest.raises(ConfigError) as caught:
        resolve_env_id("cartpole", "compiled")
    expected = 'backend compiled for CartPole-v1 needs the fast extra: pip install "swell-rl[fast]"'
    assert str(caught.value) == expected


def test_numba_is_imported_only_for_this_backend():
    code = "import sys, swell.envs; swell.envs.make_envs('CartPole-v1').reset(); assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
