"""Envs that break: one line that says which env, when, what was expected and what came."""

import pytest
from env_comparisons import failure_of, play

from swell.errors import EnvironmentFailedError

FAULTS = {
    "raise": "RuntimeError: the motor is on fire",
    "nan_observation": "expected a finite observation, got nan at (1,)",
    "huge_observation": "expected a finite observation, got inf at (1,)",
    "nan_reward": "expected a finite reward, got nan",
    "huge_reward": "expected a reward within ±1e+18, of which a loss can take the square, got -1e+300",
    "text_reward": "expected a number as reward, got 'good'",
    "integer_flag": "expected terminated and truncated to be booleans, got 1",
    "scalar_observation": "expected an observation of shape (3,), got ()",
    "wrong_shape": "expected an observation of shape (3,), got (4,)",
}


@pytest.mark.parametrize(("fault", "message"), FAULTS.items())
def test_a_fault_stops_the_run_and_says_where(fault, message, make):
    expected = f"SwellTest/Faulty_{fault}-v0: env 0 failed at step 4: {message}"
    assert failure_of(make(f"SwellTest/Faulty_{fault}-v0")) == expected


def test_the_error_of_the_env_is_kept_as_the_cause(make):
    with pytest.raises(EnvironmentFailedError) as caught:
        play(make("SwellTest/Faulty_raise-v0"))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("Observation", "expected finite observations, got inf at (1, 2)"),
        ("Reward", "expected finite rewards, got nan at (1,)"),
        ("Size", "expected a reward within ±1e+18, of which a loss can take the square, got 1e+300"),
    ],
)
def test_a_fault_in_a_vectorised_env_names_the_env(fault, message, make):
    expected = f"SwellTest/VectorFault{fault}-v0: env 1 failed at step 2: {message}"
    assert failure_of(make(f"SwellTest/VectorFault{fault}-v0")) == expected
