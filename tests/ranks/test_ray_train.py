"""A run on a Ray cluster of two nodes, one of whose workers is killed, is the run of two processes here."""

import os
import signal
import threading
import time

import pytest
from kill import outcome, same
from test_processes import arguments_of, config_of, finished, start

from swell.errors import ConfigError, SwellError
from swell.runs.ray_train import train_on_ray
from swell.runs.run_directory import read_json

pytest.importorskip("ray.train", reason='needs pip install "swell-rl[ray]"')


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with room for one worker each."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def kill_who_writes(directory, killed):
    """Kills the process that holds the run, once there is a checkpoint."""
    while not list((directory / "checkpoints").glob("step-*")):
        time.sleep(0.01)
    killed.append(int((directory / "run.lock").read_text().split()[1]))
    os.kill(killed[0], signal.SIGKILL)


@pytest.mark.slow
def test_a_run_on_ray_whose_worker_is_killed_ends_like_one_of_two_processes_here(tmp_path, cluster):
    here, there, killed = tmp_path / "here", tmp_path / "there", []
    code, said = finished(start(arguments_of(config_of(), here), 2))
    assert code == 0, said
    killer = threading.Thread(target=kill_who_writes, args=(there, killed), daemon=True)
    killer.start()
    summary = train_on_ray(config_of(), there, address=cluster.address, workers=2)
    assert killed and summary["status"] == "done"
    assert read_json(there / "config.json")["processes"] == 2
    assert same(outcome(there), outcome(here))


@pytest.mark.slow
def test_what_workers_refuse_is_said_by_the_driver_and_not_tried_again(tmp_path, cluster):
    with pytest.raises(SwellError, match="cannot import no_such") as refused:
        train_on_ray(config_of(signal="no_such:thing"), tmp_path / "run", address=cluster.address, workers=2)
    assert refused.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_what_workers_cannot_share_is_refused_before_ray_is_asked(tmp_path):
    with pytest.raises(ConfigError, match="num_envs must be divisible by the 3 processes, got 8"):
        train_on_ray(config_of(), tmp_path / "run", workers=3)
    with pytest.raises(ConfigError, match="gpus_per_worker 0 or 1"):
        train_on_ray(config_of(), tmp_path / "run", gpus=0.5)
