"""The arithmetic of `make bench`, and that its sides do the same work; nothing here is timed."""

import json
import sys
import time
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # for benchmarks

from benchmarks.plain_pqn import SETTINGS, make_network
from benchmarks.speed.__main__ import arguments, report, surviving, write
from benchmarks.speed.commands import ONE_PROCESS, SWELL, Beside, WholeRun, told, train_command
from benchmarks.speed.limits import flops_per_step
from benchmarks.speed.record import Measured, goes, read_record, write_record
from benchmarks.speed.rows import OURS, Rounds, our_configs, time_split, workload_rows
from benchmarks.speed.sides import Block, IteratedSide, PlainPQN
from benchmarks.speed.table import (
    BEGIN,
    END,
    Bar,
    Comparison,
    Figure,
    Limit,
    Skipped,
    Spread,
    insert,
    limit_rates,
    ratio,
    render,
    share_at,
    verdict,
)
from benchmarks.speed.turns import RemoteSide, SideFailedError, take_turns
from benchmarks.speed.workloads import WORKLOADS

from swell.cli import parse
from swell.config.runs import Backend
from swell.networks.q_networks import make_q_network

LOADS = (1.0, 2.0)


def test_a_ratio_is_taken_within_each_block():
    # the ratio of the medians would be 3
    assert ratio([10.0, 40.0, 30.0], [10.0, 20.0, 5.0]) == Spread(2.0, 1.0, 6.0)


def test_sides_with_different_numbers_of_blocks_are_no_comparison():
    with pytest.raises(ValueError, match="shorter"):
        ratio([1.0, 2.0], [1.0])


def test_the_limit_adds_the_time_of_envs_and_of_arithmetic():
    # 1 ms for the envs and 3 ms for the arithmetic
    assert limit_rates([1000.0], [2e9], 6e6) == pytest.approx([250.0])


def test_the_share_of_a_reading_is_spread_over_its_iterations():
    assert share_at(reading_seconds=1.0, iteration_seconds=1.98, every=50) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("bar", "value", "words"),
    [
        (Bar("at least", 1.5), 1.5, "met"),
        (Bar("at least", 1.5), 1.49, "**missed**"),
        (Bar("at most", 0.6), 0.6, "met"),
        (Bar("at most", 0.6), 0.61, "**missed**"),
        (None, 0.0, "–"),
    ],
)
def test_a_bar_is_met_from_its_own_side(bar, value, words):
    assert verdict(bar, value) == words


def test_a_peer_is_held_to_the_bar_of_its_name():
    workload = WORKLOADS["cartpole-pqn"]
    assert workload.bar("PureJaxQL@1a2b, its settings") == Bar("at least", 2.0)
    assert workload.bar("another@3c4d") == Bar("at least", 1.0)
    assert workload.bar("plain loop, 1 thread") is None
    assert workload.command_bar("purejaxql@1a2b") == Bar("at most", 0.6)
    assert workload.command_bar("another@3c4d") is None


def test_the_table_tells_medians_ratio_spread_bar_and_load():
    row = Comparison(
        "cartpole", "", [30.0, 20.0, 10.0], "Peer@1", [10.0, 10.0, 10.0], "steps/s", Bar("at least", 2.5), LOADS
    )
    lines = render([row], {}, {"cartpole": "settings"}).splitlines()
    assert "| cartpole | 20 | Peer@1 | 10 | steps/s | 2.00 (1.00..3.00) | ≥ 2.5 | **missed** | 1.0 → 2.0 |" in lines


def test_the_table_tells_what_was_skipped_and_why():
    rows = [
        Figure("start", "swell --help", [0.4, 0.6, 0.3], "seconds", Bar("at most", 0.5), LOADS),
        Skipped("atari", "ale-py is missing"),
    ]
    text = render(rows, {"CPU": "some"}, {"atari": "never measured"})
    assert "| start | swell --help | 0.40 s (0.30 s..0.60 s) | ≤ 0.50 s | met | 1.0 → 2.0 |" in text
    assert "| atari | ale-py is missing |" in text
    assert "| CPU | some |" in text
    assert "never measured" not in text


def test_a_new_table_replaces_the_old_one_and_leaves_the_page():
    page = insert(f"above\n{BEGIN}\nold\n{END}\nbelow\n", "new")
    assert page == f"above\n{BEGIN}\n\nnew\n\n{END}\nbelow\n"
    assert insert(page, "newer") == page.replace("new", "newer")


def test_horizons_have_a_table_of_their_own():
    row = Comparison("minatar", "", [1.0], "horizon 16", [2.0], "µs/step", None, LOADS, about="horizons")
    text = render([row], {}, {})
    assert "Horizon 128" in text
    assert "Beside others" not in text


def test_an_empty_page_becomes_the_table():
    assert insert("", "new") == f"{BEGIN}\n\nnew\n\n{END}\n"


def test_the_last_told_numbers_of_a_command_count():
    output = "steps_per_second: 1\nnoise wall_seconds: 3\nsteps_per_second: 2.5e3\nenv_steps: 500000\n"
    assert told(output) == {"steps_per_second": 2500.0, "env_steps": 500_000.0}


def test_a_command_is_a_side():
    words = f"""{sys.executable} -c "print('steps_per_second: 12')" """
    assert Beside(WORKLOADS["cartpole-pqn"], "Peer", words).block(1.0).rate == 12.0


@pytest.mark.parametrize("code", ["print('no rate')", "print('steps_per_second: 12'); raise SystemExit(3)"])
def test_a_command_that_fails_says_so(code):
    with pytest.raises(SideFailedError, match=r"Peer must end well and print `steps_per_second: X`"):
        Beside(WORKLOADS["cartpole-pqn"], "Peer", f'{sys.executable} -c "{code}"').block(1.0)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_the_whole_command_trains_with_the_settings_of_the_workload(workload):
    if workload.options.get("backend", "auto") not in get_args(Backend):
        pytest.skip("this version of Swell has no such backend")
    total = workload.config().total_env_steps
    assert parse(train_command(workload, total)[1:]).config == workload.config(evaluation_episodes=0)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_plain_loop_does_what_ours_does(name):
    config, plain = WORKLOADS[name].config(), SETTINGS[name]
    assert {field.name: getattr(plain, field.name) for field in fields(plain)} == {
        field.name: getattr(config, field.name) for field in fields(plain)
    }


@pytest.mark.parametrize(("name", "shape"), [("atari", (4, 84, 84)), ("cartpole-pqn", (4,)), ("minatar", (4, 10, 10))])
def test_the_plain_network_has_the_shape_of_ours(name, shape):
    config = WORKLOADS[name].config()
    ours = make_q_network(config, shape, 3)
    assert sizes(make_network(config.env, shape, 3)) == sizes(ours)


def sizes(network):
    """Of all parameters, whichever way their axes are ordered."""
    return sorted(sorted(weight.shape) for weight in network.parameters())


@pytest.mark.parametrize("name", ["cartpole-ppo", "halfcheetah-ppo"])
def test_sb3_has_the_settings_of_ours(name):
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("mujoco")
    from benchmarks.speed.sb3_ppo import MAKERS

    config = WORKLOADS[name].config()
    envs, settings, total = MAKERS[name]()
    rate = settings["learning_rate"]
    assert (envs.num_envs, settings["n_steps"], total) == (config.num_envs, config.horizon, config.total_env_steps)
    assert settings["batch_size"] == config.num_envs * config.horizon // config.minibatches
    assert (settings["n_epochs"], settings["gamma"]) == (config.epochs, config.discount)
    assert (settings["gae_lambda"], rate(1.0)) == (config.trace_decay, config.learning_rate)


def test_the_arithmetic_of_a_step_is_counted_without_gradients_of_observations():
    config = WORKLOADS["cartpole-pqn"].config()
    first, rest = 4 * 256, 256 * 256 + 256 * 2
    forward, training = 2 * (first + rest), 2 * (2 * first + 3 * rest)
    assert flops_per_step(config) == forward + config.epochs * training


class Counted(IteratedSide):
    def __init__(self):
        self.done = 0

    def iterate(self):
        self.done += 1
        return 7.0

    def counters(self):
        return {"done": self.done}


def test_a_block_tells_the_increase_of_its_counters():
    side = Counted()
    for _ in range(2):
        before = side.done
        block = side.block(1e-9)
        assert block.details["done"] == side.done - before == block.work / 7.0


class Compiling(Counted):
    """Its first iteration takes longer than any warm-up."""

    def iterate(self):
        time.sleep(0.05 if self.done == 0 else 0.01)
        return super().iterate()


def test_a_warm_up_goes_on_after_an_iteration_that_compiles(monkeypatch):
    monkeypatch.setattr("benchmarks.speed.sides.WARM_UP_SECONDS", 0.02)
    side = Compiling()
    side.warm_up()
    assert side.done >= 2


def test_our_whole_command_is_run_once_before_it_is_timed(monkeypatch):
    asked = []
    monkeypatch.setattr("benchmarks.speed.commands.train_seconds", lambda workload, steps: asked.append(steps) or 5.0)
    told = "steps_per_second: 12\nwall_seconds: 9\nenv_steps: 6000"
    side = Beside(WORKLOADS["cartpole-pqn"], "Peer", f"printf '{told}\n'")
    assert [side.block(1.0).details["our_wall_seconds"] for _ in range(2)] == [5.0, 5.0]
    assert asked == [2 * 32 * 64, 6000, 6000]


@pytest.mark.parametrize("launcher", [None, ONE_PROCESS])
def test_a_whole_run_is_rated_by_its_usual_iteration_whoever_starts_it(monkeypatch, launcher):
    asked = []

    def run(command):
        asked.append(command)
        directory = Path(command[-1])
        directory.mkdir()
        parts = dict.fromkeys(("seconds_act", "seconds_env", "seconds_update"), 0.0)
        shared = {"horizon": 64, "batch_size": 2048, "minibatch_size": 128, "gradient_steps": 0, **parts}
        rows = [{**shared, "steps_per_second": rate} for rate in (9, 1024, 1024, 5)]  # the first compiles, one is slow
        (directory / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))

    monkeypatch.setattr("benchmarks.speed.commands.run_seconds", run)
    side = WholeRun(WORKLOADS["cartpole-pqn"], "some", *([launcher] if launcher else []))
    assert side.block(1.0).rate == pytest.approx(1024)
    [command] = asked
    start = len(launcher) if launcher else 1
    assert tuple(command[:start]) == (launcher or (str(SWELL),))
    request = parse(command[start:])
    assert request.config == WORKLOADS["cartpole-pqn"].config(evaluation_episodes=0, total_env_steps=150 * 32 * 64)


def test_what_is_neither_envs_nor_acting_is_the_update():
    blocks = [Block(1.0, 2.0, {"env": 0.5, "act": 0.2, "measure": 0.0})]
    assert time_split(blocks) == pytest.approx({"env": 0.25, "act": 0.1, "update": 0.65})


class Named:
    pace = 0.5

    def __init__(self, label, turns):
        self.label = label
        self._turns = turns

    def block(self, seconds):
        self._turns.append((self.label, seconds))
        return Block(1.0, seconds)

    def close(self): ...


def test_sides_take_turns_and_nobody_is_always_first():
    turns = []
    found = take_turns([Named("a", turns), Named("b", turns)], blocks=3, seconds=4.0, say=lambda text: None)
    assert turns == [(label, 2.0) for label in "abbaab"]
    assert {label: len(blocks) for label, blocks in found.items()} == {"a": 3, "b": 3}


def test_a_side_that_fails_in_its_process_says_why():
    with pytest.raises(SideFailedError, match=r"the plain one failed: KeyError: 'no such workload'"):
        RemoteSide("the plain one", partial(PlainPQN, "no such workload", (1,)))


def test_a_missing_extra_skips_the_row_and_is_named(monkeypatch):
    monkeypatch.setattr("benchmarks.speed.workloads.find_spec", lambda package: None)
    rows = workload_rows(WORKLOADS["atari"], [], Rounds(1, 1.0, print))
    assert list(rows) == [Skipped("atari", "ale-py is missing: pip install swell-rl[atari]")]


def test_a_variant_that_swell_refuses_is_named_and_the_others_stay():
    workload = replace(WORKLOADS["cartpole-pqn"], variants={"odd": {"xyz": 1}, "2 threads": {"threads": 2}})
    configs, refused = our_configs(workload)
    assert list(configs) == [OURS, f"{OURS}, 2 threads"]
    assert configs[f"{OURS}, 2 threads"].threads == 2
    assert refused == [Skipped("cartpole-pqn, odd", "unknown option xyz")]


def test_a_workload_that_swell_refuses_is_skipped():
    workload = replace(WORKLOADS["cartpole-pqn"], options={"xyz": 1}, variants={})
    rows = workload_rows(workload, [], Rounds(1, 1.0, print))
    assert list(rows) == [Skipped("cartpole-pqn", "unknown option xyz")]


RESULTS = [
    Comparison("minatar", "", [3.0], "Peer@1", [1.0], "steps/s", Bar("at least", 2.0), LOADS),
    Limit("minatar", "", 1, [3.0], [9.0], [1e9], 1e3, {"env": 0.5, "update": 0.5}, None, LOADS),
    Skipped("minatar beside SB3", "it is missing"),
]
FIGURES = [Figure("start", "swell --help", [0.4], "seconds", Bar("at most", 0.5), LOADS)]


def measured_at(results, date, **versions):
    return Measured(results, {"date": date, "swell": f"commit {date}", "blocks": "5", "torch": "1", **versions})


def test_what_was_measured_is_read_as_it_was_written(tmp_path):
    measured = {"minatar": measured_at(RESULTS, "2026-01-01"), "start": measured_at(FIGURES, "2026-01-02")}
    write_record(tmp_path / "speed.json", measured)
    assert read_record(tmp_path / "speed.json") == measured
    assert read_record(tmp_path / "none.json") == {}


def test_a_row_that_is_measured_again_leaves_the_others(tmp_path):
    page = tmp_path / "speed.md"
    write(page, {"start": measured_at(FIGURES, "2026-01-01"), "minatar": measured_at(RESULTS, "2026-01-01")})
    again = {**read_record(page.with_suffix(".json")), "minatar": measured_at(RESULTS[:1], "2026-01-02", torch="2")}
    write(page, again)
    text = page.read_text()
    assert "swell --help" in text
    assert "it is missing" not in text
    assert text.index("| minatar | 2026-01-02 | commit 2026-01-02 | 5 | – |") < text.index("| start | 2026-01-01 |")
    assert report(again) in text


def test_an_older_go_tells_in_what_it_differs_from_the_newest():
    measured = {"minatar": measured_at([], "2026-01-02", torch="2"), "start": measured_at([], "2026-01-01")}
    assert [line[-1] for line in goes(measured)] == ["–", "torch 1"]


def test_several_commands_may_stand_beside_ours(monkeypatch):
    words = ["--beside", "cartpole-ppo", "A@1", "a", "--beside", "cartpole-ppo", "B@2", "b"]
    monkeypatch.setattr(sys, "argv", ["speed", "--only", "cartpole-ppo", *words])
    assert arguments().beside == [["cartpole-ppo", "A@1", "a"], ["cartpole-ppo", "B@2", "b"]]


def test_rows_before_a_failure_are_kept():
    def rows():
        yield Skipped("first", "measured")
        raise SideFailedError("the second broke")

    assert list(surviving("both", rows())) == [Skipped("first", "measured"), Skipped("both", "the second broke")]
