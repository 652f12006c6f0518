"""Envs of the user's own: functions, classes, arguments and wrappers."""

import pickle

import gymnasium
import numpy as np
import own_envs
import pytest
from own_envs import Camera, TwoDoors, TwoLocks, make_cartpole

from swell.config.imports import HandedIn, name_of
from swell.config.own_envs import kwargs_of, kwargs_words
from swell.config.runs import EnvSettings
from swell.envs import make_envs, resolve_env_id
from swell.envs.space_data import space_data, space_from
from swell.envs.spaces import FlatBox, ObservationEncoder
from swell.errors import ConfigError, EnvironmentFailedError


def lengths_of(envs):
    return [env.unwrapped.length for env in envs._envs]


@pytest.mark.parametrize("env", [make_cartpole, "own_envs:make_cartpole", lambda length=0.5: make_cartpole(length)])
def test_arguments_reach_a_function_of_the_users_own(env):
    envs = make_envs(env, num_envs=2, env_kwargs={"length": 0.75})
    assert lengths_of(envs) == [0.75, 0.75]
    assert envs.reset().shape == (2, 4)


def test_arguments_reach_an_env_of_gymnasium():
    envs = make_envs("LunarLander-v3", num_envs=1, env_kwargs=("continuous=true", "gravity=-5.0"))
    assert envs.action_space.shape == (2,) and envs._envs[0].unwrapped.gravity == -5.0


def test_a_class_is_as_good_as_a_function():
    envs = make_envs(TwoDoors, num_envs=3, env_kwargs={"masked": False})
    assert envs.reset().shape == (3, 2)


def test_wrappers_go_around_each_env_the_first_one_innermost():
    wrappers = (own_envs.Doubled, "own_envs:Shifted")
    envs = make_envs("CartPole-v1", num_envs=2, wrappers=wrappers)
    envs.reset()
    assert envs.step(np.zeros(2, np.int64)).scores.tolist() == [3.0, 3.0]


def test_a_time_limit_holds_for_envs_of_the_users_own():
    envs = make_envs(make_cartpole, num_envs=1, max_episode_steps=2)
    envs.reset()
    assert [bool(envs.step(np.zeros(1, np.int64)).truncated[0]) for _ in range(2)] == [False, True]


def test_names_lead_back_and_what_has_none_is_carried():
    local = lambda: None  # noqa: E731
    assert name_of(make_cartpole) == "own_envs:make_cartpole"
    carried = name_of(local)
    assert isinstance(carried, HandedIn) and carried.make is local and str.__eq__(carried, "handed-in:<lambda>")
    assert carried == HandedIn(local) and carried != HandedIn(lambda: None)
    assert pickle.loads(pickle.dumps(HandedIn(make_cartpole))).make is make_cartpole
    assert EnvSettings(make_cartpole).env == "own_envs:make_cartpole"


def test_words_stand_for_the_values_they_came_from():
    kwargs = {"gravity": -5.0, "name": "north", "on": True, "size": [3, 4], "none": None, "digits": "12", "x": "a=b"}
    assert kwargs_of(kwargs_words(kwargs)) == kwargs
    assert kwargs_of(("on=True", "off=false", "rate=1e-4")) == {"on": True, "off": False, "rate": 1e-4}


ENV = gymnasium.make("CartPole-v1")
WRONG = [
    (lambda: make_envs(ENV), "env must be made anew for each of num_envs, got one TimeLimit; hand in a function"),
    (lambda: make_envs(3), "env must be an id, or a function or a class that makes one, got 3"),
    (lambda: make_envs(lambda: ENV, num_envs=2), "must make a new env at each call"),
    (lambda: make_envs(own_envs.make_text), "must return a gymnasium.Env, got str"),
    (lambda: make_envs("own_envs:not_callable"), "must be a class or a function, got 3"),
    (
        lambda: make_envs("own_envs:make_cartpol"),
        "unknown env 'own_envs:make_cartpol'; did you mean .*own_envs:make_cartpole",
    ),
    (lambda: make_envs("CartPole-v1", wrappers=("Doubled",)), "wrappers must be module:name each, got 'Doubled'"),
    (lambda: make_envs("CartPole-v1", wrappers=[lambda env: env]), "wrappers must be module:name each"),
    (lambda: make_envs("CartPole-v1", env_kwargs=("gravity",)), "env_kwargs must be key=value, got 'gravity'"),
    (lambda: make_envs("CartPole-v1", env_kwargs={"f": print}), "env_kwargs must be numbers, texts, lists or dicts"),
    (lambda: make_envs("minatar/breakout", env_kwargs={"a": 1}), "env_kwargs is for envs of Gymnasium and your own"),
    (lambda: make_envs(TwoDoors, render_mode="human"), "takes no argument render_mode"),
    (lambda: resolve_env_id("handed-in:make"), r"hand it in again, in Python: swell.resume\(directory, make\)"),
]


@pytest.mark.parametrize(("make", "line"), WRONG)
def test_what_cannot_be_made_is_told_in_a_line(make, line):
    with pytest.raises(ConfigError, match=line):
        make()


def test_an_argument_that_the_env_does_not_have_is_named():
    with pytest.raises(EnvironmentFailedError, match="gravty"):
        make_envs("LunarLander-v3", env_kwargs={"gravty": 1})


def test_images_next_to_vectors_keep_their_shapes_and_their_bytes_are_scaled():
    envs = make_envs(Camera, num_envs=2)
    space = envs.observation_space
    assert isinstance(space, FlatBox) and space.parts == ((6, 6, 3), (2,), (3,))
    rows = envs.reset()
    assert rows.shape == (2, 113) and set(np.unique(rows[:, :108])) == {0.0, 1.0}
    assert rows[:, 110:].sum(axis=1).tolist() == [1.0, 1.0]
    assert space.high[:108].max() == 1.0


def test_parts_that_are_all_vectors_stay_one_vector():
    space = gymnasium.spaces.Dict(a=gymnasium.spaces.Box(0, 1, (2, 2)), b=gymnasium.spaces.Discrete(3))
    assert ObservationEncoder(space, "env").space.parts == ()


@pytest.mark.parametrize(
    "space", [Camera.observation_space, TwoLocks.action_space, ENV.observation_space, ENV.action_space]
)
def test_spaces_survive_being_written_down(space):
    assert space_from(space_data(space)) == space


class WithoutMaskAtTheEnd(TwoDoors):
    def step(self, action):
        *rest, _ = super().step(action)
        return (*rest, {})


class NothingAllowed(TwoDoors):
    def step(self, action):
        *rest, info = super().step(action)
        return (*rest, {"action_mask": np.zeros_like(info["action_mask"])})


@pytest.mark.parametrize(
    ("env", "line"),
    [(WithoutMaskAtTheEnd, "expected action_mask in the info"), (NothingAllowed, "allows an action, got only zeros")],
)
def test_masks_that_are_not_there_are_the_envs_fault(env, line):
    envs = make_envs(env, num_envs=1)
    allowed = envs.reset()[:, -8:].argmax(axis=1)
    with pytest.raises(EnvironmentFailedError, match=line):
        envs.step(allowed)


@pytest.mark.parametrize("async_envs", [False, True])
def test_the_allowed_actions_are_the_end_of_each_observation(async_envs):
    envs = make_envs(TwoDoors, num_envs=2, async_envs=async_envs)
    rows = envs.reset()
    assert envs.observation_space.masks == 8 and rows.shape == (2, 10) and rows[:, 2:].sum(axis=1).tolist() == [2, 2]
    for _ in range(25):
        rows = envs.step(rows[:, 2:].argmax(axis=1)).observations
    assert envs.resume_tier == "exact"
    envs.close()
