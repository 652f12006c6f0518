"""Whether runs can be built at all, asked before any is started: their envs, learners, scalers and devices.

`python -m swell.bench.workers.check` reads configs on stdin, a JSON list, and answers with a JSON list of faults. It is
a process of its own because it imports torch, which the driver of a benchmark does without. Memory is not looked at:
what is free differs by the hour and by the machine.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from swell.config.imports import find_own_modules
from swell.config.run_config import RunConfig, config_from_dict
from swell.errors import ConfigError, SwellError

PATIENCE_SECONDS = 600.0
"""How long all of it may take; Atari's 57 games take some seconds."""


def faults_in_a_process(configs: Sequence[RunConfig]) -> list[str]:
    """What the answer of such a process says; a process that fails is a fault itself."""
    request = json.dumps([config.to_dict() for config in configs])
    command = [sys.executable, "-P", "-m", "swell.bench.workers.check"]
    try:
        answer = subprocess.run(command, input=request, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return [f"the envs did not start within {PATIENCE_SECONDS:.0f} s"]
    if answer.returncode:
        *_, last = ["", *answer.stderr.strip().splitlines()]
        return [f"the runs cannot be tried out: {last or f'the process ended with code {answer.returncode}'}"]
    return json.loads(answer.stdout.splitlines()[-1])


def faults_of(configs: Iterable[RunConfig]) -> Iterator[str]:
    """A line for each run that the library would refuse, in the words of `swell bench`."""
    for config in configs:
        try:
            _try(config)
        except SwellError as error:
            lines = error.faults if isinstance(error, ConfigError) else str(error).splitlines()
            for line in lines:
                told = line.removeprefix(f"{config.env}: ")
                # What `swell train` takes as --algorithm ppo, a benchmark takes as --set algorithm=ppo.
                way_out = re.sub(r"--([a-z-]+) (\S+)$", lambda match: f"--set {match[1]}={match[2]}", told)
                yield f"variant {config.label!r} on {config.env}: {way_out}"


def _try(config: RunConfig) -> None:
    """Builds one env and what learns from it, without kernels, buffers or processes, and lets them go again."""
    from swell.runs.build import make_learner, make_measurement, make_scaler, ramp_points, resolve_device, training_envs

    path = "compiled" if config.path == "compiled" else "autograd"
    config = replace(config, num_envs=1, async_envs=False, path=path)
    device = resolve_device(config.device)
    envs = training_envs(config)
    try:
        make_learner(config, envs.observation_space, envs.action_space, device)
        make_measurement(config, device)
        make_scaler(config, ramp_points(config) if config.scaler == "ramp" else None)
    finally:
        envs.close()


def main() -> None:
    find_own_modules()
    requests: list[dict[str, Any]] = json.load(sys.stdin)
    faults = list(faults_of(map(config_from_dict, requests)))
    print(json.dumps(faults), flush=True)


if __name__ == "__main__":
    main()
