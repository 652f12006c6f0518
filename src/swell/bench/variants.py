"""Variants: what is compared. A variant is a preset and a batch rule, with any options of `swell train` changed.

    [LABEL=][PRESET/]RULE[+OPTION=VALUE…]        fixed:32    adaptive:16-128    big=pqn-l/adaptive+learning_rate=1e-4

A control follows the runs of another variant: `ramp-replay`, `shuffled` and `matched-updates` first wait for them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from swell.config.options import as_option
from swell.config.run_config import RunConfig, changed
from swell.config.validation import did_you_mean
from swell.errors import ConfigError
from swell.preset_files import is_preset_file
from swell.presets import PRESETS, make_config
from swell.runs.run_directory import read_json

Control = Literal["ramp-replay", "shuffled", "matched-updates"]
CONTROLS: tuple[Control, ...] = get_args(Control)
REPLAYS: tuple[Control, ...] = ("ramp-replay", "shuffled")
"""Follow a run of another seed: with the same seed and the same horizons they would be the same run."""

RULES = (
    *("fixed:H", "adaptive[:MIN-MAX]", "noise-scale[:MIN-MAX]", "ramp[:A-B-…]"),
    *("ramp-replay[:OF]", "shuffled[:OF]", "matched-updates[:OF]", "epochs-scaled", "minibatch-size"),
)
"""How each rule is written; OF is the label of a variant, by default adaptive. docs/bench.md says what each does."""
RULE_NAMES = tuple(form.partition("[")[0].partition(":")[0] for form in RULES)


@dataclass(frozen=True)
class Variant:
    """One side of a comparison, as it was asked for."""

    label: str
    preset: str
    rule: str
    argument: str
    options: tuple[tuple[str, Any], ...]
    source: str | None = None
    """Label of the variant that a control follows."""

    @property
    def control(self) -> Control | None:
        return next((control for control in CONTROLS if control == self.rule), None)


def parse_variants(texts: Sequence[str], preset: str = "auto") -> list[Variant]:
    """All variants, or one line for each thing that is wrong; `preset` is for those that name none."""
    variants: list[Variant] = []
    faults: list[str] = []
    for text in texts:
        try:
            variants.append(parse_variant(text, preset))
        except ConfigError as error:
            faults += error.faults
    labels = [variant.label for variant in variants]
    faults += [f"variant {label!r} is named twice" for label in dict.fromkeys(labels) if labels.count(label) > 1]
    for variant in variants:
        source = next((other for other in variants if other.label == variant.source), None)
        if variant.source and (source is None or source.control):
            faults.append(
                f"variant {variant.label!r} follows the runs of {variant.source!r}, which is not among the variants; "
                f"add it, or name another: {variant.rule}:LABEL"
            )
    if faults:
        raise ConfigError(*faults)
    return variants


def parse_variant(text: str, preset: str = "auto") -> Variant:
    """`big=pqn-l/adaptive:16-128+learning_rate=1e-4` in its parts."""
    head, *assignments = text.split("+")
    label, equals, body = head.rpartition("=")
    if not equals:
        label, body = text, head
    named, slash, rule = body.rpartition("/")
    preset = named if slash else preset
    rule, _, argument = rule.partition(":")
    if is_preset_file(body) or (not slash and rule in PRESETS):
        preset, rule, argument = body, "preset", ""
    if rule not in (*RULE_NAMES, "preset"):
        hint = did_you_mean(rule, [*RULE_NAMES, *PRESETS])
        raise ConfigError(f"variant {text!r}: unknown rule {rule!r}{hint} (`swell bench --help` lists them)")
    if not label.strip():
        raise ConfigError(f"variant {text!r}: the label before = is empty")
    source = (argument or "adaptive") if rule in CONTROLS else None
    return Variant(label, preset, rule, argument, parse_options(assignments), source)


def parse_options(assignments: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """`learning_rate=1e-4` (or `learning-rate=1e-4`) as a field and its value; RunConfig checks what it may be."""
    pairs: list[tuple[str, Any]] = []
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise ConfigError(f"{assignment!r} must be OPTION=VALUE, for example learning_rate=1e-4")
        name = {"steps": "total_env_steps"}.get(name, name.replace("-", "_"))
        fields = RunConfig.__dataclass_fields__
        if name not in fields:
            raise ConfigError(f"unknown option {name}{did_you_mean(name, list(fields))}")
        is_list = isinstance(fields[name].default, tuple)
        value = tuple(map(_scalar, text.split(","))) if is_list else _scalar(text)
        pairs.append((name, as_option(name, value)))
    return tuple(pairs)


def variant_config(variant: Variant, env: str, shared: dict[str, Any]) -> RunConfig:
    """The config of a variant on an env. `shared` options hold for all variants; the variant's own come after them.

    A control comes as the adaptive batch that it is a control of; `resolve_control` completes it after its source.
    """
    algorithm = {"algorithm": shared["algorithm"]} if "algorithm" in shared else {}
    # Shared options may be those of one scaler among several; a variant's own must be read by its own.
    base = replace(make_config(env, preset=variant.preset, **algorithm), **shared)
    try:
        config = replace(base, label=variant.label, **_rule_fields(variant, base))
        config = changed(config, **dict(variant.options))
    except ConfigError as error:
        raise ConfigError(*(f"variant {variant.label!r} on {env}: {fault}" for fault in error.faults)) from error
    if config.reference_batch is None and config.horizon != base.horizon:
        # The batch that the preset was tuned at stays what the batch-size rules refer to.
        config = replace(config, reference_batch=base.num_envs * base.horizon)
    return config


def resolve_control(variant: Variant, config: RunConfig, source: Path) -> RunConfig:
    """The config of a control, completed by the finished run in `source`."""
    if variant.control in REPLAYS:
        order = "shuffled" if variant.control == "shuffled" else "recorded"
        return replace(config, scaler="ramp", ramp_from=str(source), ramp_order=order)
    summary = read_json(source / "summary.json")
    return replace(config, scaler="fixed", horizon=matching_horizon(config, summary))


def matching_horizon(config: RunConfig, summary: dict[str, Any]) -> int:
    """The fixed horizon whose gradient steps per env step are nearest to those of a finished run.

    Where all are equally near, because minibatches have a fixed size, the one in the middle of the range.
    """
    from swell.batch.scalers import batch_plan  # here, because it imports torch

    wanted = summary["gradient_steps"] / summary["env_steps"]
    middle = (config.min_horizon + config.max_horizon) / 2

    def distance(horizon: int) -> tuple[float, float]:
        plan = batch_plan(replace(config, horizon=horizon), config.num_envs, horizon)
        made = plan.epochs * plan.minibatches / (horizon * config.num_envs)
        return round(abs(made / wanted - 1.0), 3), abs(horizon - middle)

    return min(range(config.min_horizon, config.max_horizon + 1), key=distance)


def _rule_fields(variant: Variant, base: RunConfig) -> dict[str, Any]:
    numbers = _horizons(variant)
    match variant.rule:
        case "preset":
            return {}
        case "fixed":
            return {"scaler": "fixed", "horizon": numbers[0]}
        case "ramp":
            return {"scaler": "ramp", **({"ramp_horizons": numbers} if numbers else {})}
        case "epochs-scaled":
            return {"scaler": "adaptive", "epoch_rule": "scale"}
        case "minibatch-size":
            size = max(1, round(base.num_envs * base.horizon / base.minibatches))
            size = base.minibatch_size if base.minibatch_rule == "size" else size
            return {"scaler": "adaptive", "minibatch_rule": "size", "minibatch_size": size}
        case _:
            scaler = "noise-scale" if variant.rule == "noise-scale" else "adaptive"
            return {"scaler": scaler, **(dict(zip(("min_horizon", "max_horizon"), numbers, strict=False)))}


def _horizons(variant: Variant) -> tuple[int, ...]:
    """The numbers after the colon, as many as the rule takes."""
    if variant.control or variant.rule in ("preset", "epochs-scaled", "minibatch-size"):
        return ()
    texts = variant.argument.split("-") if variant.argument else []
    wanted = {"fixed": (1,), "ramp": range(0, 1000)}.get(variant.rule, (0, 2))
    if len(texts) not in wanted or not all(text.isdigit() and int(text) > 0 for text in texts):
        form = next(name for name in RULES if name.startswith(variant.rule))
        raise ConfigError(f"{variant.rule}:{variant.argument} must look like {form}, with whole numbers of at least 1")
    return tuple(map(int, texts))


def _scalar(text: str) -> Any:
    """A number, true, false or none where it reads like one; else the text itself."""
    try:
        return json.loads({"none": "null", "on": '"on"', "off": '"off"'}.get(text, text))
    except ValueError:
        return text
