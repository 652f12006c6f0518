"""Reference scores: what a raw score of an Atari or Procgen game is worth.

Sources: `google-deepmind/dqn_zoo` `atari_data.py` for the random and human scores (the Machado-era table, the same 57
rows in every repository we checked: a human tester, uniformly random actions, up to 30 no-op starts, at most 108,000
frames), `maitchison/Atari-5` for the regression weights, `openai/phasic-policy-gradient` `constants.py` for Procgen.

Caveats. A score depends on its protocol too (sticky actions, life information, ALE version): compare only within one.
VideoPinball's random score is 16256.9 here but 0 in `maitchison/Atari-5`; with it, human − random is only 1411 points,
which moved the 57-game mean of one published PQN from 7.8 to 12.8. DoubleDunk's difference is 2.2 points. So report the
median and the interquartile mean, never a mean alone.
"""

import math
from collections.abc import Mapping
from typing import Literal

from swell.envs.ids import procgen_id

Span = tuple[float, float]
"""The scores that count as 0 and as 1."""

ATARI_RANDOM_AND_HUMAN: dict[str, Span] = {
    "Alien": (227.8, 7127.7),
    "Amidar": (5.8, 1719.5),
    "Assault": (222.4, 742.0),
    "Asterix": (210.0, 8503.3),
    "Asteroids": (719.1, 47388.7),
    "Atlantis": (12850.0, 29028.1),
    "BankHeist": (14.2, 753.1),
    "BattleZone": (2360.0, 37187.5),
    "BeamRider": (363.9, 16926.5),
    "Berzerk": (123.7, 2630.4),
    "Bowling": (23.1, 160.7),
    "Boxing": (0.1, 12.1),
    "Breakout": (1.7, 30.5),
    "Centipede": (2090.9, 12017.0),
    "ChopperCommand": (811.0, 7387.8),
    "CrazyClimber": (10780.5, 35829.4),
    "Defender": (2874.5, 18688.9),
    "DemonAttack": (152.1, 1971.0),
    "DoubleDunk": (-18.6, -16.4),
    "Enduro": (0.0, 860.5),
    "FishingDerby": (-91.7, -38.7),
    "Freeway": (0.0, 29.6),
    "Frostbite": (65.2, 4334.7),
    "Gopher": (257.6, 2412.5),
    "Gravitar": (173.0, 3351.4),
    "Hero": (1027.0, 30826.4),
    "IceHockey": (-11.2, 0.9),
    "Jamesbond": (29.0, 302.8),
    "Kangaroo": (52.0, 3035.0),
    "Krull": (1598.0, 2665.5),
    "KungFuMaster": (258.5, 22736.3),
    "MontezumaRevenge": (0.0, 4753.3),
    "MsPacman": (307.3, 6951.6),
    "NameThisGame": (2292.3, 8049.0),
    "Phoenix": (761.4, 7242.6),
    "Pitfall": (-229.4, 6463.7),
    "Pong": (-20.7, 14.6),
    "PrivateEye": (24.9, 69571.3),
    "Qbert": (163.9, 13455.0),
    "Riverraid": (1338.5, 17118.0),
    "RoadRunner": (11.5, 7845.0),
    "Robotank": (2.2, 11.9),
    "Seaquest": (68.4, 42054.7),
    "Skiing": (-17098.1, -4336.9),
    "Solaris": (1236.3, 12326.7),
    "SpaceInvaders": (148.0, 1668.7),
    "StarGunner": (664.0, 10250.0),
    "Surround": (-10.0, 6.5),
    "Tennis": (-23.8, -8.3),
    "TimePilot": (3568.0, 5229.2),
    "Tutankham": (11.4, 167.6),
    "UpNDown": (533.4, 11693.2),
    "Venture": (0.0, 1187.5),
    "VideoPinball": (16256.9, 17667.9),
    "WizardOfWor": (563.5, 4756.5),
    "YarsRevenge": (3092.9, 54576.9),
    "Zaxxon": (32.5, 9173.3),
}

PROCGEN_HARD: dict[str, Span] = {
    "bigfish": (0.0, 40.0),
    "bossfight": (0.5, 13.0),
    "caveflyer": (2.0, 13.4),
    "chaser": (0.5, 14.2),
    "climber": (1.0, 12.6),
    "coinrun": (5.0, 10.0),
    "dodgeball": (1.5, 19.0),
    "fruitbot": (-0.5, 27.2),
    "heist": (2.0, 10.0),
    "jumper": (1.0, 10.0),
    "leaper": (1.5, 10.0),
    "maze": (4.0, 10.0),
    "miner": (1.5, 20.0),
    "ninja": (2.0, 10.0),
    "plunder": (3.0, 30.0),
    "starpilot": (1.5, 35.0),
}

Subset = Literal["atari5", "atari10"]
REGRESSION_WEIGHTS: dict[Subset, dict[str, float]] = {
    "atari5": {
        "BattleZone": 0.3819751,
        "DoubleDunk": 0.0679099,
        "NameThisGame": 0.3108041,
        "Phoenix": 0.1241262,
        "Qbert": 0.0804852,
    },
    "atari10": {
        "Amidar": 0.0824636,
        "BattleZone": 0.1888201,
        "Bowling": 0.0559033,
        "DoubleDunk": 0.0851915,
        "Frostbite": 0.0691257,
        "KungFuMaster": 0.0986173,
        "NameThisGame": 0.1286970,
        "Phoenix": 0.1643271,
        "Qbert": 0.0592286,
        "Riverraid": 0.0485943,
    },
}
"""They do not sum to 1: 100 % on every game is an estimate of 85.1 (Atari-5) or 91.5 (Atari-10)."""

_ATARI_SPANS = {f"ALE/{game}-v5": span for game, span in ATARI_RANDOM_AND_HUMAN.items()}
_PROCGEN_SPANS = {procgen_id(game, "hard"): span for game, span in PROCGEN_HARD.items()}


def human_normalized(env_id: str, score: float) -> float | None:
    """(score − random) / (human − random), 1 at the level of a human; None outside the 57 games."""
    return _share_of(_ATARI_SPANS.get(env_id), score)


def normalized(env_id: str, score: float) -> float | None:
    """The score on the scale that `normalization_name` names; None for an env without one.

    Procgen has one on hard only, (score − min) / (max − min), because easy levels have other ranges.
    """
    return _share_of(_ATARI_SPANS.get(env_id) or _PROCGEN_SPANS.get(env_id), score)


def normalization_name(env_id: str) -> str | None:
    """What to call the normalised scores of an env; None for an env without them."""
    if env_id in _ATARI_SPANS:
        return "human-normalised"
    return "Procgen-normalised (hard)" if env_id in _PROCGEN_SPANS else None


def atari57_game(env_id: str) -> str | None:
    """The name of the game in the tables here: `ALE/MsPacman-v5` -> `MsPacman`; None outside the 57 games."""
    return env_id.removeprefix("ALE/").removesuffix("-v5") if env_id in _ATARI_SPANS else None


def atari_estimate(subset: Subset, human_normalized_percent: Mapping[str, float]) -> float:
    """The median human-normalised score of all 57 games, in percent, estimated from 5 or 10 of them.

        10^( Σ_g w_g log10(1 + max(0, HNS%_g)) ) − 1

    Takes percent by name of the game (`human_normalized` makes fractions); games outside the subset are ignored. Other
    papers use the same games as a plain set with a plain mean: say which of the two a number is.
    """
    weights = REGRESSION_WEIGHTS[subset]
    missing = [game for game in weights if not math.isfinite(human_normalized_percent.get(game, math.nan))]
    if missing:
        raise ValueError(f"{subset} needs a finite score of every one of its games, missing {', '.join(missing)}")
    logarithms = (weight * math.log10(1 + max(0.0, human_normalized_percent[game])) for game, weight in weights.items())
    return 10 ** sum(logarithms) - 1


def _share_of(span: Span | None, score: float) -> float | None:
    if span is None:
        return None
    zero, one = span
    return (score - zero) / (one - zero)
