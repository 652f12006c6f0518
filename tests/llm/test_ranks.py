"""One run on two processes, which talk by gloo."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tests.support.small_llm import largest_difference

ROOT = Path(__file__).parents[2]


def train_on(ranks, directory, made_up, **settings):
    """The state and weights that each process ends with."""
    name = f"on-{ranks}"
    given = json.dumps({"settings": settings, "made_up": made_up, "name": name})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "src"), str(ROOT)])
    base = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    many = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "ACCELERATE_USE_CPU": "true",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.llm_rank", str(directory), given],
            env={**base, **({**many, "RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(outputs)
    files = [directory / f"{name}-{rank}" for rank in range(ranks)]
    return [(json.loads(f.with_suffix(".json").read_text()), load_file(f.with_suffix(".safetensors"))) for f in files]


@pytest.fixture
def directory(tmp_path, warm_weights):
    save_file({name: value.contiguous() for name, value in warm_weights.items()}, tmp_path / "warm.safetensors")
    return tmp_path


def test_two_processes_equal_one_with_twice_the_micro_batch(directory):
    """On made-up completions, so that nothing is sampled; the log-probs that come with them make e differ from 1."""
    shared = {
        "loss_type": "ess",
        "batch_scaler": "ramp",
        "num_iterations": 2,
        "max_generation_batch_size": 64,
        "total_completions": 200,
        "probe_completions": 64,
        "lr_scheduler_type": "linear",
        "min_generation_batch_size": 16,
    }
    ((one, alone),) = train_on(1, directory, True, per_device_train_batch_size=16, **shared)
    (first, weights), (second, same) = train_on(2, directory, True, per_device_train_batch_size=8, **shared)
    assert largest_difference(weights, same) == 0.0
    assert first["sizes"] == one["sizes"] and len(set(one["sizes"])) > 1
    assert first["ess"] == pytest.approx(one["ess"], abs=2e-5) and min(one["ess"]) < 0.95
    assert first["readings"] == pytest.approx(one["readings"], rel=2e-2)
    assert first["moving"]["prompts"] == second["moving"]["prompts"] == one["moving"]["prompts"]
    assert largest_difference(weights, alone) < 2e-4  # Adam's first steps make a sign of a rounding error


def test_two_processes_agree_on_every_size_of_an_adaptive_run(directory):
    shared = {"batch_scaler": "adaptive", "max_generation_batch_size": 64, "total_completions": 320}
    shared |= {
        "calibration_readings": 2,
        "settling_readings": 0,
        "smoothing": 0.5,
        "per_device_train_batch_size": 8,
        "loss_type": "ess",
    }
    (first, weights), (second, same) = train_on(2, directory, False, num_iterations=2, **shared)
    assert first["moving"] == second["moving"] and first["moving"]["generated"] >= 320
    assert len(set(first["sizes"])) > 1
    assert largest_difference(weights, same) == 0.0
