"""Warm start: a new run that begins with a trained network."""

from pathlib import Path
from typing import Any

from swell.errors import ConfigError, StorageError
from swell.runs.checkpoint import load_newest
from swell.runs.description import read_description
from swell.runs.state_check import misfits_refused
from swell.types import Learner


def take_weights(learner: Learner, directory: str) -> None:
    """Gives a learner the network of the run in `directory`, normalisation included; all else of it starts anew."""
    other = read_description(Path(directory), "env")["config"]
    found = load_newest(Path(directory) / "checkpoints", lambda _: None)
    if found is None:
        raise StorageError(f"weights_from {directory} has no checkpoint yet: train it for longer")
    state = learner.state_dict()
    with misfits_refused(directory, found[0]):
        trained = found[1]["learner"]["network"]
        subject = f"weights_from {directory}: its network, trained on {other['env']},"
        _require_same_shapes(state["network"], trained, subject)
    state["network"] = trained
    if state.get("average") is not None:  # of recent weights, which are these alone
        state["average"] = {**state["average"], "network": trained}
    learner.load_state_dict(state)


def _require_same_shapes(here: dict[str, Any], there: dict[str, Any], subject: str) -> None:
    shapes_here, shapes_there = ({name: list(value.shape) for name, value in each.items()} for each in (here, there))
    for name in (*shapes_here, *shapes_there):
        own, other = shapes_here.get(name, "missing"), shapes_there.get(name, "missing")
        if own != other:
            raise ConfigError(
                f"{subject} is another: {name} is {other} there and {own} here; "
                "the same env, algorithm and network options give the same"
            )
