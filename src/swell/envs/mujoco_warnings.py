"""MuJoCo's warnings as Python warnings: by itself it appends them to a file in the working directory."""

import warnings
from contextlib import suppress
from typing import Any, cast

import mujoco as untyped_mujoco

mujoco = cast(Any, untyped_mujoco)

OLD_MODELS = "compiler attribute 'settotalmass' is deprecated"
"""Said of the models that Gymnasium ships; nothing for a user to act on."""


def route_mujoco_warnings() -> None:
    """A handler that somebody else has set stays."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_warn)


def _warn(message: str) -> None:
    if message.startswith(OLD_MODELS):
        return
    with suppress(Warning):  # where warnings are errors, one that leaves this function ends the process
        warnings.warn(f"MuJoCo: {message}", stacklevel=2)
