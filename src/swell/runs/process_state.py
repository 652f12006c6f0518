"""What of a run's state each of its processes has for itself: put together for a checkpoint, and dealt out from one."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from swell import ranks

State = dict[str, Any]
PROCESSES = "processes"
"""Where a checkpoint of several processes has what is their own, in their order; all else is the same in each."""
ENVS = ("collector/observations", "collector/envs")
COLUMNS = (
    "collector/episodes/return_so_far",
    "collector/episodes/length_so_far",
    "learner/reward_normalizer/returns",
)
DELAY, KEPT, PHASE = "collector/delay", "measurement/kept", "learner/phase"
OWN = (*ENVS, *COLUMNS, DELAY, KEPT, PHASE)


def gathered(state: State) -> State:
    """The state of all processes, in the first of them; in a run of one, the state itself."""
    if ranks.is_alone():
        return state
    parts = ranks.first_hears(own_part(state))
    return {**state, PROCESSES: parts}


def dealt(state: State | None) -> State | None:
    """From a checkpoint that the first process has read to the state of each; None where there was none."""
    if not ranks.first_says(state is not None):
        return None
    common, parts = taken_apart(state, ranks.place().count) if state is not None else ({}, None)
    return with_part(ranks.first_says(common), ranks.dealt(parts))


def taken_apart(state: State, count: int) -> tuple[State, list[State]]:
    """What all processes share, and what each of `count` processes gets for itself."""
    state = dict(state)
    parts = state.pop(PROCESSES, None) or [own_part(state)]
    return state, parts if len(parts) == count else shared_out_anew(parts, count)


def own_part(state: State) -> State:
    part: State = {}
    for path in OWN:
        value: Any = state
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        part[path] = value
    return part


def with_part(state: State, part: State) -> State:
    """A state whose own part is this one; what it has none of, stays away."""
    for path, value in part.items():
        *above, last = path.split("/")
        holder: Any = state
        for name in above:
            holder = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and last in holder:
            holder[last] = value
    return state


def shared_out_anew(parts: list[State], count: int) -> list[State]:
    """For another number of processes than had saved it. Envs start anew, and what waited to be trained on is lost."""
    dealt_parts: list[State] = [dict.fromkeys(OWN) for _ in range(count)]
    for path in COLUMNS:
        if parts[0][path] is not None:
            whole = np.concatenate([np.asarray(part[path]) for part in parts])
            is_tensor = isinstance(parts[0][path], Tensor)
            for part, columns in zip(dealt_parts, np.split(whole, count), strict=True):
                part[path] = torch.from_numpy(columns.copy()) if is_tensor else columns.copy()
    phases = phases_anew([part[PHASE] for part in parts], count) if parts[0][PHASE] is not None else [None] * count
    for part, phase in zip(dealt_parts, phases, strict=True):
        part[PHASE] = phase
        part[DELAY] = None if parts[0][DELAY] is None else {"waiting": []}
    return dealt_parts


def phases_anew(phases: list[State], count: int) -> list[State]:
    """The samples of a phase of PPG, split evenly and in their order."""
    if "are_own" in phases[0]:
        size = phases[0]["are_own"].shape[0]
        rows = next(phase["states"] for phase in phases if phase["states"].shape[0])
        states, returns = rows.new_empty((size, *rows.shape[1:])), torch.empty(size)
        for phase in phases:
            states[phase["are_own"]], returns[phase["are_own"]] = phase["states"], phase["returns"]
    else:
        states, returns = phases[0]["states"], phases[0]["returns"]
    if count == 1 or not returns.shape[0]:
        return [{"states": states, "returns": returns}] * count
    anew: list[State] = []
    for samples in torch.arange(returns.shape[0]).tensor_split(count):
        are_own = torch.zeros(returns.shape[0], dtype=torch.bool)
        are_own[samples] = True
        anew.append({"states": states[samples], "returns": returns[samples], "are_own": are_own})
    return anew
