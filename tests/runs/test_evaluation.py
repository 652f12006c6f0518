"""Evaluations end: by the length of episodes, by what the training was worth, and when they are told to."""

import os
import signal

import gymnasium
import pytest
from kill import outcome, same, small_config
from registered_envs import register_all

from swell.collect.collector import Played
from swell.collect.episodes import EpisodeStatistics
from swell.errors import EnvironmentFailedError
from swell.presets import make_config
from swell.runs import agent, evaluation
from swell.runs.evaluation import episodes_to_play, longest_episode
from swell.runs.interrupt import InterruptedRunError
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import read_json
from swell.runs.start import resume, run

if "SwellTest/Counting-v0" not in gymnasium.registry:
    register_all()


def of_length(*lengths):
    statistics = EpisodeStatistics(1)
    statistics.lengths.extend(lengths)
    return statistics


@pytest.mark.parametrize(
    ("total", "lengths", "episodes"),
    [
        (200_000, (150, 250), 100),  # 100 of them are 20,000 steps
        (4_000, (100, 100), 40),
        (4_000, (1000,), 10),  # never fewer
        (4_000, (), 10),  # 8 envs, none done after 500 steps: 8 at most
        (100, (1, 1), 100),
    ],
)
def test_an_evaluation_takes_no_more_steps_than_the_training(total, lengths, episodes):
    config = make_config("CartPole-v1", total_env_steps=total, num_envs=8)
    assert episodes_to_play(config, of_length(*lengths), total) == episodes


def test_as_many_episodes_are_played_as_somebody_asks_for():
    config = make_config("CartPole-v1", total_env_steps=100, evaluation_episodes=123)
    assert episodes_to_play(config, of_length(1000), 100) == 123


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({}, 27_000),
        ({"max_episode_steps": 500}, 27_000),
        ({"max_episode_steps": 50_000}, 50_000),
        ({"max_episode_steps": 50_000, "max_evaluation_steps": 600}, 600),
    ],
)
def test_no_time_limit_that_somebody_sets_is_cut_short_unasked(fields, steps):
    assert longest_episode(make_config("CartPole-v1", **fields)) == steps


def test_episodes_that_were_cut_off_are_counted_wherever_the_score_is(tmp_path, capsys):
    config = small_config(total_env_steps=400, evaluate_every=0, max_evaluation_steps=3)
    summary = run(config, tmp_path / "run")
    assert "over 4 episodes, 4 of them cut off, at " in capsys.readouterr().out
    assert (summary["evaluation_episodes"], summary["evaluation_cut_episodes"]) == (4, 4)
    (row,) = read_jsonl(tmp_path / "run" / "evaluations.jsonl")
    assert (row["cut_episodes"], row["returns"]) == (4, [3.0] * 4)
    assert agent.evaluate(tmp_path / "run", episodes=2)["cut_episodes"] == 2


def test_a_run_says_that_it_plays_few_episodes(tmp_path, capsys):
    run(small_config(total_env_steps=400, evaluate_every=200, evaluation_episodes=None), tmp_path / "run")
    assert capsys.readouterr().out.count("may take more steps than the training; --evaluation-episodes asks") == 1


def stop_in_evaluation(monkeypatch, module, number, evaluation_number=1):
    """Sends a signal to this process in the fifth step of one of its evaluations."""
    original, begun = module.greedy_episodes, []

    def played(act, config, device, episodes, seed, told) -> Played:
        begun.append(seed)

        def told_and_stopped(finished, steps):
            if len(begun) == evaluation_number and steps == 5:
                os.kill(os.getpid(), number)
            told(finished, steps)

        return original(act, config, device, episodes, seed, told_and_stopped)

    monkeypatch.setattr(module, "greedy_episodes", played)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("which", [1, 2, 3], ids=["first", "second", "at-the-end"])
def test_a_run_stopped_in_an_evaluation_plays_it_again_and_ends_like_an_uninterrupted_one(
    tmp_path, monkeypatch, number, code, which
):
    config = small_config()  # evaluates after 2,500 and 5,000 of 6,000 steps, and at the end
    run(config, tmp_path / "whole", quiet=True)
    with monkeypatch.context() as patched:
        stop_in_evaluation(patched, evaluation, number, which)
        with pytest.raises(InterruptedRunError, match=r"stopped in the evaluation at .*swell resume") as stopped:
            run(config, tmp_path / "run", quiet=True)
    assert stopped.value.exit_code == code
    assert read_json(tmp_path / "run" / "summary.json")["status"] == "interrupted"
    assert len(read_jsonl(tmp_path / "run" / "evaluations.jsonl")) == which - 1
    resume(tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), outcome(tmp_path / "whole"))


def test_scoring_a_run_can_be_stopped(tmp_path, monkeypatch):
    run(small_config(total_env_steps=200, evaluation_episodes=0, evaluate_every=0), tmp_path / "run", quiet=True)
    stop_in_evaluation(monkeypatch, agent, signal.SIGTERM)
    with pytest.raises(InterruptedRunError, match="of 7 episodes: nothing was scored") as stopped:
        agent.evaluate(tmp_path / "run", episodes=7)
    assert stopped.value.exit_code == 143


def test_an_env_that_hangs_in_an_evaluation_is_found(tmp_path):
    # Each env of the training plays 10 steps, one of the evaluation 30 episodes of four steps, on average.
    fields = {"env_kwargs": ("at_step=100",), "evaluate_every": 0, "evaluation_episodes": 3000, "total_env_steps": 80}
    config = small_config("SwellTest/Faulty_hang-v0", env_timeout=0.5, **fields)
    with pytest.raises(EnvironmentFailedError, match=r"at step 100: no answer for 0\.5 s, in step"):
        run(config, tmp_path / "run", quiet=True)
    assert read_json(tmp_path / "run" / "summary.json")["status"] == "failed"
