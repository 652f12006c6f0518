"""Which runs a benchmark has, and which wait for which."""

import pytest

from swell.bench.plan import make_plan
from swell.bench.suites import SUITES, resolve_envs
from swell.envs.ids import ATARI_GAMES, atari_id
from swell.errors import ConfigError
from swell.report.reference_scores import ATARI_RANDOM_AND_HUMAN

ENVS = ["CartPole-v1", "Acrobot-v1"]


def test_suites_have_the_sizes_of_their_names_and_only_known_games():
    known = {atari_id(game) for game in ATARI_GAMES}
    assert {name: len(SUITES[name]) for name in ("atari57", "atari10", "atari5")} == {
        "atari57": 57,
        "atari10": 10,
        "atari5": 5,
    }
    assert all(set(SUITES[name]) <= known for name in ("atari57", "atari10", "atari5"))
    assert set(SUITES["atari5"]) < set(SUITES["atari10"]) < set(SUITES["atari57"])
    assert len(ATARI_RANDOM_AND_HUMAN) == 57 and len(SUITES["procgen"]) == 16 and len(SUITES["minatar"]) == 5


def test_suites_and_ids_can_be_mixed_and_count_once():
    assert resolve_envs(["CartPole-v1", "minatar", "minatar/breakout"]) == ["CartPole-v1", *SUITES["minatar"]]


def test_every_unknown_env_is_named_with_the_suites():
    with pytest.raises(ConfigError) as refusal:
        resolve_envs(["CartPoll-v1", "nosuite"])
    assert len(refusal.value.faults) == 2
    assert "CartPole-v1" in refusal.value.faults[0] and "atari57" in refusal.value.faults[1]


def test_a_plan_is_every_env_variant_and_seed():
    runs = make_plan(ENVS, ["fixed:16", "adaptive"], seeds=3, first_seed=4, shared={"total_env_steps": 1000})
    assert len({run.name for run in runs}) == len(runs) == 12
    assert {(run.env, run.config.label, run.seed) for run in runs} == {
        (env, label, seed) for env in ENVS for label in ("fixed:16", "adaptive") for seed in (4, 5, 6)
    }
    assert all(run.config.total_env_steps == 1000 for run in runs)
    assert runs[0].name == "CartPole-v1/fixed-16/seed-4"


def test_seeds_come_one_after_another_so_that_an_early_stop_is_a_fair_sample():
    runs = make_plan(ENVS, ["matched-updates", "adaptive"], seeds=2)
    assert [run.seed for run in runs] == [1, 1, 1, 1, 2, 2, 2, 2]
    names = [run.name for run in runs]
    followers = [run for run in runs if run.source and run.config.label == "matched-updates"]
    assert all(names.index(run.source) < names.index(run.name) for run in followers) and len(followers) == 4


def test_a_replay_follows_another_seed_and_matched_updates_its_own():
    runs = make_plan(["CartPole-v1"], ["adaptive", "ramp-replay", "shuffled", "matched-updates"], seeds=3)
    sources = {(run.config.label, run.seed): run.source for run in runs}
    for label in ("ramp-replay", "shuffled"):
        assert [sources[label, seed][-1] for seed in (1, 2, 3)] == ["2", "3", "1"]
    assert [sources["matched-updates", seed] for seed in (1, 2)] == [
        f"CartPole-v1/adaptive/seed-{seed}" for seed in (1, 2)
    ]
    assert sources["adaptive", 1] is None


def test_a_replay_of_the_only_seed_is_refused():
    with pytest.raises(ConfigError, match="at least 2 seeds"):
        make_plan(["CartPole-v1"], ["adaptive", "ramp-replay"], seeds=1)


def test_labels_that_would_share_a_folder_are_refused():
    with pytest.raises(ConfigError, match="would share the folder"):
        make_plan(["CartPole-v1"], ["fixed:16", "fixed-16=fixed:17"], seeds=1)


def test_names_stay_inside_the_benchmark(tmp_path):
    runs = make_plan(["CartPole-v1"], ["../../evil=fixed:16", "<img src=x onerror=alert(1)>=fixed:17"], seeds=1)
    for run in runs:
        assert tmp_path in run.directory(tmp_path).resolve().parents and tmp_path in run.log(tmp_path).resolve().parents
