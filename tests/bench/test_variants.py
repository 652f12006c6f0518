"""What a variant asks for, and what its controls make of the run that they follow."""

import json

import pytest

from swell.batch.scalers import batch_plan
from swell.bench.variants import (
    matching_horizon,
    parse_options,
    parse_variant,
    parse_variants,
    resolve_control,
    variant_config,
)
from swell.errors import ConfigError
from swell.presets import make_config
from swell.runs.build import ramp_points


def config_of(text, env="CartPole-v1", **shared):
    return variant_config(parse_variant(text), env, shared)


def finished_run(directory, horizons, gradient_steps=100):
    """A run directory with the horizons of its rollouts, as a run leaves it; 10 envs."""
    directory.mkdir(parents=True)
    total = 10 * sum(horizons)
    rows, steps = [], 0
    for index, horizon in enumerate(horizons):
        steps += 10 * horizon
        following = horizons[min(index + 1, len(horizons) - 1)]
        rows.append({"env_steps": steps, "horizon": horizon, "next_horizon": following})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "config.json").write_text(json.dumps({"config": {"total_env_steps": total}}))
    summary = {"status": "done", "env_steps": total, "gradient_steps": gradient_steps}
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def test_a_variant_has_a_label_a_preset_a_rule_and_options():
    variant = parse_variant("big=pqn-l/adaptive:16-128+learning-rate=1e-4+hidden=64,32")
    assert (variant.label, variant.preset, variant.rule, variant.argument) == ("big", "pqn-l", "adaptive", "16-128")
    assert dict(variant.options) == {"learning_rate": 1e-4, "hidden": (64, 32)}


def test_a_variant_without_a_label_is_called_what_it_is():
    assert parse_variant("fixed:16+epochs=4").label == "fixed:16+epochs=4"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("fixed:16", {"scaler": "fixed", "horizon": 16}),
        ("adaptive", {"scaler": "adaptive", "min_horizon": 16, "max_horizon": 64}),
        ("adaptive:8-128", {"scaler": "adaptive", "min_horizon": 8, "max_horizon": 128}),
        ("noise-scale:8-128", {"scaler": "noise-scale", "min_horizon": 8, "max_horizon": 128}),
        ("ramp:16-32-64", {"scaler": "ramp", "ramp_horizons": (16, 32, 64)}),
        ("epochs-scaled", {"scaler": "adaptive", "epoch_rule": "scale"}),
        ("ppo-ewma", {"preset": "ppo-ewma", "algorithm": "ppo-ewma", "scaler": "fixed"}),
        ("ppo-classic/adaptive", {"preset": "ppo-classic", "algorithm": "ppo", "scaler": "adaptive"}),
        ("pqn-l/fixed:32", {"network": "pqn-l", "scaler": "fixed"}),
    ],
)
def test_rules_set_the_batch(text, fields):
    config = config_of(text)
    assert {name: getattr(config, name) for name in fields} == fields and config.label == text


def test_minibatches_of_a_fixed_size_have_the_size_of_the_reference_horizon():
    config = config_of("minatar-abs/minibatch-size", "MinAtar/Breakout-v1")
    assert (config.minibatch_rule, config.minibatch_size) == ("size", 128 * 32 // 32)


def test_a_variant_overrules_what_all_share():
    assert config_of("fixed:16+epochs=4", epochs=3, minibatches=5).epochs == 4
    assert config_of("fixed:16+epochs=4", epochs=3, minibatches=5).minibatches == 5


def test_what_all_share_may_be_an_option_of_one_scaler_among_them():
    for text, scaler in [("ppo-classic/adaptive", "adaptive"), ("ppo-classic/fixed:16", "fixed"), ("ramp", "ramp")]:
        config = config_of(text, min_horizon=8)
        assert (config.scaler, config.min_horizon) == (scaler, 8)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "fixed:16+min_horizon=8",
            "min_horizon is not read by the fixed scaler; it belongs to adaptive and noise-scale",
        ),
        (
            "adaptive+clip_range=0.1",
            "clip_range is not read by pqn, got 0.1; it belongs to ppo, ppo-ewma, ppg and ppg-ewma",
        ),
        ("ppo-classic+epsilon_start=1.0", "epsilon_start is not read by ppo; it belongs to pqn"),
    ],
)
def test_an_option_of_a_variant_that_it_does_not_read_is_refused_in_one_line(text, line):
    with pytest.raises(ConfigError) as refusal:
        config_of(text)
    assert list(refusal.value.faults) == [f"variant {text!r} on CartPole-v1: {line}"]


def test_an_option_that_all_share_must_be_read_by_the_algorithm_of_each():
    assert config_of("ppo-classic", clip_range=0.1).clip_range == 0.1
    assert config_of("adaptive", algorithm="ppo", clip_range=0.1).preset == "ppo-classic"
    with pytest.raises(ConfigError, match="clip_range is not read by pqn, got"):
        config_of("adaptive", clip_range=0.1)


def test_the_batch_of_the_preset_stays_the_reference_of_the_batch_size_rules():
    base = make_config("CartPole-v1", preset="ppo-ewma")
    config = config_of("ppo-ewma/fixed:512+invariance=on")
    assert config.horizon == 512 and config.reference_batch == base.num_envs * base.horizon


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["fixd:16"], ["fixd", "did you mean fixed"]),
        (["adaptive", "adaptive"], ["named twice"]),
        (["fixed:16", "ramp-replay"], ["ramp-replay", "'adaptive'", "not among"]),
        (["adaptive", "shuffled:fixed:16"], ["shuffled", "'fixed:16'", "not among"]),
        (["=fixed:16"], ["label"]),
        (["adaptive+epochs"], ["OPTION=VALUE"]),
        (["adaptive+epoch=3"], ["unknown option epoch", "did you mean epochs"]),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(texts, words):
    with pytest.raises(ConfigError) as refusal:
        parse_variants(texts)
    assert all(word in str(refusal.value) for word in words) and len(refusal.value.faults) == 1


@pytest.mark.parametrize("text", ["fixed", "fixed:0", "fixed:16-32", "adaptive:16", "adaptive:a-b", "ramp:16-x"])
def test_numbers_that_a_rule_cannot_take_are_refused_with_its_form(text):
    with pytest.raises(ConfigError, match="must look like"):
        config_of(text)


def test_all_faults_are_named():
    with pytest.raises(ConfigError) as refusal:
        parse_variants(["fixd:16", "adaptive+foo=1"])
    assert len(refusal.value.faults) == 2


def test_values_read_as_what_they_look_like():
    given = ["target_kl=none", "clip_rewards=true", "seed=3", "discount=0.9", "activation=tanh", "invariance=on"]
    values = dict(parse_options(given))
    assert values == {
        **{"target_kl": None, "clip_rewards": True, "seed": 3, "discount": 0.9},
        **{"activation": "tanh", "invariance": "on"},
    }


def test_a_replay_repeats_the_horizons_of_its_source(tmp_path):
    source = finished_run(tmp_path / "adaptive", [16, 16, 20, 24])
    config = resolve_control(parse_variant("ramp-replay"), config_of("ramp-replay"), source)
    assert (config.scaler, config.ramp_from, config.ramp_order) == ("ramp", str(source), "recorded")
    starts = [0.0, 16 / 76, 32 / 76, 52 / 76]
    points = ramp_points(config)
    assert [points[0], *points[2::2]] == [pytest.approx(pair) for pair in zip(starts, [16, 16, 20, 24], strict=True)]


def test_shuffled_horizons_are_the_same_ones_in_another_order(tmp_path):
    horizons = list(range(16, 64))
    source = finished_run(tmp_path / "adaptive", horizons)
    config = resolve_control(parse_variant("shuffled"), config_of("shuffled"), source)
    points = ramp_points(config)
    played = [horizon for _, horizon in [points[0], *points[2::2]]]
    starts = [progress for progress, _ in [points[0], *points[2::2]]]
    assert sorted(played) == horizons and played != horizons
    lengths = [after - before for before, after in zip(starts, [*starts[1:], 1.0], strict=True)]
    assert lengths == pytest.approx([horizon / sum(horizons) for horizon in played])


def test_another_seed_shuffles_differently(tmp_path):
    source = finished_run(tmp_path / "adaptive", list(range(16, 64)))
    config = resolve_control(parse_variant("shuffled"), config_of("shuffled"), source)
    other = resolve_control(parse_variant("shuffled"), config_of("shuffled", seed=2), source)
    assert ramp_points(config) == ramp_points(config) != ramp_points(other)


def test_matched_updates_makes_as_many_gradient_steps(tmp_path):
    shared = {"minibatch_rule": "count", "minibatches": 8, "epochs": 2, "num_envs": 10}
    per_step = 8 * 2 / (10 * 23)  # of a fixed horizon of 23
    source = finished_run(tmp_path / "adaptive", [40] * 50, gradient_steps=round(per_step * 10 * 40 * 50))
    config = resolve_control(parse_variant("matched-updates"), config_of("matched-updates", **shared), source)
    assert (config.scaler, config.horizon) == ("fixed", 23)
    plan = batch_plan(config, config.num_envs, config.horizon)
    assert plan.epochs * plan.minibatches / (10 * plan.horizon) == pytest.approx(per_step)


def test_where_every_horizon_matches_the_middle_one_is_taken():
    config = config_of("matched-updates", minibatch_rule="size", minibatch_size=32, num_envs=32, epochs=1)
    assert matching_horizon(config, {"gradient_steps": 100, "env_steps": 3200}) == 40
