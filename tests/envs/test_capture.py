"""Objects to plain data and back."""

import json
import random
from collections import deque

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from hypothesis import given, strategies as st

from swell.envs.capture import NotPlainError, capture, restore


class Holder:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def round_trip(value):
    target = Holder(value=None)
    restore(target, capture(Holder(value=value)))
    return target.value


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(), inner)
        | st.builds(deque, st.lists(inner), st.integers(0, 5))
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_values_survive_with_their_types(value):
    assert repr(round_trip(value)) == repr(value)
    json.dumps(capture(Holder(value=value)), allow_nan=False)


@pytest.mark.parametrize("value", [np.int64(3), np.float32(0.1), np.bool_(True), np.float64("inf"), np.uint8(255)])
def test_numpy_scalars_keep_their_type(value):
    restored = round_trip(value)
    assert restored == value
    assert type(restored) is type(value)


def test_arrays_are_copies():
    array = np.arange(3.0)
    state = capture(Holder(value=array))
    array[0] = 9  # an env that goes on must not change what was saved
    target = Holder(value=None)
    restore(target, state)
    state["attributes"]["value"][1] = 9
    assert target.value.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make_generator", "draw"),
    [
        (np.random.default_rng, lambda generator: generator.random()),
        (lambda seed: np.random.Generator(np.random.MT19937(seed)), lambda generator: generator.random()),
        (np.random.RandomState, lambda generator: generator.randn()),
        (random.Random, lambda generator: generator.gauss(0, 1)),
    ],
)
def test_generators_go_on_and_stay_shared(make_generator, draw):
    original = make_generator(1)
    draw(original)
    state = capture(Holder(first=original, second=Holder(generator=original)))
    other = make_generator(2)
    target = Holder(first=other, second=Holder(generator=other))
    restore(target, state)
    assert target.first is target.second.generator is other
    assert [draw(target.first) for _ in range(3)] == [draw(original) for _ in range(3)]


def test_a_generator_that_is_not_there_yet_is_made():
    original = np.random.default_rng(1)
    assert round_trip(original).random() == np.random.default_rng(1).random()


def test_what_is_no_state_is_left_out():
    holder = Holder(space=Discrete(2), function=len, kind=int, text=np.array(["a"]), objects=[Holder()], number=1)
    assert capture(holder)["attributes"] == {"number": 1}


def test_objects_that_hold_each_other_are_captured_once():
    holder = Holder(number=1)
    holder.child = Holder(parent=holder, number=2)
    attributes = capture(holder)["attributes"]
    assert attributes["child"]["attributes"] == {"number": 2}


def test_an_object_that_is_missing_cannot_be_restored():
    with pytest.raises(NotPlainError):
        restore(Holder(child=None), capture(Holder(child=Holder(number=1))))
