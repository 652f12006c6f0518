"""Every file of a run, damaged: what is found is set aside and said, and what is not found changes nothing."""

import json
import os
import random
import shutil

import pytest
from kill import run_and_kill, small_config

from swell.errors import DivergedError, EnvironmentFailedError, StorageError, SwellError
from swell.runs import checkpoint, driver, saving
from swell.runs.checkpoint import load_newest
from swell.runs.description import read_description
from swell.runs.logs import RunGoneError, read_jsonl
from swell.runs.sealed import DamagedError, read_sealed, write_sealed
from swell.runs.start import begin_or_continue, resume, run

TIMES = ("wall_seconds", "steps_per_second", "seconds_act", "seconds_env", "seconds_update", "seconds_measure")
SMALL = {"total_env_steps": 800, "checkpoint_every": 200, "evaluate_every": 200, "evaluation_episodes": 1}
SMALL |= {"max_episode_steps": 30, "path": "autograd"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that was killed a little after its third checkpoint, and has a summary of an earlier session."""
    directory = tmp_path_factory.mktemp("damage") / "run"
    assert run_and_kill(small_config(**SMALL), directory, saving, "prune", 3)
    with open(directory / "metrics.jsonl", "ab") as log:
        log.write(b'{"env_steps": 640}\n{"env_st')
    write_sealed(directory / "summary.json", {"status": "interrupted", "env_steps": 400})
    return directory


@pytest.fixture(scope="module")
def expected(trained, tmp_path_factory):
    return outcome(copy_of(trained, tmp_path_factory.mktemp("undamaged")))


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def copy_of(trained, where):
    shutil.rmtree(where / "run", ignore_errors=True)
    shutil.copytree(trained, where / "run")
    return where / "run"


def outcome(directory):
    """Goes on with a run to its end: its weights, and the rows in its log."""
    resume(directory, quiet=True)
    found = load_newest(directory / "checkpoints", print)
    assert found is not None
    weights = {name: value.tolist() for name, value in found[1]["learner"]["network"].items()}
    rows = [{k: v for k, v in row.items() if k not in TIMES} for row in read_jsonl(directory / "metrics.jsonl")]
    return weights, rows


def same(outcome, expected):
    """To the last bit; a log that began anew has the last rows."""
    (weights, rows), (expected_weights, expected_rows) = outcome, expected
    return weights == expected_weights and rows and rows == expected_rows[-len(rows) :]


def files_of(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file() and "tensorboard" not in path.parts)


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position // 8] ^= 1 << position % 8
    path.write_bytes(data)


def flipped_bits(trained, count):
    """The file and the bit of `count` flips, all files alike."""
    generator = random.Random(7)
    files = [path for path in files_of(trained) if path.stat().st_size]
    chosen = [files[number % len(files)] for number in range(count)]
    return [(path.relative_to(trained), generator.randrange(8 * path.stat().st_size)) for path in chosen]


def assert_found_or_harmless(trained, expected, where, name, position, capfd):
    directory = copy_of(trained, where)
    flip(directory / name, position)
    capfd.readouterr()
    try:
        ended = outcome(directory)
    except StorageError:
        return
    said = capfd.readouterr().err
    aside = list(directory.rglob("bad-*"))
    assert same(ended, expected), (name, position, said)
    assert bool(aside) == ("moved to bad-" in said)
    if name.name in ("config.json", "metrics.jsonl"):
        assert aside, f"bit {position} of {name} was not found"


def test_a_flipped_bit_of_any_file_is_found_or_changes_nothing(trained, expected, tmp_path, capfd):
    for name, position in flipped_bits(trained, 24):
        assert_found_or_harmless(trained, expected, tmp_path, name, position, capfd)


@pytest.mark.slow
def test_five_hundred_flipped_bits_are_found_or_change_nothing(trained, expected, tmp_path, capfd):
    for name, position in flipped_bits(trained, 500):
        assert_found_or_harmless(trained, expected, tmp_path, name, position, capfd)


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_each_single_flipped_bit_of_a_sealed_file_is_found(trained, tmp_path, name):
    path = tmp_path / name
    shutil.copy(trained / name, path)
    content = read_sealed(path)
    for position in range(0, 8 * path.stat().st_size, 3):  # every byte, and each of its bits in turn
        flip(path, position)
        with pytest.raises(DamagedError):
            read_sealed(path)
        flip(path, position)
    assert read_sealed(path) == content and "digest" not in content


DAMAGES = {
    "garbage": lambda path: path.write_bytes(b"garbage"),
    "an empty object": lambda path: path.write_text("{}\n"),
    "nothing": lambda path: path.write_bytes(b""),
    "lost": lambda path: path.unlink(),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.rename(path.with_name("kept")), path.symlink_to("nowhere")),
    "20 GB of zeros": lambda path: (path.write_bytes(b"\0"), os.truncate(path, 20_000_000_000)),
}


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.jsonl", "evaluations.jsonl"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_beside_a_good_checkpoint_no_other_file_is_needed(trained, expected, tmp_path, capfd, name, damage):
    directory = copy_of(trained, tmp_path)
    DAMAGES[damage](directory / name)
    assert same(outcome(directory), expected)
    is_missed = damage != "lost" or name != "summary.json"
    assert (name in capfd.readouterr().err) == is_missed
    assert os.path.lexists(directory / f"bad-{name}") == (damage != "lost")
    assert read_description(directory)["config"]["total_env_steps"] == SMALL["total_env_steps"]


def test_without_any_checkpoint_a_changed_config_is_refused(trained, tmp_path):
    directory = copy_of(trained, tmp_path)
    shutil.rmtree(directory / "checkpoints")
    flip(directory / "config.json", 4000)
    before = files_of(directory)
    with pytest.raises(StorageError, match=r"config.json .*no checkpoint holds it either: start again with --new"):
        resume(directory)
    assert files_of(directory) == before


def test_a_launcher_s_second_start_goes_on_with_a_damaged_directory(trained, tmp_path, capfd):
    directory = copy_of(trained, tmp_path)
    for name in ("config.json", "summary.json"):
        (directory / name).write_text("garbage")
    assert begin_or_continue(small_config(**SMALL), directory, quiet=True)["status"] == "done"
    assert "bad-config.json" in capfd.readouterr().err and read_sealed(directory / "summary.json")["status"] == "done"


def test_an_agent_is_loaded_past_a_damaged_config_which_stays_as_it_is(trained, tmp_path, capfd):
    from swell import load_policy

    directory = copy_of(trained, tmp_path)
    flip(directory / "config.json", 4000)
    before = (directory / "config.json").read_bytes()
    assert load_policy(directory).env_steps >= 600 and (directory / "config.json").read_bytes() == before
    assert "config.json" in capfd.readouterr().err


CHANGES = {
    "threads": "x",
    "versions": 1,
    "memory": {},
    "config": [],
    "changes": 5,
    "path": 5,
    "config/learning_rate": "x",
    "config/algorithm": [1],
    "config/foo": 1,
    "config/num_envs": 16,
    "config/hidden": [5],
    "memory/longest_horizon": 10**12,
    "memory/micro_batch_size": "x",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_config_that_was_changed_and_sealed_again_is_refused_in_a_line(trained, tmp_path, name):
    directory = copy_of(trained, tmp_path)
    described = read_sealed(directory / "config.json")
    above, _, last = name.rpartition("/")
    (described[above] if above else described)[last] = CHANGES[name]
    write_sealed(directory / "config.json", described)
    with pytest.raises(SwellError) as caught:
        outcome(directory)
    assert caught.value.exit_code == 5 and "\n" not in str(caught.value)


VALUES = (None, "x", -1, 1e308, 10**18, [], {}, True, {"$float": "7ff8000000000000"}, {"$int": "0x" + "f" * 40})


def places(node, path=()):
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node[:1]) if isinstance(node, list) else ()
    for name, child in children:
        yield from places(child, (*path, name))


def resealed(directory, path, value):
    """Puts a value somewhere into the newest state, as whoever makes up a checkpoint could."""
    newest = sorted((directory / "checkpoints").iterdir())[-1]
    tree = json.loads((newest / "state.json").read_text())
    *above, last = path
    node = tree
    for name in above:
        node = node[name]
    node[last] = value
    (newest / "state.json").write_text(json.dumps(tree))
    manifest = json.loads((newest / "MANIFEST.json").read_text())
    del manifest["digest"]
    manifest["files"]["state.json"] = checkpoint._fingerprint((newest / "state.json").read_bytes())
    (newest / "MANIFEST.json").write_bytes(checkpoint._seal(manifest))


def assert_goes_on_or_is_refused(trained, where, path, value):
    directory = copy_of(trained, where)
    resealed(directory, path, value)
    try:
        resume(directory, quiet=True)
    except (DivergedError, EnvironmentFailedError, StorageError):
        return


def made_up_states(trained, count):
    newest = sorted((trained / "checkpoints").iterdir())[-1]
    found = [path for path in places(json.loads((newest / "state.json").read_text())) if path]
    generator = random.Random(3)
    return [(generator.choice(found), generator.choice(VALUES)) for _ in range(count)]


def test_a_made_up_state_is_refused_in_a_line(trained, tmp_path):
    parts = ("run", "run/evaluation", "collector/env_steps", "logs/metrics/bytes", "scaler")
    for path in (tuple(part.split("/")) for part in parts):
        directory = copy_of(trained, tmp_path)
        resealed(directory, path, "x")
        with pytest.raises(StorageError, match=r"does not fit its config\.json") as caught:
            outcome(directory)
        assert "\n" not in str(caught.value)
    for path, value in made_up_states(trained, 12):
        assert_goes_on_or_is_refused(trained, tmp_path, path, value)


@pytest.mark.slow
def test_four_hundred_made_up_states_go_on_or_are_refused(trained, tmp_path):
    for path, value in made_up_states(trained, 400):
        assert_goes_on_or_is_refused(trained, tmp_path, path, value)


def test_a_run_whose_directory_is_deleted_ends_at_once_and_does_not_come_back(tmp_path, monkeypatch):
    directory, log, rows = tmp_path / "run", driver.Run._log, []

    def delete(self, *arguments):
        rows.append(1)
        if len(rows) == 5:
            shutil.rmtree(directory)
        log(self, *arguments)

    monkeypatch.setattr(driver.Run, "_log", delete)
    with pytest.raises(RunGoneError, match="was deleted or moved away under the run") as caught:
        run(small_config(**SMALL), directory, quiet=True)
    assert caught.value.exit_code == 5 and len(rows) == 5 and not directory.exists()


def test_a_disk_that_is_full_for_a_moment_at_the_very_end_costs_nothing(tmp_path, monkeypatch):
    tries, save = [], saving.save_checkpoint

    def full(directory, env_steps, state):
        if env_steps >= SMALL["total_env_steps"]:
            tries.append(env_steps)
            if len(tries) == 1:
                raise StorageError("no space left")
        return save(directory, env_steps, state)

    monkeypatch.setattr(saving, "save_checkpoint", full)
    monkeypatch.setattr(saving, "SECONDS_BETWEEN_TRIES", 0.0)
    summary = run(small_config(**SMALL), tmp_path / "run", quiet=True)
    found = load_newest(tmp_path / "run" / "checkpoints", print)
    assert summary["status"] == "done" and len(tries) >= 2 and found is not None and found[0] == summary["env_steps"]
