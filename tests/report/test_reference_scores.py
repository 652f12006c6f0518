"""Reference scores: the tables hold what their sources hold, and the formulas give the published numbers."""

import math

import pytest
from hypothesis import given, strategies as st

from swell.envs.ids import ATARI_GAMES, PROCGEN_GAMES, atari_id, procgen_id
from swell.report.reference_scores import (
    ATARI_RANDOM_AND_HUMAN,
    PROCGEN_HARD,
    REGRESSION_WEIGHTS,
    atari57_game,
    atari_estimate,
    human_normalized,
    normalization_name,
    normalized,
)

# Human-normalised percent of a published PQN at 200M frames.
PUBLISHED = {
    "Amidar": 62.829,
    "BattleZone": 120.069,
    "Bowling": 5.015,
    "DoubleDunk": 764.545,
    "Frostbite": 154.323,
    "KungFuMaster": 141.168,
    "NameThisGame": 226.461,
    "Phoenix": 2733.161,
    "Qbert": 163.712,
    "Riverraid": 126.813,
}
# The mean returns at the end of the public curves of openai/phasic-policy-gradient: (PPO, PPG).
PUBLISHED_PROCGEN = {
    "coinrun": (8.69, 9.26),
    "starpilot": (20.2, 23.3),
    "caveflyer": (8.62, 11.20),
    "dodgeball": (6.80, 12.70),
    "fruitbot": (22.3, 25.1),
    "chaser": (6.04, 9.33),
    "miner": (10.3, 12.4),
    "jumper": (6.07, 6.96),
    "leaper": (7.77, 9.36),
    "maze": (7.03, 9.10),
    "bigfish": (18.4, 33.4),
    "heist": (3.95, 6.22),
    "climber": (8.80, 10.83),
    "plunder": (14.4, 17.0),
    "ninja": (9.31, 9.69),
    "bossfight": (11.17, 11.50),
}


def test_every_game_of_the_57_has_an_env_here():
    ids = {f"ALE/{game}-v5" for game in ATARI_RANDOM_AND_HUMAN}
    assert len(ids) == 57
    assert ids <= set(map(atari_id, ATARI_GAMES))


def test_the_atari_table_adds_up_to_what_its_source_does():
    """Weighted by the row too, so that two rows cannot be swapped; sums taken from the source with awk."""
    randoms, humans = zip(*ATARI_RANDOM_AND_HUMAN.values(), strict=True)
    assert math.fsum(randoms) == pytest.approx(50864.9, abs=0.01)
    assert math.fsum(humans) == pytest.approx(606494.2, abs=0.01)
    assert math.fsum(row * score for row, score in enumerate(randoms, start=2)) == pytest.approx(1317419.1, abs=0.01)
    assert math.fsum(row * score for row, score in enumerate(humans, start=2)) == pytest.approx(18478278.5, abs=0.01)
    assert list(ATARI_RANDOM_AND_HUMAN) == sorted(ATARI_RANDOM_AND_HUMAN)


@pytest.mark.parametrize(
    ("game", "difference"),
    [("Amidar", 1713.7), ("BattleZone", 34827.5), ("DoubleDunk", 2.2), ("Qbert", 13291.1), ("VideoPinball", 1411.0)],
)
def test_one_human_is_this_many_points(game, difference):
    random, human = ATARI_RANDOM_AND_HUMAN[game]
    assert human - random == pytest.approx(difference)
    assert human_normalized(f"ALE/{game}-v5", random) == 0.0
    assert human_normalized(f"ALE/{game}-v5", human) == 1.0
    assert human_normalized(f"ALE/{game}-v5", random + 3 * difference) == pytest.approx(3.0)


def test_a_score_below_random_is_negative():
    assert human_normalized("ALE/Pong-v5", -21.0) == pytest.approx(-0.3 / 35.3)


def test_every_procgen_game_has_a_hard_range_and_no_easy_one():
    assert set(PROCGEN_HARD) == set(PROCGEN_GAMES)
    for game, (low, high) in PROCGEN_HARD.items():
        assert normalized(procgen_id(game, "hard"), low) == 0.0
        assert normalized(procgen_id(game, "hard"), high) == 1.0
        assert normalized(procgen_id(game, "easy"), high) is None
        assert normalization_name(procgen_id(game, "easy")) is None


@pytest.mark.parametrize(("algorithm", "mean"), [(0, 0.579), (1, 0.757)])
def test_the_procgen_ranges_give_the_published_averages(algorithm, mean):
    scores = [normalized(f"Procgen/{game.title()}Hard-v0", raw[algorithm]) for game, raw in PUBLISHED_PROCGEN.items()]
    assert sum(scores) / 16 == pytest.approx(mean, abs=0.001)


@pytest.mark.parametrize(
    ("env_id", "name", "game"),
    [
        ("ALE/MsPacman-v5", "human-normalised", "MsPacman"),
        ("ALE/UpNDown-v5", "human-normalised", "UpNDown"),
        ("Procgen/CoinrunHard-v0", "Procgen-normalised (hard)", None),
        ("ALE/Tetris-v5", None, None),
        ("MinAtar/Breakout-v1", None, None),
        ("CartPole-v1", None, None),
        ("Breakout", None, None),
        ("", None, None),
    ],
)
def test_an_env_is_named_after_its_own_reference(env_id, name, game):
    assert normalization_name(env_id) == name
    assert atari57_game(env_id) == game
    assert (normalized(env_id, 7.0) is None) == (name is None)


@given(st.floats(-1e6, 1e6))
def test_normalized_takes_the_scale_of_the_family(score):
    assert normalized("ALE/Boxing-v5", score) == pytest.approx((score - 0.1) / 12.0)
    assert normalized("Procgen/MazeHard-v0", score) == pytest.approx((score - 4) / 6)


@pytest.mark.parametrize(("subset", "estimate"), [("atari5", 212.34), ("atari10", 197.13)])
def test_the_estimators_give_the_worked_example(subset, estimate):
    assert atari_estimate(subset, PUBLISHED) == pytest.approx(estimate, abs=0.005)


@pytest.mark.parametrize(("subset", "estimate"), [("atari5", 85.1), ("atari10", 91.5)])
def test_human_level_everywhere_is_not_estimated_as_100_percent(subset, estimate):
    assert atari_estimate(subset, dict.fromkeys(ATARI_RANDOM_AND_HUMAN, 100.0)) == pytest.approx(estimate, abs=0.05)


def test_the_weights_sum_to_the_published_totals():
    assert sum(REGRESSION_WEIGHTS["atari5"].values()) == pytest.approx(0.9653005)
    assert sum(REGRESSION_WEIGHTS["atari10"].values()) == pytest.approx(0.9809685)
    assert set(REGRESSION_WEIGHTS["atari5"]) < set(REGRESSION_WEIGHTS["atari10"]) < set(ATARI_RANDOM_AND_HUMAN)


def test_a_score_below_random_counts_as_random():
    assert atari_estimate("atari5", dict.fromkeys(PUBLISHED, -40.0)) == 0.0
    assert atari_estimate("atari5", PUBLISHED | {"Qbert": -5.0}) == atari_estimate("atari5", PUBLISHED | {"Qbert": 0.0})


def test_an_estimate_without_all_its_games_names_the_missing():
    partial = {game: percent for game, percent in PUBLISHED.items() if game not in ("Bowling", "Phoenix")}
    with pytest.raises(ValueError, match=r"missing Bowling, Phoenix$"):
        atari_estimate("atari10", partial)
    with pytest.raises(ValueError, match=r"missing Phoenix$"):
        atari_estimate("atari5", partial)
    with pytest.raises(ValueError, match=r"missing Qbert$"):
        atari_estimate("atari5", PUBLISHED | {"Qbert": math.nan})
