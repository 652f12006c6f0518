"""Sections on how well each variant did: aggregates, raw scores, performance profile, Atari estimates."""

from collections.abc import Mapping, Sequence

import numpy as np

from swell.report import figures
from swell.report.markup import (
    Html,
    bdi,
    interval_cell,
    join,
    number_words,
    plot_grid,
    remark,
    scroll_table,
    share_words,
    tag,
)
from swell.report.page import Page
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

AGGREGATES: dict[str, Statistic] = {
    "Interquartile mean": interquartile_mean,
    "Median": median_score,
    "Mean": mean_score,
    "Optimality gap": optimality_gap,
}
ESTIMATE_RESAMPLES = 500


def aggregate_section(page: Page) -> Html:
    """One number a variant over all envs, and the raw scores behind it."""
    scores = page.comparable()
    if len(page.records) < 2 or not page.scoring.raw:
        return Html()
    if len(page.labels) == 1 and not page.scoring.by_reference:
        return _raw_scores(page)  # between its own worst and best run, a variant's score says nothing
    if not scores:
        return join([remark("No env was finished by every variant, so nothing can be aggregated."), _raw_scores(page)])
    envs = sorted(next(iter(scores.values())))
    intervals = {
        name: {label: bootstrap(statistic, by_env) for label, by_env in scores.items()}
        for name, statistic in AGGREGATES.items()
    }
    plots = join(
        page.plot(figures.interval_dots(values, page.labels, page.score_words), _with_direction(name))
        for name, values in intervals.items()
    )
    rows = [
        [bdi(label), *(_aggregate_cell(intervals[name][label], by_env) for name in AGGREGATES)]
        for label, by_env in scores.items()
    ]
    where = f"the {len(envs)} envs that every variant finished" if len(envs) > 1 else envs[0]
    note = (
        f"Over {where}, {page.scoring.scale}: {page.scoring.explanation}. Dots are values, lines 95 % stratified "
        "bootstrap intervals over runs. The interquartile mean and the optimality gap (how far runs stay below 1) pool "
        "all runs; mean and median are taken over envs."
    )
    table = scroll_table(["Variant", *AGGREGATES], rows, numbers_from=1)
    return join([remark(note), plot_grid(plots, "pair"), table, _raw_scores(page)])


def _aggregate_cell(interval: Interval, by_env: Scores) -> str:
    """Without an interval where no env has two runs: there is nothing to resample."""
    return interval_cell(interval, share_words) if max(map(len, by_env.values())) > 1 else share_words(interval.value)


def _with_direction(name: str) -> str:
    return f"{name} (lower is better)" if name == "Optimality gap" else name


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
        remark(f"Means over runs of the {page.scoring.field_words}, 95 % intervals, numbers of runs."),
    ]
    if len(rows) == 1:
        env = next(env for env in page.envs if any(env in raw[label] for label in scored))
        figure = figures.score_dots(raw, page.labels, env, page.scoring.field_words)
        parts.append(plot_grid(page.plot(figure, "Every finished run"), "wide"))
    parts.append(scroll_table(["Env", *scored], rows, numbers_from=1))
    return join(parts)


def _raw_cell(values: Sequence[float]) -> Html:
    if not values:
        return Html("–")
    mean = interval_cell(bootstrap_mean(values), number_words) if len(values) > 1 else number_words(values[0])
    return join([mean, tag("span", f" · {len(values)}", class_="count")])


def profile_section(page: Page) -> Html:
    """How many runs of a variant reach a score."""
    scores = page.comparable()
    runs = sum(len(values) for by_env in scores.values() for values in by_env.values())
    if len(scores) < 2 or runs < 2 * len(scores):
        return Html()
    note = "The share of runs whose score is above the value on the x axis: the higher a line, the better."
    return join([remark(note), plot_grid(page.plot(figures.profile(scores, page.labels, page.score_words)), "wide")])


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
    return interval_cell(Interval(value, float(low), float(high)), number_words)
