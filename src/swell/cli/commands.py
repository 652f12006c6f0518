"""The commands and their options, each with the sentence that its help shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from swell.bench.command import Bench
from swell.config.run_config import RunConfig
from swell.report.command import Report
from swell.sweep.command import Sweep


@dataclass(frozen=True)
class Train:
    """Train an agent on ENV in a new run directory.

    The preset sets every default below; each option can be changed on its own. Shown are the options that the algorithm
    and the scaler read; --help-all shows every one.
    """

    config: RunConfig
    out: Path | None = None
    """Run directory; by default runs/<env>-<algorithm>-<scaler>-s<seed>. One that holds a run is never overwritten."""
    new: bool = False
    """Take the next free name (…-2, …-3) where the run directory is in use."""
    processes: int = 1
    """Processes of this machine that share the run, each with a part of the envs; under torchrun it says how many.
    Small networks are slower with more than one: docs/processes.md."""
    on: Literal["local", "ray"] = "local"
    """Where the processes run: on this machine, or on a Ray cluster that shares the run directory."""
    workers: int = 2
    """Ray: processes that share the run."""
    cpus_per_worker: float = 1.0
    """Ray: CPUs that it reserves for each."""
    gpus_per_worker: float = 0.0
    """Ray: GPUs that it reserves for each; 0 or 1."""
    address: str | None = None
    """Ray: address of the cluster, such as `auto` or `ray://head:10001`; by default a Ray of this machine alone."""
    report: bool = False
    """Also write report.html into the run directory at the end."""
    quiet: bool = False
    """Print only the report at the end."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Resume:
    """Continue a run from its newest good checkpoint, after any kind of end."""

    directory: tyro.conf.Positional[Path]
    """Run directory."""
    steps: int | None = None
    """New total of env steps, to go on for longer than first asked; never fewer than are done."""
    set: tuple[str, ...] = ()
    """Options to change from now on, as `learning_rate=1e-4 epochs=4`; docs/configuration.md says which can be."""
    processes: int = 1
    """Processes of this machine that share the run; with another number than before, unfinished episodes start anew."""
    trust: bool = False
    """Import what the directory names, whoever made it: envs and parts that are of no installed package."""
    quiet: bool = False
    """Print only the report at the end."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Evaluate:
    """Score the greedy policy of a run over whole episodes, unclipped."""

    directory: tyro.conf.Positional[Path]
    """Run directory."""
    episodes: int = 100
    """Episodes to play."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which weights to take."""
    seed: int | None = None
    """Seed of the envs; by default drawn from the run's."""
    video: Path | None = None
    """Also film one episode into this file (.mp4 or .gif)."""
    render: bool = False
    """First play one episode in the env's own window."""
    trust: bool = False
    """Import what the directory names, whoever made it: envs and networks that are of no installed package."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Export:
    """Write the greedy policy of a run as one file for other programs, with a model card, and check it."""

    directory: tyro.conf.Positional[Path]
    """Run directory."""
    format: Literal["onnx", "torchscript", "state-dict"] = "onnx"
    """Kind of file; onnx needs the extra of that name."""
    out: Path | None = None
    """Where to write; by default export/<format> in the run directory."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which weights to take."""
    trust: bool = False
    """Import what the directory names, whoever made it: a network that is of no installed package."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Presets:
    """List the presets, one line each."""


@dataclass(frozen=True)
class Scale:
    """Carry the hyper-parameters of a preset from one batch size to another, by the rules of arXiv 2110.00641."""

    from_batch: int
    """Transitions per rollout at which they were tuned."""
    to_batch: int
    """Transitions per rollout that you want."""
    preset: str = "ppg-ewma"
    """Recipe that they come from."""
    env: str = "procgen/coinrun"
    """Env whose kind the preset goes by."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Llm:
    """Train language models: GRPO on TRL with a batch that grows. `swell llm --help` lists its commands."""


@dataclass(frozen=True)
class Compile:
    """Compile the kernels of small networks, once for this machine; a long run does so by itself."""


Command = Train | Resume | Evaluate | Export | Presets | Scale | Bench | Sweep | Report | Compile | Llm
