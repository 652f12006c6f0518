"""Ray, if it is installed, and a connection to a cluster of it."""

import logging
from importlib import import_module
from typing import Any

from swell.errors import ConfigError


def import_ray(*parts: str) -> Any:
    """Ray with these parts of it, which it does not import by itself."""
    try:
        ray = import_module("ray")
        for part in parts:
            import_module(f"ray.{part}")
    except ImportError as error:
        raise ConfigError('Ray is not installed: pip install "swell-rl[ray]"') from error
    return ray


def connect(ray: Any, address: str | None) -> bool:
    """Whether it was this call that connected; without an address, to a Ray that is started on this machine."""
    if ray.is_initialized():
        return False
    where = {"include_dashboard": False} if address is None else {"address": address}
    try:
        ray.init(log_to_driver=False, logging_level=logging.WARNING, **where)
    except (ConnectionError, ValueError, RuntimeError) as error:
        way_out = "start one with `ray start --head`"
        raise ConfigError(f"no Ray cluster at {address!r}: {first_line(error)}; {way_out}") from error
    return True


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
