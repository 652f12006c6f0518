"""Sections on how much better one variant is than another: by probability, by env, by size, by gradient steps."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from swell.report import figures
from swell.report.fixed_horizons import UNMOVED
from swell.report.page import (
    Html,
    Page,
    bdi,
    first_upper,
    format_number,
    format_signed,
    interval_cell,
    join,
    plot_grid,
    remark,
    scroll_table,
    tag,
)
from swell.report.records import RunRecord, natural_key
from swell.report.run_files import clean_text
from swell.report.scoring import Scores, Scoring
from swell.report.stats import Interval, bootstrap, bootstrap_difference, difference_of_means, mean_score
from swell.report.verdict import enough_runs, improvement


def probability_section(page: Page) -> Html:
    """The first variant against each other one, and all pairs."""
    scored = [label for label in page.labels if label in page.scoring.normalized]
    findings = {f.rival: f.probability for f in page.verdict.findings if f.probability is not None}
    if len(scored) < 2 or not findings:
        return Html()
    about = page.labels[0]
    title = f"P({figures.plotly_text(figures.short_names([about])[about])} better than …)"
    note = (
        f"Probability that a run of one variant scores higher than a run of the other on the same {page.words.place}, "
        f"averaged over {page.words.place}s; ties count half. An interval across the dotted line says that the two "
        "cannot be told apart."
    )
    plot = page.plot(figures.probabilities(findings, page.labels, title))
    matrix = _probability_matrix(page, scored) if len(scored) > 2 else Html()
    return join([remark(note), plot_grid(plot, "wide"), matrix])


def _probability_matrix(page: Page, labels: Sequence[str]) -> Html:
    scores = page.scoring.normalized
    known: dict[tuple[str, str], Interval | None] = {}
    for ours, theirs in combinations(labels, 2):
        known[ours, theirs] = one_way = improvement(scores[ours], scores[theirs])
        known[theirs, ours] = Interval(1 - one_way.value, 1 - one_way.high, 1 - one_way.low) if one_way else None
    rows = [
        [bdi(row), *(_probability_cell(known.get((row, column)), scores[row], scores[column]) for column in labels)]
        for row in labels
    ]
    note = "Row against column. Bold: the interval excludes one half."
    return join([tag("h3", "All pairs"), remark(note), scroll_table(["", *labels], rows, numbers_from=1)])


def _probability_cell(interval: Interval | None, ours: Scores, theirs: Scores) -> Html:
    if interval is None:
        return Html("–")
    sure = enough_runs(ours, theirs)
    decided = sure and (interval.low > 0.5 or interval.high < 0.5)
    value = tag("strong" if decided else "span", f"{interval.value:.2f}")
    bounds = f" [{interval.low:.2f}, {interval.high:.2f}]" if sure else " too few runs"
    return join([value, tag("span", bounds, class_="interval")])


def improvement_section(page: Page) -> Html:
    """The first variant minus a baseline that the reader chooses."""
    rivals = [label for label in page.labels[1:] if _shared_envs(page.scoring, page.labels[0], label)]
    if not rivals:
        return Html()
    about = page.labels[0]
    options = join(tag("option", rival, value=str(number)) for number, rival in enumerate(rivals))
    select = tag("select", options, id="baseline", data_chooses="baseline")
    chooser = tag("p", join([tag("label", "Baseline ", for_="baseline"), select]), class_="chooser")
    parts = [
        tag("div", _improvement_over(page, rival), data_choice_of="baseline", data_choice=str(number))
        for number, rival in enumerate(rivals)
    ]
    note = (
        f"Difference of the means of {about} and the baseline per {page.words.place}, in {page.score_name}s so that "
        "all share an axis (Figures 3 and 5 to 7 of the ABS paper). Filled dots: the 95 % interval excludes zero."
    )
    return join([remark(note), chooser if len(rivals) > 1 else Html(), *parts])


def _improvement_over(page: Page, rival: str) -> Html:
    about = page.labels[0]
    raw, scaled = page.scoring.raw, page.scoring.normalized
    differences: dict[str, tuple[Interval, bool]] = {}
    rows: list[list[str]] = []
    for env in _shared_envs(page.scoring, about, rival):
        ours, theirs = raw[about][env], raw[rival][env]
        sure = min(len(ours), len(theirs)) > 1
        differences[env] = bootstrap_difference(scaled[about][env], scaled[rival][env]), sure
        difference, baseline = bootstrap_difference(ours, theirs), float(np.mean(theirs))
        rows.append(
            [
                bdi(env),
                format_number(float(np.mean(ours))),
                format_number(baseline),
                interval_cell(difference, format_signed) if sure else format_signed(difference.value),
                f"{difference.value / baseline:+.1%}".replace("-", "−") if baseline > 0 else "–",
            ]
        )
    title = f"{figures.plotly_text(about)} − {figures.plotly_text(rival)} ({page.scoring.scale})"
    figure = figures.improvement_per_env(differences, 0, page.labels.index(rival), title)
    table = scroll_table([first_upper(page.words.place), about, rival, "Difference", "Relative"], rows, numbers_from=1)
    caption = f"{about} against {rival}"
    note = remark("Raw scores. Relative only where the baseline is above zero; it says little where that is small.")
    return join([plot_grid(page.plot(figure, caption), "wide"), table, note])


def _shared_envs(scoring: Scoring, label: str, rival: str) -> list[str]:
    ours, theirs = scoring.raw.get(label, {}), scoring.raw.get(rival, {})
    return sorted(ours.keys() & theirs.keys(), key=natural_key)


def size_section(page: Page) -> Html:
    """Adaptive variants by network and largest batch, each over the best fixed variant of its network."""
    scores = page.comparable()
    kinds = {label: _kind(page.runs_of(label)) for label in scores}
    points: dict[str, list[tuple[float, Interval, str]]] = {}
    for label, (scaler, network, batch) in kinds.items():
        fixed = [other for other, (kind, net, _) in kinds.items() if kind in UNMOVED and net == network]
        if scaler == "adaptive" and batch and fixed:
            baseline = max(fixed, key=lambda other: float(mean_score(scores[other])))
            gain = bootstrap(difference_of_means, scores[label], scores[baseline])
            points.setdefault(network, []).append((batch, gain, f"{label} over {baseline}"))
    if sum(map(len, points.values())) < 2:
        return Html()
    ordered = {network: sorted(row, key=lambda point: point[0]) for network, row in sorted(points.items())}
    note = (
        "Mean score of each adaptive variant minus that of the fixed variant of the same network that did best, which "
        "is the hardest baseline here (Figure 4 of the ABS paper)."
    )
    figure = figures.improvement_over_size(ordered, page.words.samples, f"improvement ({page.scoring.scale})")
    return join([remark(note), plot_grid(page.plot(figure), "wide")])


def gradient_step_section(page: Page) -> Html:
    """Scores over the work that went into them."""
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
        f"More {page.words.updates} on the same data can raise a score by themselves. Where variants do not overlap on "
        "the x axis, the batch and the number of updates cannot be told apart."
    )
    words = page.scoring.field_name if single else page.score_name
    figure = figures.score_over_gradient_steps(points, page.labels, page.words.updates, words)
    return join([remark(note), plot_grid(page.plot(figure), "wide")])


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
