"""Observations that fit float32 pass and others are named; actions reach every env in its own type and shape."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from registered_envs import ACTION_SPACES

from swell.envs.gymnasium_envs import EntryPointEnvs
from swell.envs.spaces import ActionDecoder, BadAnswerError, ObservationEncoder, all_finite

SENT_AND_OBSERVED = {
    "Float32": ([[0.5, -2.0], [1.0, 0.25]], [[0.5, -2.0], [1.0, 0.25]]),
    "Float64": ([[0.1, -0.1], [0.0625, 0.0]], [[0.1, -0.1], [0.0625, 0.0]]),
    "Matrix": (np.linspace(-1, 1, 12).reshape(2, 2, 3), np.linspace(-1, 1, 12).reshape(2, 6)),
    "Choices": ([[1, 0], [0, 2]], [[1, 5], [0, 7]]),
    "ChoiceTable": ([[1, 0, 3, 4], [0, 2, 1, 0]], [[1, 0, 3, 4], [0, 2, 1, 0]]),
    "Switches": ([[1, 0, 1], [0, 0, 1]], [[1, 0, 1], [0, 0, 1]]),
}


@pytest.mark.parametrize("backend", ["looped", "workers", "vectorised"])
@pytest.mark.parametrize("space", SENT_AND_OBSERVED)
def test_an_env_gets_actions_of_its_own_space(space, backend, make):
    name = f"SwellTest/ActionVector{space}-v0" if backend == "vectorised" else f"SwellTest/Action{space}-v0"
    envs = make(name, async_envs=backend == "workers")
    assert isinstance(envs, EntryPointEnvs) == (backend == "vectorised")
    envs.reset()
    sent, observed = SENT_AND_OBSERVED[space]
    actions = np.array(sent, dtype=envs.action_space.dtype)
    np.testing.assert_allclose(envs.step(actions).observations, observed, rtol=1e-6)


@pytest.mark.parametrize("env_id", ["SwellTest/ActionFloat32-v0", "SwellTest/ActionVectorFloat32-v0"])
def test_an_env_that_writes_into_its_action_leaves_the_learners_alone(env_id, make):
    envs = make(env_id)
    envs.reset()
    actions = np.array([[0.5, -1.5], [1.0, 0.25]], dtype=np.float32)
    envs.step(actions)
    assert actions.tolist() == [[0.5, -1.5], [1.0, 0.25]]


@pytest.mark.parametrize(
    ("space", "learners_space"),
    [
        (Discrete(4), Discrete(4)),
        (Discrete(4, start=3), Discrete(4)),
        (ACTION_SPACES["Choices"], MultiDiscrete([2, 3])),
        (ACTION_SPACES["ChoiceTable"], MultiDiscrete([2, 3, 4, 5])),
        (MultiBinary((2, 2)), MultiBinary(4)),
        (ACTION_SPACES["Float64"], Box(-0.1, 0.1, (2,), np.float32)),
        (ACTION_SPACES["Matrix"], ACTION_SPACES["Matrix"]),
    ],
)
def test_the_learner_sees_choices_from_zero_in_a_row_and_float32(space, learners_space):
    assert ActionDecoder(space).space == learners_space


@pytest.mark.parametrize("space", [Box(0, 9, (2,), np.int64), Dict({"left": Discrete(2)})])
def test_spaces_that_no_learner_plays_stay_as_they_are(space):
    decoder = ActionDecoder(space)
    action = space.sample()
    assert decoder.space is space
    assert decoder.decode(action) is action


@pytest.mark.parametrize("space", list(ACTION_SPACES.values()), ids=list(ACTION_SPACES))
def test_one_action_and_a_batch_of_them_are_decoded_alike(space):
    decoder = ActionDecoder(space)
    decoder.space.seed(0)
    batch = np.stack([decoder.space.sample() for _ in range(50)])
    singles = [decoder.decode(action) for action in batch]
    assert np.array_equal(decoder.decode(batch), singles)
    assert all(space.contains(action) for action in singles)


@pytest.mark.parametrize(("env_id", "torque"), [("Pendulum-v1", 2.0), ("MountainCarContinuous-v0", 1.0)])
def test_continuous_classic_control_plays(env_id, torque, make, actions_for):
    envs = make(env_id, num_envs=3)
    envs.reset()
    assert envs.action_space == Box(-torque, torque, (1,), np.float32)
    steps = [envs.step(actions) for actions in actions_for(envs, 20)]
    assert len(np.unique([step.rewards for step in steps])) == 60
    assert all(step.observations.shape == (3, *envs.observation_space.shape) for step in steps)


@pytest.mark.parametrize(
    ("dtype", "largest"), [(np.float16, 6e4), (np.float32, 3e38), (np.float64, 3e38), (np.longdouble, 3e38)]
)
@pytest.mark.filterwarnings("error")
def test_finite_numbers_within_float32_pass(dtype, largest):
    for value in (0.0, -1.5, 6e4, 1e25, -3e38):
        observation = np.clip(np.array([0.0, value]), -largest, largest).astype(dtype)
        encoded = ObservationEncoder(Box(-np.inf, np.inf, (2,), np.float64), "env").encode(observation)
        assert encoded.dtype == np.float32
        assert encoded.tolist() == observation.astype(np.float32).tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 4e38, -1e300])
@pytest.mark.filterwarnings("error")
def test_other_numbers_do_not(dtype, value):
    with np.errstate(over="ignore"):
        observation = np.array([0.0, value]).astype(dtype)
    with pytest.raises(BadAnswerError, match=r"expected a finite observation, got (nan|inf|-inf) at \(1,\)"):
        ObservationEncoder(Box(-np.inf, np.inf, (2,), np.float64), "env").encode(observation)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_numbers_are_finite_and_only_infinities_and_nan_are_not(dtype):
    huge = np.full((3, 2), np.finfo(dtype).max, dtype=dtype)
    assert all_finite(huge)
    for bad in (np.nan, np.inf, -np.inf):
        for rows in (huge, np.zeros_like(huge)):
            rows = rows.copy()
            rows[2, 1] = bad
            assert not all_finite(rows)
