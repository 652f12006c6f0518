"""The section on what a score costs: time of training and gradient steps, with the front."""

import math
from collections.abc import Mapping

from swell.report.curves import kind_of, time_unit
from swell.report.page import Html, Page, join, plot_grid, remark, tag
from swell.report.regret_figures import front
from swell.report.stats import Interval, bootstrap_mean
from swell.report.stopping import costs_of
from swell.report.words import Words


def cost_section(page: Page) -> Html:
    """Final scores over time and over gradient steps, env by env."""
    in_time: list[Html] = []
    in_steps: list[Html] = []
    for env in page.envs:
        scores = {
            label: bootstrap_mean(page.scoring.raw[label][env])
            for label in page.labels
            if env in page.scoring.raw.get(label, {})
        }
        costs = costs_of(page.records, env)
        seconds = {label: costs[label].seconds for label in scores}
        steps = {label: costs[label].gradient_steps for label in scores}
        words = kind_of(page.records, env).words
        unit, length = time_unit(max(seconds.values(), default=0.0))
        in_units = {label: value / length for label, value in seconds.items()}
        in_time += _plot(page, env, in_units, scores, f"{unit} of training", words)
        in_steps += _plot(page, env, steps, scores, words.updates, words)
    note = (
        "Final scores, means over runs with 95 % intervals. Time is that of training and measuring, without "
        "evaluations and checkpoints; compare only runs made on the same, equally busy machine. The dotted steps are "
        "the front: the best score that any of these variants had for no more."
    )
    parts = [
        join([tag("h3", title), plot_grid(join(plots), "pair")])
        for title, plots in (("In time of training", in_time), (f"In {page.words.updates}", in_steps))
        if plots
    ]
    return join([remark(note), *parts]) if parts else Html()


def _plot(
    page: Page, env: str, costs: Mapping[str, float], scores: Mapping[str, Interval], x_title: str, words: Words
) -> list[Html]:
    """The figure of one env, if the costs of several variants are known."""
    points = {label: (costs[label], score) for label, score in scores.items() if math.isfinite(costs[label])}
    y_title: str = getattr(words, page.scoring.field)
    return [page.plot(front(points, page.labels, x_title, y_title), env)] if len(points) > 1 else []
