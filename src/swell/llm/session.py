"""A run of a language model, from the names of its parts to its summary: started, resumed, interrupted, ended."""

import contextlib
import os
import shutil
import signal
import warnings
from collections.abc import Generator, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, cast

import datasets
import torch
import transformers

from swell.display.console import make_console, patient_console, say, warn
from swell.display.sinks import Sink
from swell.errors import ConfigError, StorageError
from swell.llm.checkpoints import newest_checkpoint, remove_torn_checkpoints
from swell.llm.config import GRPOConfig
from swell.llm.description import describe_run
from swell.llm.model_run import TASKS, ModelRun, Parts, make_config, one_line
from swell.llm.panel import ModelHeader, ModelView, RewardsSoFar
from swell.llm.run_log import RunLog
from swell.llm.sources import require_model
from swell.llm.tasks import accuracy
from swell.llm.trainer import GRPOTrainer
from swell.runs.description import read_description
from swell.runs.endings import told_endings
from swell.runs.interrupt import InterruptedRunError, StopRequest
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import (
    RunLock,
    create_run_directory,
    default_run_name,
    next_free,
    typed,
)
from swell.runs.start import differences, sound_summary
from swell.runs.trust import is_trusted, place_of_foreign_module, refusal

RESUME = "swell llm resume"
FRESH_PROBLEMS = 1000


def start(run: ModelRun, out: str | None, *, new: bool, quiet: bool) -> dict[str, Any]:
    """Trains in a new run directory and returns the summary. Faults are found before there is one."""
    hush()
    make_config(run.config)
    parts = Parts.load(run)
    require_model(run.model, trust_remote_code=bool(run.config.get("trust_remote_code")))
    return begin(run, parts, new_directory(run, out, new), quiet=quiet)


def begin(run: ModelRun, parts: Parts, directory: Path, *, quiet: bool) -> dict[str, Any]:
    """Trains in a directory that was made for it."""
    config = make_config(run.config, directory)
    with removed_on_failure(directory):
        trainer = make_trainer(run.model, parts, config)
    description = describe_run(trainer, config, _asked(run))
    with lock(directory):
        return drive(run, trainer, {**description, "asked": run.stored()}, directory, quiet)


def resume(directory: Path, total_completions: int | None, *, quiet: bool, trust: bool = False) -> dict[str, Any]:
    """Continues a run from its newest whole checkpoint; one that is done is returned as it is.

    `trust` imports whatever the directory names; without it, only rewards of installed packages.
    """
    described = read_description(directory, "llm")
    if "asked" not in described:
        raise ConfigError(
            f"{directory} is the run of a script: only that knows how to go on, by resume_from_checkpoint"
        )
    run = ModelRun.from_stored(described["asked"], directory)
    require_trusted_parts(run, directory, trust)
    if total_completions is not None:
        run = replace(run, config={**run.config, "total_completions": total_completions})
    summary = sound_summary(directory, warn)
    if summary.get("status") == "done" and total_completions in (None, described["config"]["total_completions"]):
        say(f"{directory} is done already; --total-completions lets it go on for longer", patient_console())
        return {**summary, "directory": str(directory)}
    with lock(directory):
        hush()
        torch.set_num_threads(described["threads"])  # another number of threads changes bits
        config = make_config(run.config, directory)
        found = newest_checkpoint(directory, config.batch_scaler != "none")
        seal = found[1] if found else {}
        if found and "logs" not in seal:
            raise StorageError(f"{found[0]} is of an earlier version of Swell; use the one that wrote it")
        total = total_completions or seal.get("total", 0)
        over = found is not None and seal["completions"] >= total  # killed between its last checkpoint and its summary
        trainer = make_trainer(str(found[0]) if found and over else run.model, Parts.load(run), config)
        now = {**describe_run(trainer, config, _asked(run)), "asked": run.stored()}
        if is_first_process():
            notices = [_where(found, total), *remove_torn_checkpoints(directory, found), *differences(described, now)]
            for notice in [] if quiet else notices:
                say(notice, patient_console())
        now["started"] = described.get("started", described["versions"])
        return drive(run, trainer, now, directory, quiet, found, over)


def require_trusted_parts(run: ModelRun, directory: Path, trust: bool) -> None:
    """What a directory names may be anybody's; a reward of an installed package gets nothing but completions."""
    if is_trusted(trust):
        return
    for name in run.reward:
        module = name.partition(":")[0]
        if (place := place_of_foreign_module(module)) is not None:
            raise refusal(directory, "reward", name, f"the module {module} is of no installed package ({place})")
    if run.config.get("trust_remote_code"):
        raise refusal(directory, "model", run.model, "trust_remote_code runs whatever code comes with it")


def drive(
    run: ModelRun,
    trainer: GRPOTrainer,
    description: Mapping[str, Any],
    directory: Path,
    quiet: bool,
    checkpoint: tuple[Path, dict[str, Any]] | None = None,
    over: bool = False,
) -> dict[str, Any]:
    """Trains to the end, or until something stops it; either way the summary is written."""
    stop = StopRequest()
    log = RunLog(
        trainer,
        directory,
        description,
        display=lambda total: make_display(description, directory, total, quiet),
        stop=lambda: stop.signal_number is not None,
        checkpoints=run.checkpoints,
        seal=checkpoint[1] if checkpoint else None,
    )
    trainer.add_callback(log)

    def last_good() -> str:
        found = newest_checkpoint(directory, trainer.moving is not None)
        return f"the last good checkpoint is {found[0].name}" if found else "no checkpoint had been written yet"

    try:
        with told_endings(
            log.finish_if_possible, last_good, "per_device_train_batch_size or max_generation_batch_size"
        ):
            if checkpoint is None and run.task:
                evaluate(run, trainer, log)
            if not over:
                with stop, silence() if quiet else contextlib.nullcontext():
                    trainer.train(resume_from_checkpoint=str(checkpoint[0]) if checkpoint else None)
                if log.stopped and log.completions < log.total:
                    text = f"stopped at {log.completions:,} completions; go on with {typed(RESUME, directory)}"
                    raise InterruptedRunError(text, stop.signal_number or signal.SIGTERM)  # another process had it
            evaluate(run, trainer, log)
            return log.finish("done")
    finally:
        log.close()


def evaluate(run: ModelRun, trainer: GRPOTrainer, log: RunLog) -> None:
    """On what the run keeps for it, unless this policy was evaluated just now."""
    rows = read_jsonl(log.directory / "evaluations.jsonl")
    if rows and rows[-1]["completions"] == log.completions:
        return
    if run.task:
        seed = 1_000_000 + trainer.args.seed  # apart from the problems trained on
        task, tokenizer = TASKS[run.task], trainer.processing_class
        log.evaluation(accuracy(trainer.model, tokenizer, task, problems=FRESH_PROBLEMS, seed=seed), FRESH_PROBLEMS)
    elif run.eval_dataset:
        cast(Any, trainer).evaluate()


def make_trainer(model: str, parts: Parts, config: GRPOConfig) -> GRPOTrainer:
    """Without Hugging Face's own way of showing progress."""
    try:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=parts.rewards,
            args=config,
            train_dataset=parts.prompts,
            eval_dataset=parts.held_out,
        )
    except (ValueError, OSError) as error:
        raise ConfigError(f"model {model}: {one_line(error)}") from error
    for shown in (transformers.PrinterCallback, transformers.ProgressCallback):
        trainer.remove_callback(shown)
    return trainer


def new_directory(run: ModelRun, out: str | None, new: bool) -> Path:
    """Where a run goes: made, and empty."""
    values = {f.name: f.default for f in fields(GRPOConfig) if f.default is not MISSING} | run.config
    name = default_run_name(run.title, values["loss_type"], values["batch_scaler"], values["seed"])
    directory = Path(out) if out else Path("runs") / name
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and new:
        raise ConfigError("--new cannot be shared by several processes: name a directory with --out")
    directory = next_free(directory) if new else directory
    if is_first_process():
        create_run_directory(directory, RESUME)
    return directory


@contextlib.contextmanager
def removed_on_failure(directory: Path) -> Generator[None]:
    """For a directory that was empty a moment ago: a run that never began leaves nothing."""
    try:
        yield
    except BaseException:
        if is_first_process():
            shutil.rmtree(directory, ignore_errors=True)
        raise


def lock(directory: Path) -> contextlib.AbstractContextManager[Any]:
    """Of several processes of one run, the first holds it."""
    return RunLock(directory) if is_first_process() else contextlib.nullcontext()


def make_display(description: Mapping[str, Any], directory: Path, total: int, quiet: bool) -> Sink:
    """With what the run has logged before, so that curves go on where they were."""
    config = description["config"]
    moves = config["batch_scaler"] in ("ramp", "adaptive")
    header = ModelHeader(
        task=config["env"],
        objective=config["loss_type"],
        network=description["network"],
        scaler=config["batch_scaler"],
        least_batch=config["min_generation_batch_size" if moves else "generation_batch_size"],
        most_batch=config["max_generation_batch_size" if moves else "generation_batch_size"],
        calibration_readings=config["settling_readings"] + config["calibration_readings"]
        if config["calm_reading"] == "auto"
        else 0,
        run_directory=str(directory),
    )
    view = ModelView(header, RewardsSoFar(total))
    for row in read_jsonl(directory / "metrics.jsonl"):
        view.add(row)
    for row in read_jsonl(directory / "evaluations.jsonl"):
        view.add_evaluation(row)
    return make_console(quiet or not is_first_process(), view)


def hush() -> None:
    """Hugging Face's libraries say much that is not about this run; how they will change is for developers."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|accelerate|datasets|torch)\b")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what it raises is told in one line


@contextlib.contextmanager
def silence() -> Generator[None]:
    """For what a trainer or a reward function prints."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _asked(run: ModelRun) -> dict[str, Any]:
    """What config.json has beside the fields of GRPOConfig."""
    return {
        "env": run.name,
        "label": run.label,
        "model": Path(run.model).name if run.task else run.model,
        "dataset": Path(run.dataset).name if run.task else run.dataset,
        "reward": ", ".join(run.reward),
    }


def _where(found: tuple[Path, dict[str, Any]] | None, total: int) -> str:
    if found is None:
        return "no checkpoint yet: the run starts anew"
    return f"going on from {found[0].name}: {found[1]['completions']:,} of {total:,} completions"


def is_first_process() -> bool:
    """Of those that train one model together: it alone makes files and speaks."""
    return int(os.environ.get("RANK", "0")) == 0
