"""The report as text: which sections it has, and that nothing from a run can become markup, script or a broken page."""

import base64
import csv
import hashlib
import html
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from synthetic_runs import write_bench, write_run

from swell.errors import ConfigError, StorageError
from swell.report import curves
from swell.report.figures import log_axis, plotly_text, rounded, short_names
from swell.report.write import write_numbers, write_report

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028&'\"%{x}"


def page_of(path, **options):
    return write_report([path], path / "report.html", **options).read_text(encoding="utf-8")


def sections(page):
    return re.findall(r'<section id="([a-z-]+)">', page)


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def scripts_of(page):
    return re.findall(r"<script>(.*?)</script>", page, re.S)


def text_of(page):
    """What a reader sees, without tags, styles and scripts."""
    visible = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.S)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", visible)))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    write_bench(root, {"adaptive": 100, "fixed:16": 80, "fixed:64": 95}, gradient_steps=1000)
    return page_of(root)


def test_a_comparison_has_every_section_that_it_has_data_for(comparison):
    assert sections(comparison) == [
        *("verdict", "aggregate", "profile", "curves", "batch", "signal", "probability", "improvement"),
        *("regret", "cost", "gradient-steps", "time", "config", "runs", "versions"),
    ]


def test_one_run_has_a_page_of_its_own_and_no_empty_comparison(tmp_path):
    page = page_of(write_run(tmp_path / "run", score=321.5))
    assert sections(page) == ["verdict", "curves", "batch", "signal", "time", "config", "versions"]
    assert (
        "pqn adaptive on CartPole-v1 reached 321.5 after 100,000 env steps" in page
        and "321.5" in page
        and "16 → 63" in text_of(page)
    )


def test_a_killed_run_of_which_only_the_config_is_left_has_a_page(tmp_path):
    directory = write_run(tmp_path / "run", status=None)
    (directory / "metrics.jsonl").unlink()
    (directory / "evaluations.jsonl").unlink()
    assert "unfinished" in text_of(page_of(directory))


def test_runs_in_every_state_are_listed_with_the_last_lines_of_their_logs(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80}, seeds=2)
    for status in ("failed", "diverged", "interrupted", None):
        write_run(tmp_path / "runs" / "e" / "v" / f"seed-{status}", status=status, label="fixed:16", scaler="fixed")
    (tmp_path / "runs" / "e" / "v" / "broken").mkdir()
    (tmp_path / "runs" / "e" / "v" / "broken" / "config.json").write_text("{")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "e_v_seed-failed.log").write_text("swell: environment failed: step 3\n")
    text = text_of(page_of(tmp_path))
    for words in ("failed", "diverged", "interrupted", "unfinished", "unreadable", "environment failed: step 3"):
        assert words in text
    assert "logs/e_v_seed-failed.log" in text


def test_only_options_that_differ_are_shown_and_never_label_or_seed(comparison):
    table = comparison[comparison.index('<section id="config">') :].partition("</section>")[0]
    assert re.findall(r"<code>(\w+)</code>", table) == ["horizon", "scaler"]


def test_atari_games_get_the_regression_estimates(tmp_path):
    games = ("BattleZone", "DoubleDunk", "NameThisGame", "Phoenix", "Qbert")
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80}, envs=tuple(f"ALE/{game}-v5" for game in games), seeds=2)
    page = page_of(tmp_path)
    assert "atari" in sections(page)
    assert "human-normalised" in text_of(page)


def test_networks_and_batches_of_several_sizes_get_figure_4(tmp_path):
    write_bench(tmp_path, {"small": 80, "fixed:16": 70}, network="mlp")
    write_bench(tmp_path, {"large": 100}, network="big", max_horizon=128)
    write_bench(tmp_path, {"fixed:32": 75}, network="big")
    page = page_of(tmp_path)
    assert "size" in sections(page)
    names = [e["trace"].get("name") for figure in data_of(page) for e in figure["entries"]]
    assert "big" in names and "mlp [128, 128]" in names


def test_runs_without_any_finished_one_still_show_their_curves(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80}, seeds=2, status=None)
    page = page_of(tmp_path)
    assert "curves" in sections(page) and "aggregate" not in sections(page) and "trouble" in sections(page)


def test_the_main_variant_and_the_title_can_be_chosen(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80}, seeds=5)
    page = page_of(tmp_path, about="fixed:16", title="A <b>title</b>")
    assert "fixed:16 loses to adaptive." in page
    assert "<h1>A &lt;b&gt;title&lt;/b&gt;</h1>" in page
    with pytest.raises(ConfigError, match="no run has the label"):
        page_of(tmp_path, about="nobody")


def test_a_folder_as_target_gets_a_report_html(tmp_path):
    run = write_run(tmp_path / "run")
    assert write_report([run], tmp_path) == tmp_path / "report.html"
    assert write_report([run], tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "report.html", "run"]


def test_a_target_that_cannot_be_written_is_one_line(tmp_path):
    run = write_run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        write_report([run], tmp_path / "file" / "page.html")


def test_the_policy_allows_the_two_scripts_by_their_hashes_and_nothing_else(comparison):
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', comparison)[1])
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts_of(comparison)]
    assert len(hashes) == 2
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in hashes)
    assert not re.search(r"<[^>]+ on\w+=", re.sub(r"<(script|style).*?</\1>", "", comparison, flags=re.S))


def test_nothing_is_loaded_from_elsewhere(comparison):
    without_code = re.sub(r"<(script|style).*?</\1>", "", comparison, flags=re.S)
    assert not re.search(r"(src|href)=\"(?!#)", without_code)
    assert "@import" not in comparison.partition("</style>")[0] and "url(" not in comparison.partition("</style>")[0]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    folder = root / "runs" / "<b>e" / "<img src=x onerror=alert(2)>" / "seed-1\n</script>"
    for seed in (1, 2):
        write_run(root / f"good-{seed}", label=HOSTILE, env=HOSTILE, seed=seed, signal=HOSTILE, network=HOSTILE)
        write_run(root / f"other-{seed}", label="fixed", scaler=HOSTILE, env=HOSTILE, seed=seed, epochs=HOSTILE)
    write_run(folder, label=HOSTILE, env=HOSTILE, status="failed", seed=3)
    (root / "logs").mkdir()
    log = root / "logs" / "<b>e_<img src=x onerror=alert(2)>_seed-1\n<\u2215script>.log"
    log.write_text(HOSTILE)
    return page_of(root, title=HOSTILE)


def test_hostile_names_stay_text(hostile):
    assert len(scripts_of(hostile)) == 2
    assert "<img" not in re.sub(r"<script>.*?</script>", "", hostile, flags=re.S)
    assert data_of(hostile)  # still one JSON document
    block = re.search(r'id="data">(.*?)</script>', hostile, re.S)[1]
    assert not re.search("[<>&\u2028\u2029]", block)
    assert "</script><script>alert(1)</script>" in text_of(hostile)


def test_hostile_names_are_no_markup_and_no_template_to_plotly(hostile):
    texts: list[str] = []

    def collect(value):
        if isinstance(value, dict):
            for entry in value.values():
                collect(entry)
        elif isinstance(value, list):
            for entry in value:
                collect(entry)
        elif isinstance(value, str):
            texts.append(value)

    collect(data_of(hostile))
    assert any("alert" in text for text in texts)
    for text in texts:
        assert not re.search(r"<(?!/?extra>|br>)", text)
        assert "%{x}" not in text.replace("%{x}<", "")


def test_numbers_that_are_not_finite_become_null(tmp_path):
    directory = write_run(tmp_path / "run", lines=20)
    lines = (directory / "metrics.jsonl").read_text().replace('"seconds_act"', '"episode_return": NaN, "seconds_act"')
    (directory / "metrics.jsonl").write_text(lines)
    (directory / "summary.json").write_text('{"status": "done", "env_steps": 1e999, "final_return": NaN}')
    page = page_of(directory)
    assert "NaN" not in json.dumps(data_of(page)) and "nan" not in text_of(page)
    assert rounded([math.nan, math.inf, 1.23456]) == [None, None, 1.235]


def test_names_with_broken_encodings_are_written(tmp_path):
    directory = write_run(tmp_path / "run", label="a\ud800b")
    assert "a?b" in page_of(directory)


def test_plotly_texts_are_escaped():
    assert plotly_text("<b>%{x} & y") == "&lt;b&gt;%&#123;x} &amp; y"


def test_long_names_are_cut_but_stay_distinct():
    names = ["a" * 60 + "1", "a" * 60 + "1" + "b" * 30, "short", "a" * 61]
    short = short_names(names, 10)
    assert short["short"] == "short"
    assert len(set(short.values())) == len(names)
    assert all(len(name) <= 12 for name in short.values())


def test_curves_are_drawn_over_each_axis_with_a_band(comparison):
    entries = next(f["entries"] for f in data_of(comparison) if "axis_titles" in f["layout"])
    assert {entry["axis"] for entry in entries} == {"clock", "wall_seconds", "gradient_steps"}
    assert all(len(entry["band"]["low"]) == curves.POINTS for entry in entries)
    assert {entry["variant"] for entry in entries} == {0, 1, 2}


def test_writing_a_report_imports_neither_plotly_nor_torch(tmp_path):
    write_run(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from swell.report.write import write_report;"
        f"write_report([Path({str(tmp_path)!r})], Path({str(tmp_path / 'r.html')!r}));"
        "print({'plotly', 'torch', 'gymnasium'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_the_numbers_behind_every_figure_are_those_of_the_page(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80}, seeds=3)
    data = data_of(page_of(tmp_path))
    table = list(csv.DictReader(write_numbers([tmp_path], tmp_path).open()))
    written = json.loads(write_numbers([tmp_path], tmp_path / "n.json").read_text())
    assert (tmp_path / "report.csv").exists() and len(written["rows"]) == len(table)
    assert [str(row["figure"]) for row in written["rows"]] == [row["figure"] for row in table]
    for number, figure in enumerate(data, 1):
        points = sum(len(entry["trace"]["y"]) for entry in figure["entries"])
        assert sum(row["figure"] == str(number) for row in table) == points > 0
    curve = next(entry for figure in data for entry in figure["entries"] if entry.get("band") and entry["axis"])
    row = next(row for row in written["rows"] if row["section"] == "curves" and row["low"] is not None)
    first = next(at for at, low in enumerate(curve["band"]["low"]) if low is not None)
    assert (row["y"], row["low"]) == (curve["trace"]["y"][first], curve["band"]["low"][first])
    assert (row["x_axis"], row["variant"]) == ("env steps", "adaptive")


def test_a_mean_ends_where_the_runs_that_are_meant_to_be_equally_long_end():
    ends = [(np.array([0.0, 50.0, end]), np.array([0.0, 1.0, value])) for end, value in ((100, 1), (101, 1), (103, 90))]
    (drawn,) = curves._band(ends, 0, "a")
    trace = drawn["trace"]
    assert trace["x0"] + trace["dx"] * (curves.POINTS - 1) == pytest.approx(100)
    assert None not in trace["y"] and max(np.diff(trace["y"])) < 2
    (longer,) = curves._band([*ends, (np.array([0.0, 300.0]), np.array([0.0, 1.0]))], 0, "a")
    assert longer["trace"]["x0"] + longer["trace"]["dx"] * (curves.POINTS - 1) == pytest.approx(300)


@pytest.mark.parametrize(("low", "high"), [(0.003, 0.2), (1, 5e9), (120, 900)])
def test_logarithmic_axes_have_whole_numbers_at_their_ticks(low, high):
    axis = log_axis(low, high)
    values = [float(text.replace(",", "")) for text in axis["ticktext"]]
    assert values == axis["tickvals"] and sum(low <= value <= high for value in values) >= 2
    assert len(values) <= 20
