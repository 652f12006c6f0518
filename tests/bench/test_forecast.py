"""How long a benchmark may take, before it starts and while it runs."""

import pytest
from small_bench import small_plan

from swell.bench.forecast import cost_of, rough_duration, seconds_left
from swell.bench.plan import make_plan
from swell.bench.status import RunState


def test_the_estimate_counts_steps_and_believes_what_was_measured():
    runs = make_plan(["CartPole-v1"], ["fixed:16"], seeds=4, shared={"total_env_steps": 3600})
    slow = cost_of(runs, jobs=1, speeds={"CartPole-v1": 1.0})
    assert slow.env_steps == 4 * 3600 and slow.seconds == pytest.approx(4 * 3600, rel=0.01)
    assert cost_of(runs, jobs=2, speeds={"CartPole-v1": 1.0}).seconds == pytest.approx(slow.seconds / 2)
    assert cost_of(runs, jobs=1).seconds < slow.seconds


def test_the_time_left_goes_by_the_speed_of_the_same_env_and_by_runs_at_a_time():
    run = small_plan("fixed:8", total_env_steps=6000)[0]
    running, waiting = RunState(run, "running", 3000, 3.0, 44.25, 12), RunState(run, "missing")
    assert seconds_left([running]) == pytest.approx(3.0)
    second = RunState(run, "running", env_steps=3000, wall_seconds=3.0)
    assert seconds_left([running, second, waiting, waiting, waiting]) == pytest.approx((2 * 3.0 + 3 * 11.0) / 2)
    assert seconds_left([running, second, waiting]) == pytest.approx(11.0), "one run cannot be shared by two workers"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0.2, "1 s"), (59, "59 s"), (61, "1 min"), (3600, "1 h"), (4790, "1 h 20 min"), (86_400, "1 day 0 h")),
        (60 * 60 * 51, "2 days 3 h"),
    ],
)
def test_durations_are_no_finer_than_an_estimate(seconds, words):
    assert rough_duration(seconds) == words
