"""Sections on what came out: the verdict, each variant, aggregate and raw scores, profile, Atari estimates."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from swell.report import curves, figures
from swell.report.page import (
    Html,
    Page,
    bdi,
    first_upper,
    format_duration,
    format_number,
    format_share,
    interval_cell,
    join,
    plot_grid,
    remark,
    scroll_table,
    swatch,
    tag,
)
from swell.report.records import RunRecord
from swell.report.reference_scores import REGRESSION_WEIGHTS, Subset, atari57_game, atari_estimate, human_normalized
from swell.report.scoring import Scores
from swell.report.stats import (
    Interval,
    Statistic,
    bootstrap,
    bootstrap_mean,
    interquartile_mean,
    mean_score,
    median_score,
    optimality_gap,
    resampled,
)
from swell.report.verdict import Verdict
from swell.report.words import Kind

MARKS = {"beats": "▲", "loses": "▼", "undecided": "≈", "too few": "?", "apart": "–"}
AGGREGATES: dict[str, Statistic] = {
    "Interquartile mean": interquartile_mean,
    "Median": median_score,
    "Mean": mean_score,
    "Optimality gap": optimality_gap,
}
ESTIMATE_RESAMPLES = 500


def verdict_section(page: Page) -> Html:
    """What came out, how sure that is, and what to read with care."""
    verdict = page.verdict
    parts = [
        tag("h2", "Verdict" if len(page.labels) > 1 else "Summary"),
        tag("p", verdict.headline, class_="headline"),
    ]
    if verdict.basis:
        parts.append(tag("p", verdict.basis, class_="note"))
    if len(page.records) == 1:
        parts.append(_tiles(page.records[0]))
    parts += [_findings(verdict), _cautions(verdict)]
    if len(page.records) > 1:
        parts.append(_variant_tables(page))
    return join(parts)


def _findings(verdict: Verdict) -> Html:
    items: list[Html] = []
    for finding in verdict.findings:
        notes = join(tag("span", note, class_="aside") for note in finding.notes)
        text = tag("div", join([tag("span", finding.sentence), notes]))
        mark = tag("span", MARKS[finding.outcome], class_="mark", aria_hidden="true")
        items.append(tag("li", join([mark, text]), class_=finding.outcome.replace(" ", "-")))
    return tag("ul", join(items), class_="findings") if items else Html()


def _cautions(verdict: Verdict) -> Html:
    if not verdict.cautions:
        return Html()
    items = join(tag("li", caution) for caution in verdict.cautions)
    return tag("div", join([tag("h3", "Read with care"), tag("ul", items)]), class_="cautions")


def _tiles(record: RunRecord) -> Html:
    kind, words = record.kind, record.kind.words
    batch = record.log.batch[np.isfinite(record.log.batch)]
    facts = [
        ("Status", record.status),
        (first_upper(kind.evaluation), format_number(record.score("evaluation_score"))),
        (first_upper(kind.training), format_number(record.score("training_score"))),
        (first_upper(words.clock), format_number(record.clock)),
        (first_upper(words.updates), format_number(record.gradient_steps)),
        (f"{first_upper(words.batch)} ({kind.batch_unit})", f"{batch[0]:.0f} → {batch[-1]:.0f}" if batch.size else ""),
        ("Wall-clock", format_duration(record.wall_seconds)),
        (f"{first_upper(words.clock)} per second", format_number(record.speed)),
        ("Peak memory", f"{record.peak_memory_mb:,.0f} MiB" if record.peak_memory_mb else ""),
    ]
    known = [(name, value) for name, value in facts if value not in ("", "–")]
    tiles = (tag("div", join([tag("dt", name), tag("dd", value)])) for name, value in known)
    return tag("dl", join(tiles), class_="tiles")


def _variant_tables(page: Page) -> Html:
    """One for each kind of run: they are counted on different clocks."""
    tables = [table for kind in page.kinds if (table := _variant_table(page, kind))]
    note = remark("Last four columns: medians over the runs of a variant.")
    return join([*tables, note]) if tables else Html()


def _variant_table(page: Page, kind: Kind) -> Html:
    rows: list[list[str]] = []
    for variant, label in enumerate(page.labels):
        runs = [run for run in page.runs_of(label) if run.kind is kind]
        if not runs:
            continue
        rows.append(
            [
                join([swatch(variant), " ", bdi(label)]),
                f"{len(runs)}",
                f"{sum(run.finished for run in runs)}",
                format_number(_median(run.clock for run in runs)),
                format_number(_median(run.gradient_steps for run in runs)),
                format_duration(_median(run.wall_seconds for run in runs)),
                format_number(_median(run.speed for run in runs)),
            ]
        )
    clock, updates = first_upper(kind.words.clock), first_upper(kind.words.updates)
    head = ["Variant", "Runs", "Finished", clock, updates, "Wall-clock", f"{clock} per second"]
    return scroll_table(head, rows, numbers_from=1) if rows else Html()


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def aggregate_section(page: Page) -> Html:
    """One number a variant over all envs, and the raw scores behind it."""
    scores = page.comparable()
    if len(page.records) < 2 or not page.scoring.raw:
        return Html()
    if len(page.labels) == 1 and not page.scoring.by_reference:
        return _raw_scores(page)  # between its own worst and best run, a variant's score says nothing
    if not scores:
        nothing = f"No {page.words.place} was finished by every variant, so nothing can be aggregated."
        return join([remark(nothing), _raw_scores(page)])
    envs = sorted(next(iter(scores.values())))
    intervals = {
        name: {label: bootstrap(statistic, by_env) for label, by_env in scores.items()}
        for name, statistic in AGGREGATES.items()
    }
    plots = join(
        page.plot(
            figures.interval_dots(values, page.labels, page.score_name),
            f"{name} (lower is better)" if name == "Optimality gap" else name,
        )
        for name, values in intervals.items()
    )
    rows = [
        [bdi(label), *(_aggregate_cell(intervals[name][label], by_env) for name in AGGREGATES)]
        for label, by_env in scores.items()
    ]
    where = f"the {len(envs)} {page.words.place}s that every variant finished" if len(envs) > 1 else envs[0]
    note = (
        f"Over {where}, {page.scoring.scale}: {page.scoring.explanation}. Dots are values, lines 95 % stratified "
        "bootstrap intervals over runs. The interquartile mean and the optimality gap (how far runs stay below 1) pool "
        f"all runs; mean and median are taken over {page.words.place}s."
    )
    table = scroll_table(["Variant", *AGGREGATES], rows, numbers_from=1)
    return join([remark(note), plot_grid(plots, "pair"), table, _raw_scores(page)])


def _aggregate_cell(interval: Interval, by_env: Scores) -> str:
    """Without an interval where no env has two runs: there is nothing to resample."""
    return interval_cell(interval, format_share) if max(map(len, by_env.values())) > 1 else format_share(interval.value)


def _raw_scores(page: Page) -> Html:
    """Raw scores by env: as dots too where there is one env only."""
    raw = page.scoring.raw
    scored = [label for label in page.labels if label in raw]
    rows = [
        [bdi(env), *(_raw_cell(raw[label].get(env, [])) for label in scored)]
        for env in page.envs
        if any(env in raw[label] for label in scored)
    ]
    parts = [
        tag("h3", "Raw scores"),
        remark(f"Means over runs of the {page.scoring.field_name}, 95 % intervals, numbers of runs."),
    ]
    if len(rows) == 1:
        env = next(env for env in page.envs if any(env in raw[label] for label in scored))
        figure = figures.score_dots(raw, page.labels, env, page.scoring.field_name)
        parts.append(plot_grid(page.plot(figure, "Every finished run"), "wide"))
    parts.append(scroll_table([first_upper(page.words.place), *scored], rows, numbers_from=1))
    return join(parts)


def _raw_cell(values: Sequence[float]) -> Html:
    if not values:
        return Html("–")
    mean = interval_cell(bootstrap_mean(values), format_number) if len(values) > 1 else format_number(values[0])
    return join([mean, tag("span", f" · {len(values)}", class_="count")])


def profile_section(page: Page) -> Html:
    """How many runs of a variant reach a score."""
    scores = page.comparable()
    runs = sum(len(values) for by_env in scores.values() for values in by_env.values())
    if len(scores) < 2 or runs < 2 * len(scores):
        return Html()
    note = "The share of runs whose score is above the value on the x axis: the higher a line, the better."
    return join([remark(note), plot_grid(page.plot(curves.profile(scores, page.labels, page.score_name)), "wide")])


def atari_section(page: Page) -> Html:
    """What a few games say about all 57."""
    rows: list[list[str]] = []
    subsets: list[Subset] = ["atari5", "atari10"]
    for label in page.labels:
        by_game = {atari57_game(env): (env, values) for env, values in page.scoring.raw.get(label, {}).items()}
        cells = [_estimate_cell(subset, by_game) for subset in subsets]
        if any(cells):
            rows.append([bdi(label), *(cell or "–" for cell in cells)])
    if not rows:
        return Html()
    note = (
        "Median human-normalised score of all 57 games in percent, estimated from 5 or 10 of them by regression "
        "(maitchison/Atari-5). These are not means of the games; human level on every game reads 85.1 and 91.5."
    )
    return join([remark(note), scroll_table(["Variant", "Atari-5", "Atari-10"], rows, numbers_from=1)])


def _estimate_cell(subset: Subset, by_game: Mapping[str | None, tuple[str, list[float]]]) -> Html:
    games = list(REGRESSION_WEIGHTS[subset])
    if not set(games) <= by_game.keys():
        return Html()
    percent = {
        game: [100 * (human_normalized(by_game[game][0], score) or 0.0) for score in by_game[game][1]] for game in games
    }
    value = atari_estimate(subset, {game: float(np.mean(values)) for game, values in percent.items()})
    draws = resampled(percent, np.random.default_rng(0), ESTIMATE_RESAMPLES)
    means = {game: values.mean(axis=1) for game, values in draws.items()}
    estimates = [
        atari_estimate(subset, {game: float(values[number]) for game, values in means.items()})
        for number in range(ESTIMATE_RESAMPLES)
    ]
    low, high = np.quantile(estimates, (0.025, 0.975))
    return interval_cell(Interval(value, float(low), float(high)), format_number)
