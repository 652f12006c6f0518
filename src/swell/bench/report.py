"""The report: one HTML file that says how variants compare, with everything inside and nothing fetched.

Whatever comes from a run (names, error texts, options) is escaped, and the page's policy lets only its own two scripts
run, so that a run named `<script>…` is only an odd name.
"""

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from swell.bench import figures
from swell.bench.figures import AXES, Figure
from swell.bench.records import RunRecord, Scores, Scoring, clean_text, natural_key, read_runs, score_runs
from swell.bench.reference_scores import REGRESSION_WEIGHTS, Subset, atari57_game, atari_estimate, human_normalized
from swell.bench.stats import (
    Interval,
    Statistic,
    Value,
    bootstrap,
    bootstrap_difference,
    bootstrap_mean,
    interquartile_mean,
    mean_score,
    median_score,
    optimality_gap,
    resampled,
)
from swell.bench.verdict import Verdict, enough_runs, improvement, judge, variant_labels
from swell.errors import ConfigError
from swell.metrics import PHASES
from swell.run_directory import storage_errors, write_durably

AGGREGATES: dict[str, Statistic] = {
    "Interquartile mean": interquartile_mean,
    "Median": median_score,
    "Mean": mean_score,
    "Optimality gap": optimality_gap,
}
MARKS = {"beats": "▲", "loses": "▼", "undecided": "≈", "too few": "?", "apart": "–"}
NOT_COMPARED = {"env", "seed", "label", "ramp_from", "out"}
"""Options that say which run it is, not what it does."""
ESTIMATE_RESAMPLES = 500


class Html(str):
    """Text that is markup already; any other text is escaped on its way into the page."""

    __slots__ = ()


def write_report(paths: Sequence[Path], out: Path, about: str | None = None, title: str | None = None) -> Path:
    """Write the report on all runs at or under `paths`, and say where it is.

    `about` is the label of the variant that the others are compared with; by default the adaptive one. `out` may be a
    folder; the page is then its report.html.
    """
    records = read_runs(paths)
    page = render(records, about, title)
    target = out / "report.html" if out.is_dir() else out
    with storage_errors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            write_durably(temporary, page.encode("utf-8", "replace"))
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    return target


def render(records: Sequence[RunRecord], about: str | None = None, title: str | None = None) -> str:
    """The page as text."""
    return _Page(records, about).render(title)


class _Page:
    """What all sections share, and the figures that they have asked for so far."""

    def __init__(self, records: Sequence[RunRecord], about: str | None) -> None:
        self.records = records
        self.scoring = score_runs(records)
        self.verdict = judge(records, self.scoring, about)
        self.labels = variant_labels(records, about)
        self.envs = sorted({record.env for record in records if record.env}, key=natural_key)
        self.figures: list[Figure] = []

    def render(self, title: str | None) -> str:
        sections = [
            ("verdict", "", _verdict(self)),
            ("aggregate", "Aggregate scores", _aggregates(self)),
            ("profile", "Performance profile", _profile(self)),
            ("curves", "Learning curves", _curves(self)),
            ("horizon", "Horizon", _horizons(self)),
            ("signal", "How much the policy changes", _readings(self)),
            ("probability", "Probability of improvement", _probability(self)),
            ("improvement", "Improvement per env", _improvement(self)),
            ("size", "Improvement over batch and network size", _sizes(self)),
            ("gradient-steps", "Score and gradient steps", _gradient_steps(self)),
            ("time", "Where the time goes", _time(self)),
            ("atari", "Atari-5 and Atari-10 estimates", _atari(self)),
            ("config", "Configuration", _config(self)),
            ("trouble", "Runs that did not finish", _trouble(self)),
            ("runs", "All runs", _run_table(self)),
            ("versions", "Versions and hardware", _versions(self)),
        ]
        present = [(name, heading, content) for name, heading, content in sections if content]
        links = _join(_tag("a", heading, href=f"#{name}") for name, heading, _ in present if heading)
        first, *others = [_section(*section) for section in present]
        body = _join([first, _tag("nav", links, class_="contents", aria_label="Contents"), *others])
        return _fill_template(
            title=_escape(clean_text(title) if title else _default_title(self)),
            subtitle=_escape(_subtitle(self)),
            toolbar=_toolbar(self.labels),
            body=body,
            footer=_escape(f"Made by `swell report` on {datetime.now():%Y-%m-%d %H:%M}. This file needs no network."),
            data=_script_safe([figure.as_json() for figure in self.figures]),
        )

    def plot(self, figure: Figure, caption: str = "") -> Html:
        """A place for a figure."""
        self.figures.append(figure)
        place = _tag("div", class_="plot", data_figure=str(len(self.figures) - 1))
        return _tag("figure", _join([_tag("figcaption", _bdi(caption)) if caption else Html(), place]))

    def runs_of(self, label: str) -> list[RunRecord]:
        return [record for record in self.records if record.label == label]

    def comparable(self) -> dict[str, Scores]:
        """Normalised scores on the envs that every scored variant finished, so that aggregates are of the same envs."""
        scores = {label: self.scoring.normalized[label] for label in self.labels if label in self.scoring.normalized}
        shared = set(self.envs).intersection(*scores.values()) if scores else set[str]()
        return (
            {label: {env: by_env[env] for env in sorted(shared)} for label, by_env in scores.items()} if shared else {}
        )

    @property
    def score_words(self) -> str:
        return f"{self.scoring.scale} score"


def _verdict(page: _Page) -> Html:
    verdict = page.verdict
    parts = [
        _tag("h2", "Verdict" if len(page.labels) > 1 else "Summary"),
        _tag("p", verdict.headline, class_="headline"),
    ]
    if verdict.basis:
        parts.append(_tag("p", verdict.basis, class_="note"))
    if len(page.records) == 1:
        parts.append(_tiles(page.records[0]))
    parts += [_findings(verdict), _cautions(verdict)]
    if len(page.records) > 1:
        parts.append(_variant_table(page))
    return _join(parts)


def _findings(verdict: Verdict) -> Html:
    items: list[Html] = []
    for finding in verdict.findings:
        notes = _join(_tag("span", note, class_="aside") for note in finding.notes)
        text = _tag("div", _join([_tag("span", finding.sentence), notes]))
        mark = _tag("span", MARKS[finding.outcome], class_="mark", aria_hidden="true")
        items.append(_tag("li", _join([mark, text]), class_=finding.outcome.replace(" ", "-")))
    return _tag("ul", _join(items), class_="findings") if items else Html()


def _cautions(verdict: Verdict) -> Html:
    if not verdict.cautions:
        return Html()
    items = _join(_tag("li", caution) for caution in verdict.cautions)
    return _tag("div", _join([_tag("h3", "Read with care"), _tag("ul", items)]), class_="cautions")


def _tiles(record: RunRecord) -> Html:
    horizon = record.log.horizon[np.isfinite(record.log.horizon)]
    facts = [
        ("Status", record.status),
        ("Greedy evaluation", _number(record.score("evaluation_return"))),
        ("Last 100 training episodes", _number(record.score("final_return"))),
        ("Env steps", _number(record.env_steps)),
        ("Gradient steps", _number(record.gradient_steps)),
        ("Horizon", f"{horizon[0]:.0f} → {horizon[-1]:.0f}" if horizon.size else ""),
        ("Wall-clock", _duration(record.wall_seconds)),
        ("Env steps per second", _number(record.steps_per_second)),
        ("Peak memory", f"{record.peak_memory_mb:,.0f} MiB" if record.peak_memory_mb else ""),
    ]
    known = [(name, value) for name, value in facts if value not in ("", "–")]
    tiles = (_tag("div", _join([_tag("dt", name), _tag("dd", value)])) for name, value in known)
    return _tag("dl", _join(tiles), class_="tiles")


def _variant_table(page: _Page) -> Html:
    rows: list[list[str]] = []
    for variant, label in enumerate(page.labels):
        runs = page.runs_of(label)
        rows.append(
            [
                _join([_swatch(variant), " ", _bdi(label)]),
                f"{len(runs)}",
                f"{sum(run.finished for run in runs)}",
                _number(_median(run.env_steps for run in runs)),
                _number(_median(run.gradient_steps for run in runs)),
                _duration(_median(run.wall_seconds for run in runs)),
                _number(_median(run.steps_per_second for run in runs)),
            ]
        )
    head = ["Variant", "Runs", "Finished", "Env steps", "Gradient steps", "Wall-clock", "Steps per second"]
    if not rows:
        return Html()
    return _join([_table(head, rows, numbers_from=1), _note("Last four columns: medians over the runs of a variant.")])


def _aggregates(page: _Page) -> Html:
    scores = page.comparable()
    if len(page.records) < 2 or not page.scoring.raw:
        return Html()
    if len(page.labels) == 1 and not page.scoring.by_reference:
        return _raw_scores(page)  # between its own worst and best run, a variant's score says nothing
    if not scores:
        return _join([_note("No env was finished by every variant, so nothing can be aggregated."), _raw_scores(page)])
    envs = sorted(next(iter(scores.values())))
    intervals = {
        name: {label: bootstrap(statistic, by_env) for label, by_env in scores.items()}
        for name, statistic in AGGREGATES.items()
    }
    plots = _join(
        page.plot(figures.interval_dots(values, page.labels, page.score_words), _with_direction(name))
        for name, values in intervals.items()
    )
    rows = [
        [_bdi(label), *(_aggregate_cell(intervals[name][label], by_env) for name in AGGREGATES)]
        for label, by_env in scores.items()
    ]
    where = f"the {len(envs)} envs that every variant finished" if len(envs) > 1 else envs[0]
    note = (
        f"Over {where}, {page.scoring.scale}: {page.scoring.explanation}. Dots are values, lines 95 % stratified "
        "bootstrap intervals over runs. The interquartile mean and the optimality gap (how far runs stay below 1) pool "
        "all runs; mean and median are taken over envs."
    )
    table = _table(["Variant", *AGGREGATES], rows, numbers_from=1)
    return _join([_note(note), _plots(plots, "pair"), table, _raw_scores(page)])


def _aggregate_cell(interval: Interval, by_env: Scores) -> str:
    """Without an interval where no env has two runs: there is nothing to resample."""
    return _interval(interval, _share) if max(map(len, by_env.values())) > 1 else _share(interval.value)


def _with_direction(name: str) -> str:
    return f"{name} (lower is better)" if name == "Optimality gap" else name


def _raw_scores(page: _Page) -> Html:
    """Raw scores by env: as dots too where there is one env only."""
    raw = page.scoring.raw
    scored = [label for label in page.labels if label in raw]
    rows = [
        [_bdi(env), *(_raw_cell(raw[label].get(env, [])) for label in scored)]
        for env in page.envs
        if any(env in raw[label] for label in scored)
    ]
    parts = [
        _tag("h3", "Raw scores"),
        _note(f"Means over runs of the {page.scoring.field_words}, 95 % intervals, numbers of runs."),
    ]
    if len(rows) == 1:
        env = next(env for env in page.envs if any(env in raw[label] for label in scored))
        figure = figures.score_dots(raw, page.labels, env, page.scoring.field_words)
        parts.append(_plots(page.plot(figure, "Every finished run"), "wide"))
    parts.append(_table(["Env", *scored], rows, numbers_from=1))
    return _join(parts)


def _raw_cell(values: Sequence[float]) -> Html:
    if not values:
        return Html("–")
    mean = _interval(bootstrap_mean(values), _number) if len(values) > 1 else _number(values[0])
    return _join([mean, _tag("span", f" · {len(values)}", class_="count")])


def _profile(page: _Page) -> Html:
    scores = page.comparable()
    runs = sum(len(values) for by_env in scores.values() for values in by_env.values())
    if len(scores) < 2 or runs < 2 * len(scores):
        return Html()
    note = "The share of runs whose score is above the value on the x axis: the higher a line, the better."
    return _join([_note(note), _plots(page.plot(figures.profile(scores, page.labels, page.score_words)), "wide")])


def _curves(page: _Page) -> Html:
    drawn = [(env, figures.curves_over_training(page.records, page.labels, env)) for env in page.envs]
    plots = _join(page.plot(figure, env) for env, figure in drawn if figure)
    if not plots:
        return Html()
    options = _join(
        _tag("label", _join([_radio("axis", name, name == "env_steps"), _tag("span", words)]))
        for name, words in AXES.items()
    )
    switch = _tag("fieldset", _join([_tag("legend", "x axis"), options]), class_="switch")
    several = max(len(page.runs_of(label)) for label in page.labels) > 1
    note = "Mean unclipped return of the last 100 training episodes, with exploration."
    if several:
        note += (
            " Lines are means over runs, bands 95 % intervals. Where a run ends earlier than others, the mean is of "
            "fewer runs from there on."
        )
    else:
        note += " Diamonds are greedy evaluations."
    return _join([_note(note), switch, _plots(plots, _plots_class(page.envs))])


def _horizons(page: _Page) -> Html:
    drawn = [(env, figures.horizon_curves(page.records, page.labels, env)) for env in page.envs]
    plots = _join(page.plot(figure, env) for env, figure in drawn if figure)
    note = "Length of the rollouts as planned; times the number of envs it is the batch (Figure 2 of the ABS paper)."
    return _join([_note(note), _plots(plots, _plots_class(page.envs))]) if plots else Html()


def _readings(page: _Page) -> Html:
    parts: list[Html] = []
    for signal in sorted({record.log.signal for record in page.records if record.log.readings.size}):
        drawn = [(env, figures.reading_curves(page.records, page.labels, env, signal)) for env in page.envs]
        plots = _join(page.plot(figure, env) for env, figure in drawn if figure)
        parts += [_tag("h3", signal.replace("_", " ").capitalize()), _plots(plots, _plots_class(page.envs))]
    note = (
        "The signal that the adaptive batch listens to, measured on probe states around an update (Figure 1 of the ABS "
        "paper). Behavioral divergence is the share of states whose greedy action changed, also called policy churn."
    )
    return _join([_note(note), *parts]) if parts else Html()


def _probability(page: _Page) -> Html:
    scored = [label for label in page.labels if label in page.scoring.normalized]
    findings = {f.rival: f.probability for f in page.verdict.findings if f.probability is not None}
    if len(scored) < 2 or not findings:
        return Html()
    about = page.labels[0]
    title = f"P({figures.plotly_text(figures.short_names([about])[about])} better than …)"
    note = (
        "Probability that a run of one variant scores higher than a run of the other on the same env, averaged over "
        "envs; ties count half. An interval across the dotted line says that the two cannot be told apart."
    )
    plot = page.plot(figures.probabilities(findings, page.labels, title))
    return _join([_note(note), _plots(plot, "wide"), _probability_matrix(page, scored) if len(scored) > 2 else Html()])


def _probability_matrix(page: _Page, labels: Sequence[str]) -> Html:
    scores = page.scoring.normalized
    known: dict[tuple[str, str], Interval | None] = {}
    for ours, theirs in combinations(labels, 2):
        known[ours, theirs] = one_way = improvement(scores[ours], scores[theirs])
        known[theirs, ours] = Interval(1 - one_way.value, 1 - one_way.high, 1 - one_way.low) if one_way else None
    rows = [
        [_bdi(row), *(_probability_cell(known.get((row, column)), scores[row], scores[column]) for column in labels)]
        for row in labels
    ]
    note = "Row against column. Bold: the interval excludes one half."
    return _join([_tag("h3", "All pairs"), _note(note), _table(["", *labels], rows, numbers_from=1)])


def _probability_cell(interval: Interval | None, ours: Scores, theirs: Scores) -> Html:
    if interval is None:
        return Html("–")
    sure = enough_runs(ours, theirs)
    decided = sure and (interval.low > 0.5 or interval.high < 0.5)
    value = _tag("strong" if decided else "span", f"{interval.value:.2f}")
    bounds = f" [{interval.low:.2f}, {interval.high:.2f}]" if sure else " too few runs"
    return _join([value, _tag("span", bounds, class_="interval")])


def _improvement(page: _Page) -> Html:
    rivals = [label for label in page.labels[1:] if _shared_envs(page.scoring, page.labels[0], label)]
    if not rivals:
        return Html()
    about = page.labels[0]
    options = _join(_tag("option", rival, value=str(number)) for number, rival in enumerate(rivals))
    select = _tag("select", options, id="baseline", data_chooses="baseline")
    chooser = _tag("p", _join([_tag("label", "Baseline ", for_="baseline"), select]), class_="chooser")
    parts = [
        _tag("div", _improvement_over(page, rival), data_choice_of="baseline", data_choice=str(number))
        for number, rival in enumerate(rivals)
    ]
    note = (
        f"Difference of the means of {about} and the baseline per env, in {page.score_words}s so that envs share an "
        "axis (Figures 3 and 5 to 7 of the ABS paper). Filled dots: the 95 % interval excludes zero."
    )
    return _join([_note(note), chooser if len(rivals) > 1 else Html(), *parts])


def _improvement_over(page: _Page, rival: str) -> Html:
    about = page.labels[0]
    raw, scaled = page.scoring.raw, page.scoring.normalized
    differences: dict[str, tuple[Interval, bool]] = {}
    rows: list[list[str]] = []
    for env in _shared_envs(page.scoring, about, rival):
        ours, theirs = raw[about][env], raw[rival][env]
        sure = min(len(ours), len(theirs)) > 1
        differences[env] = bootstrap_difference(scaled[about][env], scaled[rival][env]), sure
        difference = bootstrap_difference(ours, theirs)
        rows.append(
            [
                _bdi(env),
                _number(float(np.mean(ours))),
                _number(float(np.mean(theirs))),
                _interval(difference, _signed) if sure else _signed(difference.value),
                _relative(difference.value, float(np.mean(theirs))),
            ]
        )
    title = f"{figures.plotly_text(about)} − {figures.plotly_text(rival)} ({page.scoring.scale})"
    figure = figures.improvement_per_env(differences, 0, page.labels.index(rival), page.labels, title)
    table = _table(["Env", about, rival, "Difference", "Relative"], rows, numbers_from=1)
    caption = f"{about} against {rival}"
    note = _note("Raw scores. Relative only where the baseline is above zero; it says little where that is small.")
    return _join([_plots(page.plot(figure, caption), "wide"), table, note])


def _relative(difference: float, baseline: float) -> str:
    return f"{difference / baseline:+.1%}".replace("-", "−") if baseline > 0 else "–"


def _shared_envs(scoring: Scoring, label: str, rival: str) -> list[str]:
    ours, theirs = scoring.raw.get(label, {}), scoring.raw.get(rival, {})
    return sorted(ours.keys() & theirs.keys(), key=natural_key)


def _sizes(page: _Page) -> Html:
    """Adaptive variants by network and largest batch, each over the best fixed variant of its network."""
    scores = page.comparable()
    kinds = {label: _kind(page.runs_of(label)) for label in scores}
    points: dict[str, list[tuple[float, Interval, str]]] = {}
    for label, (scaler, network, batch) in kinds.items():
        fixed = [other for other, (kind, net, _) in kinds.items() if kind == "fixed" and net == network]
        if scaler == "adaptive" and batch and fixed:
            baseline = max(fixed, key=lambda other: float(mean_score(scores[other])))
            gain = bootstrap(_difference, scores[label], scores[baseline])
            points.setdefault(network, []).append((batch, gain, f"{label} over {baseline}"))
    if sum(map(len, points.values())) < 2:
        return Html()
    ordered = {network: sorted(row, key=lambda point: point[0]) for network, row in sorted(points.items())}
    note = (
        "Mean score of each adaptive variant minus that of the fixed variant of the same network that did best, which "
        "is the hardest baseline here (Figure 4 of the ABS paper)."
    )
    figure = figures.improvement_over_size(ordered, f"improvement ({page.scoring.scale})")
    return _join([_note(note), _plots(page.plot(figure), "wide")])


def _difference(ours: Scores, theirs: Scores) -> Value:
    return mean_score(ours) - mean_score(theirs)


def _kind(records: Sequence[RunRecord]) -> tuple[str, str, float | None]:
    """Scaler, network and largest batch of a variant, if its runs agree on them."""
    runs = [record for record in records if record.finished]
    scalers, networks = {run.scaler for run in runs}, {_network(run) for run in runs}
    batches = {run.max_batch for run in runs}
    return (
        scalers.pop() if len(scalers) == 1 else "mixed",
        networks.pop() if len(networks) == 1 else "mixed networks",
        batches.pop() if len(batches) == 1 else None,
    )


def _network(run: RunRecord) -> str:
    hidden = run.config.get("hidden") if run.network == "mlp" else None
    return f"{run.network} {clean_text(hidden)}" if hidden else run.network


def _gradient_steps(page: _Page) -> Html:
    single = len({env for by_env in page.scoring.raw.values() for env in by_env}) == 1
    points: dict[str, list[tuple[float, float, str]]] = {}
    for record in page.records:
        raw = record.score(page.scoring.field)
        if record.finished and raw is not None and record.gradient_steps:
            score = raw if single else page.scoring.rescaled(record.label, record.env, raw)
            point = (record.gradient_steps, score, f"{record.env}, seed {record.seed}")
            points.setdefault(record.label, []).append(point)
    if sum(map(len, points.values())) < 2:
        return Html()
    note = (
        "More gradient steps on the same data can raise a score by themselves. Where variants do not overlap on the x "
        "axis, the batch and the number of updates cannot be told apart."
    )
    words = page.scoring.field_words if single else page.score_words
    figure = figures.score_over_gradient_steps(points, page.labels, words)
    return _join([_note(note), _plots(page.plot(figure), "wide")])


def _time(page: _Page) -> Html:
    seconds = {label: phases for label in page.labels if (phases := _seconds_per_step(page.runs_of(label)))}
    if not seconds:
        return Html()
    note = (
        "Seconds per 100,000 env steps, mean over runs: choosing actions, stepping envs, updating, measuring the "
        "signal; “other” is evaluation and checkpoints. Compare only runs made on the same, equally busy machine."
    )
    figure = figures.time_per_phase(seconds, page.labels, "seconds per 100,000 env steps")
    return _join([_note(note), _plots(page.plot(figure), "wide")])


def _seconds_per_step(runs: Sequence[RunRecord]) -> dict[str, float]:
    rows: list[dict[str, float]] = []
    for run in runs:
        env_steps, wall = run.env_steps, run.wall_seconds
        if run.log.seconds and env_steps and wall:
            other = max(0.0, wall - sum(run.log.seconds.values()))
            rows.append({k: v / env_steps * 1e5 for k, v in {**run.log.seconds, figures.OTHER: other}.items()})
    return {k: float(np.mean([row.get(k, 0.0) for row in rows])) for k in (*PHASES, figures.OTHER)} if rows else {}


def _atari(page: _Page) -> Html:
    rows: list[list[str]] = []
    subsets: list[Subset] = ["atari5", "atari10"]
    for label in page.labels:
        by_game = {atari57_game(env): (env, values) for env, values in page.scoring.raw.get(label, {}).items()}
        cells = [_estimate_cell(subset, by_game) for subset in subsets]
        if any(cells):
            rows.append([_bdi(label), *(cell or "–" for cell in cells)])
    if not rows:
        return Html()
    note = (
        "Median human-normalised score of all 57 games in percent, estimated from 5 or 10 of them by regression "
        "(maitchison/Atari-5). These are not means of the games; human level on every game reads 85.1 and 91.5."
    )
    return _join([_note(note), _table(["Variant", "Atari-5", "Atari-10"], rows, numbers_from=1)])


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
    return _interval(Interval(value, float(low), float(high)), _number)


def _config(page: _Page) -> Html:
    known = [label for label in page.labels if any(run.config for run in page.runs_of(label))]
    if not known:
        return Html()
    if len(known) == 1:
        return _whole_config(page, known[0])
    fields = sorted({name for label in known for run in page.runs_of(label) for name in run.config} - NOT_COMPARED)
    rows: list[list[str]] = []
    for name in fields:
        values = {label: _values_by_env(page.runs_of(label), name) for label in known}
        if _differ(list(values.values())):
            rows.append([_tag("code", name), *(_values_cell(values[label]) for label in known)])
    if not rows:
        return _note("The variants do not differ in any option.")
    note = "Options in which variants differ on the same env; all others are equal. Presets choose some by env."
    return _join([_note(note), _table(["Option", *known], rows)])


def _whole_config(page: _Page, label: str) -> Html:
    fields = sorted({name for run in page.runs_of(label) for name in run.config})
    rows = [[_tag("code", name), _values_cell(_values_by_env(page.runs_of(label), name))] for name in fields]
    table = _table(["Option", "Value"], rows)
    return _tag("details", _join([_tag("summary", f"All {len(rows)} options"), table]))


def _values_by_env(runs: Sequence[RunRecord], name: str) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for run in runs:
        if run.config:
            values.setdefault(run.env, set()).add(_option(run, name))
    return values


def _option(run: RunRecord, name: str) -> str:
    """An option in words; `auto` is no answer to which network it was."""
    if name == "network" and run.network:
        return run.network
    text = json.dumps(run.config[name], ensure_ascii=False) if name in run.config else "absent"
    return clean_text(text.strip('"'))


def _differ(by_variant: Sequence[Mapping[str, set[str]]]) -> bool:
    envs = {env for values in by_variant for env in values}
    return any(len({frozenset(values[env]) for values in by_variant if env in values}) > 1 for env in envs)


def _values_cell(by_env: Mapping[str, set[str]]) -> str:
    values = sorted(set().union(*by_env.values()) if by_env else set[str](), key=natural_key)
    return ", ".join(values[:4]) + (f", … ({len(values)} values)" if len(values) > 4 else "")


def _trouble(page: _Page) -> Html:
    records = [record for record in page.records if not record.finished or record.problem]
    if not records:
        return Html()
    rows = [
        [
            _bdi(record.name),
            _status(record),
            _number(record.env_steps),
            record.problem or "–",
            record.last_words or "–",
            f"{record.console.parent.name}/{record.console.name}" if record.console else "–",
        ]
        for record in records
    ]
    head = ["Run", "Status", "Env steps", "Files", "Last line of its log", "Log"]
    return _join([_note("They have no score above."), _table(head, rows, wrap_from=3, tall=len(rows) > 14)])


def _run_table(page: _Page) -> Html:
    if len(page.records) == 1:
        return Html()
    rows = [
        [
            _bdi(record.env or "–"),
            _bdi(record.label or "–"),
            "–" if record.seed is None else str(record.seed),
            _status(record),
            _number(record.score(page.scoring.field)),
            _number(record.env_steps),
            _number(record.gradient_steps),
            _duration(record.wall_seconds),
            _bdi(record.name),
        ]
        for record in page.records
    ]
    head = ["Env", "Variant", "Seed", "Status", "Score", "Env steps", "Gradient steps", "Wall-clock", "Folder"]
    return _join([_note(f"Score: {page.scoring.field_words}."), _table(head, rows, tall=len(rows) > 14)])


def _versions(page: _Page) -> Html:
    found: dict[str, dict[str, int]] = {}
    for record in page.records:
        hardware = {"device": record.device, "machine": record.machine, "threads": record.threads}
        for name, value in {**hardware, "network": record.network, **record.versions}.items():
            if value:
                counts = found.setdefault(name, {})
                counts[value] = counts.get(value, 0) + 1
    rows: list[list[str]] = []
    for name, counts in found.items():
        several = len(counts) > 1
        values = [f"{value} ({count} runs)" if several else value for value, count in sorted(counts.items())]
        rows.append([name, ", ".join(values)])
    return _table(["What", "Value"], rows) if rows else Html()


def _toolbar(labels: Sequence[str]) -> Html:
    if len(labels) < 2:
        return Html()
    boxes = _join(
        _tag(
            "label",
            _join([Html(f'<input type="checkbox" data-variant="{number}" checked>'), _swatch(number), _bdi(label)]),
            title=label,
        )
        for number, label in enumerate(labels)
    )
    row = _tag("div", boxes, class_="row", role="group", aria_label="Variants shown in all plots")
    return _tag("div", row, class_="toolbar")


def _swatch(variant: int) -> Html:
    dashes = {"solid": "", "dash": "7 4", "dot": "2.5 3", "dashdot": "7 3 2 3", "longdash": "11 4"}
    pattern = dashes.get(figures.dash(variant), "11 3 2 3")
    return Html(
        '<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true"><line x1="0" y1="6" x2="28" y2="6" '
        f'style="stroke:var(--v{variant % figures.COLOURS})" stroke-dasharray="{pattern}"></line></svg>'
    )


def _default_title(page: _Page) -> str:
    if len(page.records) == 1:
        record = page.records[0]
        return f"{record.label} on {record.env}, seed {record.seed}" if record.label else record.name
    if not page.labels:
        return "Runs"
    where = page.envs[0] if len(page.envs) == 1 else f"{len(page.envs)} envs"
    return (
        f"{page.labels[0]} and {len(page.labels) - 1} other variants on {where}"
        if len(page.labels) > 2
        else (f"{' and '.join(page.labels)} on {where}")
    )


def _subtitle(page: _Page) -> str:
    if len(page.records) == 1:
        return page.records[0].name
    finished = sum(record.finished for record in page.records)
    envs = ", ".join(page.envs[:6]) + (", …" if len(page.envs) > 6 else "")
    return f"{len(page.records)} runs, {finished} finished · {envs}"


def _section(name: str, heading: str, content: Html) -> Html:
    title = _tag("h2", heading) if heading else Html()
    return _tag("section", _join([title, content]), id=name)


def _plots(content: Html, kind: str = "") -> Html:
    return _tag("div", content, class_=f"plots {kind}".strip())


def _plots_class(envs: Sequence[str]) -> str:
    return {1: "wide", 2: "pair", 4: "pair"}.get(len(envs), "")


def _note(text: str) -> Html:
    return _tag("p", text, class_="note")


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 99, wrap_from: int = 99, tall: bool = False
) -> Html:
    """A table that scrolls inside its own box; columns from `numbers_from` on are aligned right."""

    def kind(column: int) -> str:
        return "number" if column >= numbers_from else "wrap" if column >= wrap_from else "name"

    titles = _join(_tag("th", title, class_=kind(column), scope="col") for column, title in enumerate(head))
    lines = _join(
        _tag("tr", _join(_tag("td", cell, class_=kind(column)) for column, cell in enumerate(row))) for row in rows
    )
    table = _tag("table", _join([_tag("thead", _tag("tr", titles)), _tag("tbody", lines)]))
    return _tag(
        "div", table, class_="scroll tall" if tall else "scroll", tabindex="0", role="region", aria_label="Table"
    )


def _status(record: RunRecord) -> Html:
    return _tag("span", record.status, class_=f"status status-{record.status}")


def _interval(interval: Interval, words: Callable[[float], str]) -> Html:
    bounds = f" [{words(interval.low)}, {words(interval.high)}]"
    return _join([words(interval.value), _tag("span", bounds, class_="interval")])


def _bdi(text: str) -> Html:
    return _tag("bdi", text)


def _radio(name: str, value: str, checked: bool) -> Html:
    return Html(f'<input type="radio" name="{name}" value="{value}"{" checked" if checked else ""}>')


def _number(value: float | None) -> str:
    """Four digits, or all before the point."""
    if value is None:
        return "–"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", "−")


def _share(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _signed(value: float) -> str:
    return (f"{value:+,.0f}" if abs(value) >= 1000 else f"{value:+.3g}").replace("-", "−")


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _escape(text: str) -> Html:
    return text if isinstance(text, Html) else Html(html.escape(text))


def _join(parts: Iterable[str]) -> Html:
    return Html("".join(_escape(part) for part in parts))


def _tag(name: str, content: str = "", **attributes: str) -> Html:
    """An element; text is escaped, markup is not. `class_` and `data_x` are written `class` and `data-x`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items() if value
    )
    return Html(f"<{name}{written}>{_escape(content)}</{name}>")


def _script_safe(value: Any) -> str:
    """JSON that cannot end the script element it stands in, and that has no NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _fill_template(**parts: str) -> str:
    folder = files("swell.bench") / "page"
    script = (folder / "report.js").read_text(encoding="utf-8")
    plotly = _plotly_source()
    hashes = " ".join(f"'sha256-{_digest(source)}'" for source in (plotly, script))
    parts |= {
        "policy": f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'",
        "style": (folder / "report.css").read_text(encoding="utf-8"),
        "script": script,
        "plotly": plotly,
    }
    template = (folder / "report.html").read_text(encoding="utf-8")
    # All at once: what has been filled in is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _plotly_source() -> str:
    """plotly.js as the plotly package ships it; importing that package would take longer than the report."""
    spec = find_spec("plotly")
    folder = next(iter(spec.submodule_search_locations or []), None) if spec else None
    source = Path(folder) / "package_data" / "plotly.min.js" if folder else None
    if source is None or not source.is_file():
        raise ConfigError('the report needs plotly: pip install "swell-rl[report]"')
    return source.read_text(encoding="utf-8")


def _digest(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
