"""Sections on the course of training: returns, horizons and readings; gradient steps; where the time goes."""

from collections.abc import Sequence

import numpy as np

from swell.display.sinks import PHASES
from swell.report import figures
from swell.report.figures import AXES
from swell.report.markup import Html, grid_kind, join, plot_grid, remark, tag
from swell.report.page import Page
from swell.report.records import RunRecord


def curve_section(page: Page) -> Html:
    """Returns over training, over three x axes."""
    drawn = [(env, figures.curves_over_training(page.records, page.labels, env)) for env in page.envs]
    plots = join(page.plot(figure, env) for env, figure in drawn if figure)
    if not plots:
        return Html()
    options = join(
        tag("label", join([_radio("axis", name, name == "env_steps"), tag("span", words)]))
        for name, words in AXES.items()
    )
    switch = tag("fieldset", join([tag("legend", "x axis"), options]), class_="switch")
    several = max(len(page.runs_of(label)) for label in page.labels) > 1
    note = "Mean unclipped return of the last 100 training episodes, with exploration."
    if several:
        note += (
            " Lines are means over runs, bands 95 % intervals. Where a run ends earlier than others, the mean is of "
            "fewer runs from there on."
        )
    else:
        note += " Diamonds are greedy evaluations."
    return join([remark(note), switch, plot_grid(plots, grid_kind(page.envs))])


def _radio(name: str, value: str, checked: bool) -> Html:
    return Html(f'<input type="radio" name="{name}" value="{value}"{" checked" if checked else ""}>')


def horizon_section(page: Page) -> Html:
    """The horizon over training."""
    drawn = [(env, figures.horizon_curves(page.records, page.labels, env)) for env in page.envs]
    plots = join(page.plot(figure, env) for env, figure in drawn if figure)
    note = "Length of the rollouts as planned; times the number of envs it is the batch (Figure 2 of the ABS paper)."
    return join([remark(note), plot_grid(plots, grid_kind(page.envs))]) if plots else Html()


def signal_section(page: Page) -> Html:
    """The readings over training, a block for each signal."""
    parts: list[Html] = []
    for signal in sorted({record.log.signal for record in page.records if record.log.readings.size}):
        drawn = [(env, figures.reading_curves(page.records, page.labels, env, signal)) for env in page.envs]
        plots = join(page.plot(figure, env) for env, figure in drawn if figure)
        parts += [tag("h3", signal.replace("_", " ").capitalize()), plot_grid(plots, grid_kind(page.envs))]
    note = (
        "The signal that the adaptive batch listens to, measured on probe states around an update (Figure 1 of the ABS "
        "paper). Behavioral divergence is the share of states whose greedy action changed, also called policy churn."
    )
    return join([remark(note), *parts]) if parts else Html()


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
        "More gradient steps on the same data can raise a score by themselves. Where variants do not overlap on the x "
        "axis, the batch and the number of updates cannot be told apart."
    )
    words = page.scoring.field_words if single else page.score_words
    figure = figures.score_over_gradient_steps(points, page.labels, words)
    return join([remark(note), plot_grid(page.plot(figure), "wide")])


def time_section(page: Page) -> Html:
    """Seconds of each phase."""
    seconds = {label: phases for label in page.labels if (phases := _seconds_per_step(page.runs_of(label)))}
    if not seconds:
        return Html()
    note = (
        "Seconds per 100,000 env steps, mean over runs: choosing actions, stepping envs, updating, measuring the "
        "signal; “other” is evaluation and checkpoints. Compare only runs made on the same, equally busy machine."
    )
    figure = figures.time_per_phase(seconds, page.labels, "seconds per 100,000 env steps")
    return join([remark(note), plot_grid(page.plot(figure), "wide")])


def _seconds_per_step(runs: Sequence[RunRecord]) -> dict[str, float]:
    rows: list[dict[str, float]] = []
    for run in runs:
        env_steps, wall = run.env_steps, run.wall_seconds
        if run.log.seconds and env_steps and wall:
            other = max(0.0, wall - sum(run.log.seconds.values()))
            rows.append({k: v / env_steps * 1e5 for k, v in {**run.log.seconds, figures.OTHER: other}.items()})
    return {k: float(np.mean([row.get(k, 0.0) for row in rows])) for k in (*PHASES, figures.OTHER)} if rows else {}
