"""The same plan on a real Ray cluster of two nodes: the same bits, also when a worker is killed in mid-run."""

import os
import re
import signal
import threading
import time

import pytest
from kill import same
from small_bench import ADAPTIVE, result, small_plan

from swell import __version__
from swell.bench.board import QuietBoard
from swell.bench.queue import run_benchmark
from swell.bench.status import attempts, last_line, read_state
from swell.bench.workers import ray as ray_workers
from swell.bench.workers.process import carry_out
from swell.bench.workers.ray import RayExecutor, faults_here, run_here
from swell.errors import ConfigError
from swell.runs import ray_cluster
from swell.runs.interrupt import InterruptedRunError

pytest.importorskip("ray", reason='needs pip install "swell-rl[ray]"')


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with room for one run each, and no connection to them yet."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def request(folder, **changes):
    return {
        "root": str(folder),
        "token": ray_workers._token(folder),
        "version": __version__,
        "envs": [("CartPole-v1", "auto")],
        **changes,
    }


def kill_a_worker_of(run, root):
    """Waits until the run has a checkpoint, then kills the process that trains it; a second attempt may go on."""
    while not list((run.directory(root) / "checkpoints").glob("step-*")):
        time.sleep(0.01)
    os.kill(int(re.findall(r"by process (\d+)", run.log(root).read_text())[0]), signal.SIGKILL)


def test_a_worker_killed_in_mid_run_is_replaced_and_the_results_are_those_of_one_machine(tmp_path, cluster):
    runs = small_plan("fixed:8", ADAPTIVE)
    here, there = tmp_path / "here", tmp_path / "there"
    for run in runs:
        carry_out(run.directory(here), run.config)
    executor = RayExecutor(there, cluster.address)
    assert executor.capacity == 2
    killer = threading.Thread(target=kill_a_worker_of, args=(runs[1], there), daemon=True)
    killer.start()
    outcome = run_benchmark(runs, there, executor, QuietBoard())
    killer.join(0)
    assert not killer.is_alive() and not outcome.failed, outcome.report()
    assert [attempts(run, there) for run in runs] == [1, 2]
    assert "continued" in last_attempt(runs[1], there)
    for run in runs:
        assert same(result(run.directory(there)), result(run.directory(here)))


def last_attempt(run, root):
    return [line for line in run.log(root).read_text().splitlines() if line.startswith("--- attempt")][-1]


def test_a_signal_to_the_driver_lets_the_runs_of_all_nodes_save(tmp_path, cluster):
    [run] = small_plan(ADAPTIVE, total_env_steps=10_000_000)

    class Interrupts(QuietBoard):
        def show(self, states):
            if states[0].env_steps:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(InterruptedRunError) as stopped:
        run_benchmark([run], tmp_path, RayExecutor(tmp_path, cluster.address), Interrupts())
    assert stopped.value.exit_code == 143
    assert read_state(run, tmp_path).status == "interrupted"
    assert last_line(run.log(tmp_path)).startswith("stopped at ")


def test_nodes_of_another_version_are_refused_before_anything_runs(tmp_path, cluster, monkeypatch):
    monkeypatch.setattr(ray_workers, "__version__", "9.9.9")
    executor = RayExecutor(tmp_path, cluster.address)
    with pytest.raises(ConfigError, match=rf"node .* has Swell {re.escape(__version__)}, but .* with 9\.9\.9"):
        run_benchmark(small_plan(), tmp_path, executor, QuietBoard())
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fits_no_node_is_refused(tmp_path, cluster):
    executor = RayExecutor(tmp_path, cluster.address, cpus=64)
    with pytest.raises(ConfigError, match="no node of the Ray cluster has 64 CPUs"):
        run_benchmark(small_plan(), tmp_path, executor, QuietBoard())


def test_a_node_without_the_extra_or_the_shared_directory_names_itself(tmp_path):
    assert faults_here(request(tmp_path)) == []
    [fault] = faults_here(request(tmp_path, envs=[("CartPole-v1", "auto"), ("NoSuchEnv-v0", "auto")]))
    assert fault.startswith(f"node {os.uname().nodename}: ") and "NoSuchEnv" in fault
    [fault] = faults_here(request(tmp_path, token="another"))
    assert "does not see" in fault and fault.startswith(f"node {os.uname().nodename} ")
    [fault] = faults_here(request(tmp_path, root=str(tmp_path / "elsewhere")))
    assert "does not see" in fault


def test_a_task_refuses_before_it_trains(tmp_path):
    [run] = small_plan("fixed:8")
    where = {"directory": str(run.directory(tmp_path)), "log": str(run.log(tmp_path)), "config": run.config.to_dict()}
    code, words = run_here(request(tmp_path, version="9.9.9", **where))
    assert code == 2 and "9.9.9" in words and not run.directory(tmp_path).exists()


def test_what_a_run_prints_goes_to_its_log_and_its_failure_comes_back(tmp_path, capfd):
    [run] = small_plan("fixed:8")
    directory = run.directory(tmp_path)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{")
    where = {"directory": str(directory), "log": str(run.log(tmp_path)), "config": run.config.to_dict()}
    code, words = run_here(request(tmp_path, **where))
    assert code == 5 and "not JSON" in words
    assert last_line(run.log(tmp_path)) == words
    print("back on the screen", flush=True)
    assert capfd.readouterr().out == "back on the screen\n"


def test_the_missing_extra_is_named_in_one_line(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(ray_cluster, "import_module", missing)
    with pytest.raises(ConfigError, match=r'Ray is not installed: pip install "swell-rl\[ray\]"'):
        RayExecutor(tmp_path)
