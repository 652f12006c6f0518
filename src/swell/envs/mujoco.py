"""MuJoCo: its warnings as Python warnings, and the state of a simulation as plain data and back, to the last bit.

By itself MuJoCo appends its warnings to a file in the working directory.

MuJoCo promises the same future from the same integration state, which holds positions, velocities, controls, time and
the forces from which its solver starts. An env also reads quantities that the last step left behind: `Ant-v5` takes
its speed from where the body was, before the last integration. Computing these anew (`mj_forward`) would move them to
the present, so they are saved as well and put back as they were.
"""

import warnings
from contextlib import suppress
from typing import Any, cast

import mujoco as untyped_mujoco
import numpy as np

from swell.envs.capture import NotPlainError

mujoco = cast(Any, untyped_mujoco)

READ_BETWEEN_STEPS = tuple(
    """
    xpos xquat xmat xipos ximat xanchor xaxis geom_xpos geom_xmat site_xpos site_xmat cam_xpos cam_xmat light_xpos
    light_xdir subtree_com subtree_linvel subtree_angmom cinert cdof cvel cacc cfrc_int cfrc_ext ten_length ten_velocity
    actuator_length actuator_velocity actuator_force qacc qfrc_bias qfrc_passive qfrc_actuator qfrc_smooth
    qfrc_constraint qfrc_inverse sensordata energy
    """.split()  # noqa: SIM905 - forty quoted names would be harder to read
)
"""Fields of MjData with a fixed size that an env may look at before it lets time go on."""

INTEGRATION = int(mujoco.mjtState.mjSTATE_INTEGRATION)

OLD_MODELS = "compiler attribute 'settotalmass' is deprecated"
"""Said of the models that Gymnasium ships; nothing for a user to act on."""


def route_mujoco_warnings() -> None:
    """A handler that somebody else has set stays."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_warn)


def capture_simulation(data: Any) -> dict[str, np.ndarray]:
    """Two vectors: the integration state, and what else the last step left in an `MjData`."""
    integration = np.empty(mujoco.mj_stateSize(data.model, INTEGRATION))
    mujoco.mj_getState(data.model, data, integration, INTEGRATION)
    return {"integration": integration, "left_behind": np.concatenate([field.ravel() for field in _left_behind(data)])}


def restore_simulation(data: Any, state: dict[str, np.ndarray]) -> None:
    fields = _left_behind(data)
    sizes = (mujoco.mj_stateSize(data.model, INTEGRATION), sum(field.size for field in fields))
    if sizes != (state["integration"].size, state["left_behind"].size):
        raise NotPlainError("the saved simulation has another size than this one")
    mujoco.mj_setState(data.model, data, state["integration"], INTEGRATION)
    ends = np.cumsum([field.size for field in fields])
    for field, values in zip(fields, np.split(state["left_behind"], ends[:-1]), strict=True):
        field[...] = values.reshape(field.shape)


def _left_behind(data: Any) -> list[np.ndarray]:
    return [getattr(data, name) for name in READ_BETWEEN_STEPS]


def _warn(message: str) -> None:
    if message.startswith(OLD_MODELS):
        return
    with suppress(Warning):  # where warnings are errors, one that leaves this function ends the process
        warnings.warn(f"MuJoCo: {message}", stacklevel=2)
