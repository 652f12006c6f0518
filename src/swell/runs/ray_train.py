"""One run on the machines of a Ray cluster: Ray Train starts its processes, and starts them again if one dies.

What a process does is what it does under torchrun. The run directory has to be on a disk that all machines share.
"""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from swell.config.run_config import RunConfig
from swell.errors import ConfigError, LostProcessError, SwellError, is_said_elsewhere
from swell.runs.first_checks import directory_of, resolve
from swell.runs.launch import RESTARTS, require_divisible, summary_of
from swell.runs.ray_cluster import connect, first_line, import_ray
from swell.runs.run_directory import create_run_directory, next_free, read_json, write_json_atomic


def train_on_ray(
    config: RunConfig,
    out: Path | None = None,
    new: bool = False,
    address: str | None = None,
    workers: int = 2,
    cpus: float = 1.0,
    gpus: float = 0.0,
) -> dict[str, Any]:
    """Trains to the end and returns the summary; `address` is as for `swell bench`."""
    if workers < 1 or cpus <= 0 or gpus not in (0.0, 1.0):
        given = f"got {workers}, {cpus:g} and {gpus:g}"
        raise ConfigError(f"workers must be at least 1, cpus_per_worker more than 0, gpus_per_worker 0 or 1, {given}")
    config = resolve(config)
    require_divisible(config.num_envs, workers)
    ray = import_ray("train.torch")
    directory = directory_of(config, out).resolve()
    directory = next_free(directory) if new else directory
    connected_here = connect(ray, address)
    if not (directory / "config.json").exists():  # else the same command goes on with it, after whatever ended it
        create_run_directory(directory)
    try:
        _fit(ray, config, directory, workers, cpus, gpus)
    finally:
        if connected_here:
            ray.shutdown()
        with suppress(OSError):  # it is not empty
            directory.rmdir()
    _raise_what_was_noted(directory)
    return summary_of(directory)


def note_of(directory: Path) -> Path:
    """Where a worker leaves why its run failed, for the driver; beside the run, since that may never have begun."""
    return directory.with_name(f".{directory.name}.failure.json")


def _raise_what_was_noted(directory: Path) -> None:
    note = note_of(directory)
    if note.exists():
        noted = read_json(note)
        note.unlink()
        error = SwellError(noted["message"])
        error.exit_code = noted["code"]
        raise error


def _fit(ray: Any, config: RunConfig, directory: Path, workers: int, cpus: float, gpus: float) -> None:
    request = {"config": config.to_dict(), "directory": str(directory)}
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"  # the second half was never run
    each = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
    with tempfile.TemporaryDirectory() as ignored:  # what Ray Train itself would keep; our checkpoints are all there is
        trainer = ray.train.torch.TorchTrainer(
            _work,
            train_loop_config=request,
            scaling_config=ray.train.ScalingConfig(num_workers=workers, use_gpu=bool(gpus), resources_per_worker=each),
            run_config=ray.train.RunConfig(
                name="swell", storage_path=ignored, failure_config=ray.train.FailureConfig(max_failures=RESTARTS)
            ),
            torch_config=ray.train.torch.TorchConfig(backend=backend),
        )
        try:
            trainer.fit()
        except Exception as error:  # Ray has a class for each way in which workers can be lost
            raise LostProcessError(f"the run on Ray ended: {first_line(error)}; the same command goes on") from error


def _work(request: dict[str, Any]) -> None:
    """In each worker. What a run raises is noted, so that Ray sees only deaths as failures, and starts again."""
    from swell import ranks
    from swell.config.run_config import config_from_dict
    from swell.runs.start import begin_or_continue

    directory = Path(request["directory"])
    try:
        with ranks.join():
            begin_or_continue(config_from_dict(request["config"]), directory, quiet=True)
    except LostProcessError:
        raise
    except SwellError as error:
        if not is_said_elsewhere(error):
            write_json_atomic(note_of(directory), {"code": error.exit_code, "message": str(error)})
