"""The section on regret: how far each variant stays behind the fixed horizon that did best in hindsight."""

from collections.abc import Mapping
from dataclasses import dataclass

from swell.report import regret_figures
from swell.report.cautions import listed
from swell.report.fixed_horizons import Comparison, comparisons, of_one_length
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
    tag,
)
from swell.report.records import RunRecord
from swell.report.regret import Regrets, regrets
from swell.report.stats import Interval
from swell.report.stopping import (
    Stopped,
    scores_at_the_end,
    stopped_after_equal_time,
    stopped_after_share,
)

SHARES = (0.1, 0.25, 0.5, 1.0)
"""Of the length of a run: where it might have been stopped."""


@dataclass(frozen=True)
class _Result:
    """What came out of one comparison."""

    comparison: Comparison
    records: list[RunRecord]
    forms: Mapping[str, Regrets]
    """After the same length, and after the same time."""
    in_time: Stopped


def regret_section(page: Page) -> Html:
    """Regret after equal length, after equal time, and had the runs been stopped earlier."""
    results = [result for each in comparisons(page.records, page.labels) if (result := _measure(page, each))]
    if not results:
        return Html()
    parts = [_explanation(page)]
    for result in results:
        if len(results) > 1:
            parts.append(tag("h3", f"Against {listed(result.comparison.fixed)}"))
        parts += [_findings(page, result), _dots(page, result), *_tables(page, result)]
        parts.append(_anytime(page, result))
    return join(parts)


def _measure(page: Page, comparison: Comparison) -> _Result | None:
    records = of_one_length(page.records, comparison)
    scores = scores_at_the_end(records, page.scoring.field)
    at_end = regrets(scores, comparison.fixed)
    if not at_end.yardsticks:
        return None
    in_time = stopped_after_equal_time(records)
    timed = regrets(in_time.scores, comparison.fixed)
    forms = {f"after the same {page.words.clock}": at_end, "after the same time": timed}
    return _Result(comparison, records, forms, in_time)


def _explanation(page: Page) -> Html:
    words = page.words
    what = (
        f"How far a variant stays behind the fixed {words.batch} that did best in hindsight: (best − score) / (best − "
        f"worst) on each {words.place}, of means over runs. 0 is as good as the best fixed {words.batch}, 1 as bad as "
        f"the worst, below 0 better than all. After the same {words.clock} a score is the {page.scoring.field_name}."
    )
    time = (
        f"After the same time, all runs on one {words.place} are read when the fastest of them was done. It is time of "
        "training and measuring, without evaluations and checkpoints, and says something only of runs made on the "
        "same, equally busy machine. A run that is read before its end had not finished annealing what it anneals."
    )
    care = (
        "The best of several noisy means was picked for its luck too, so regret is overstated; its 95 % stratified "
        f"bootstrap intervals lean to the high side. A fixed {words.batch} has a regret as well: the smallest mean "
        f"of those is what one choice for all {words.place}s comes to. Where fixed ones differ by no more than chance "
        f"makes runs differ, the {words.place} says nothing: it is in parentheses, and in no mean and no maximum."
    )
    return join([remark(what), remark(time), remark(care)])


def _findings(page: Page, result: _Result) -> Html:
    """What one fixed horizon for all envs comes to, the main variant beside it, and where nothing is known."""
    sentences: list[str] = []
    at_end = next(iter(result.forms.values()))
    for form, found in result.forms.items():
        one = _best_fixed(result, found)
        if one:
            sentences.append(
                f"{first_upper(form)}, {one} has the smallest mean regret of the fixed ones: {_told(found.mean(one))}."
                + _beside(page.labels[0], one, found)
            )
        silent = [env for env in page.envs if env in found.yardsticks and env not in found.telling()]
        if silent:
            sentences.append(
                f"{first_upper(form)}, fixed ones cannot be told apart on {listed(silent)}: nothing is said there."
            )
        unknown = [env for env in page.envs if env in at_end.yardsticks and env not in found.yardsticks]
        if unknown:
            sentences.append(f"{first_upper(form)}, nothing is known on {listed(unknown)}: a run had no score by then.")
    return tag("ul", join(tag("li", sentence) for sentence in sentences))


def _best_fixed(result: _Result, found: Regrets) -> str | None:
    """Of those that are known on all envs that tell."""
    everywhere = [label for label in result.comparison.fixed if found.envs_of(label) == found.telling()]
    means = {label: mean.value for label in everywhere if (mean := found.mean(label))}
    return min(means, key=lambda label: means[label]) if means else None


def _beside(main: str, one: str, found: Regrets) -> str:
    mean = found.mean(main)
    if main == one or mean is None:
        return ""
    return (
        f" {main} has {_told(mean)}, and {_told(found.largest(main))} where it is largest. "
        f"Its mean minus that of {one} is {_told(found.difference(main, one))}."
    )


def _dots(page: Page, result: _Result) -> Html:
    """The mean over the envs that tell, and each of these."""
    telling = [env for env in page.envs if any(env in found.telling() for found in result.forms.values())]
    plots: list[Html] = []
    for env in [None, *telling] if len(telling) > 1 else telling:
        forms = {form: _intervals(page, found, env) for form, found in result.forms.items()}
        figure = regret_figures.regret_dots(forms, page.labels, page.words.batch)
        plots.append(page.plot(figure, env or f"Mean over {page.words.place}s"))
    marks = zip(("Filled", "open"), result.forms, strict=False)
    note = f"{', '.join(f'{mark} dots: {form}' for mark, form in marks)}."
    return join([remark(note), plot_grid(join(plots), "pair")]) if plots else Html()


def _intervals(page: Page, found: Regrets, env: str | None) -> dict[str, Interval]:
    """Label -> its mean regret, or that on an env which tells."""
    envs = found.telling() if env is None else [env for known in found.telling() if known == env]
    return {label: mean for label in page.labels if (mean := found.mean(label, envs))}


def _tables(page: Page, result: _Result) -> list[Html]:
    parts: list[Html] = []
    for form, found in result.forms.items():
        if not found.yardsticks:
            continue
        seconds = {} if found is next(iter(result.forms.values())) else result.in_time.seconds
        parts += [tag("h3", f"Regret {form}"), _regret_table(page, found), _yardstick_table(page, found, seconds)]
    return parts


def _regret_table(page: Page, found: Regrets) -> Html:
    envs, telling = [env for env in page.envs if env in found.yardsticks], found.telling()
    silent = len(telling) < len(envs)
    rows = [
        [
            bdi(label),
            join([_cell(found.mean(label)), _envs_counted(found, label)]),
            _cell(found.largest(label)),
            *([_cell(found.mean(label, envs))] if silent else []),
            *(_cell(found.mean(label, [env])) for env in envs),
        ]
        for label in page.labels
        if label in found.draws
    ]
    of_all = [f"(Mean of all {page.words.place}s)"] if silent else []
    columns = [env if env in telling else f"({env})" for env in envs]
    return scroll_table(["Variant", "Mean", "Largest", *of_all, *columns], rows, numbers_from=1)


def _yardstick_table(page: Page, found: Regrets, seconds: Mapping[str, float]) -> Html:
    rows = [
        [
            bdi(env if known.tells else f"({env})"),
            *([format_duration(seconds.get(env))] if seconds else []),
            f"{known.best}: {format_number(known.best_score)}",
            f"{known.worst}: {format_number(known.worst_score)}",
            format_share(known.chance),
            format_share(known.luck),
        ]
        for env in page.envs
        if (known := found.yardsticks.get(env))
    ]
    head = [first_upper(page.words.place), *(["Read after"] if seconds else []), "Best fixed", "Worst fixed"]
    note = (
        "By chance: how likely shuffled runs differ as much; above 0.05 nothing is said. Luck: by how much, in units "
        "of regret, the best probably looks better than it is."
    )
    return join([scroll_table([*head, "By chance", "Luck"], rows, numbers_from=1), remark(note)])


def _anytime(page: Page, result: _Result) -> Html:
    """Regret if the runs had been stopped after a share of their length."""
    stopped = [stopped_after_share(result.records, share) for share in SHARES]
    found = [regrets(moment.scores, result.comparison.fixed) for moment in stopped]
    telling = [env for env in page.envs if any(env in moment.telling() for moment in found)]
    plots: list[Html] = []
    for env in [None, *telling] if len(telling) > 1 else telling:
        at_moments = [_intervals(page, moment, env) for moment in found]
        rows = {label: [known.get(label) for known in at_moments] for label in page.labels}
        figure = regret_figures.regret_over_length(SHARES, rows, page.labels, page.words.clock)
        plots.append(page.plot(figure, env or f"Mean over {page.words.place}s"))
    if not plots:
        return Html()
    counts = ", ".join(
        f"{len(moment.telling())} after {share:.0%}" for moment, share in zip(found, SHARES, strict=True)
    )
    note = (
        f"Regret had all runs been stopped there, with the scores and the spread of that moment; {page.words.place}s "
        f"that say something: {counts}. {_what_is_read(page, stopped)} So 100 % is not the final score above. "
        "Runs that anneal over their whole length would have annealed sooner had they been meant to be shorter."
    )
    return join([tag("h3", "Regret had the runs been stopped"), remark(note), plot_grid(join(plots), "pair")])


def _what_is_read(page: Page, stopped: list[Stopped]) -> str:
    evaluated = frozenset[str]().union(*(moment.evaluated for moment in stopped))
    others = frozenset(env for moment in stopped for env in moment.scores) - evaluated
    training = "training scores as the learning curves draw them"
    if not evaluated:
        return f"Scores are {training}."
    there = f" on {listed(sorted(evaluated))}, {training} elsewhere" if others else ""
    return f"Scores are evaluations during training{there}."


def _envs_counted(found: Regrets, label: str) -> Html:
    """Said where a mean is over fewer envs than others."""
    known, telling = len(found.envs_of(label)), len(found.telling())
    return tag("span", f" · {known} of {telling}", class_="count") if 0 < known < telling else Html()


def _cell(interval: Interval | None) -> Html:
    return interval_cell(interval, format_share) if interval else Html("–")


def _told(interval: Interval | None) -> str:
    if interval is None:
        return "not known"
    return f"{format_share(interval.value)} [{format_share(interval.low)}, {format_share(interval.high)}]"
