"""The ways a run can end badly; each knows its exit code and says what to do in one line."""

import os


class SwellError(Exception):
    """Base of every error that is shown to a user as one line, without a traceback."""

    exit_code = 1
    is_everyones = False
    """Whether all processes of a run raise it at the same moment."""


class ConfigError(SwellError):
    """The configuration or the command line is wrong; nothing was created. Holds one line per fault."""

    exit_code = 2

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class InUseError(ConfigError):
    """Another process works in the directory."""


class DivergedError(SwellError):
    """A loss or a gradient stopped being a finite number."""

    exit_code = 3
    is_everyones = True


class EnvironmentFailedError(SwellError):
    """An environment raised, hung or returned something that its spaces do not allow."""

    exit_code = 4


class StorageError(SwellError):
    """A file or checkpoint cannot be written, read or trusted."""

    exit_code = 5


class OutOfMemoryError(SwellError):
    """The run does not fit into this machine's memory."""

    exit_code = 6


class LostProcessError(SwellError):
    """Another process of the run died, so this one cannot go on; started again, they continue together."""

    exit_code = 7


class OtherProcessError(SwellError):
    """Another process of the run says why it ends; this one only ends with it."""

    is_everyones = True

    def __init__(self, exit_code: int) -> None:
        super().__init__("another process of the run failed")
        self.exit_code = exit_code


class ProcessesDifferError(SwellError):
    """The processes of a run no longer have the same weights."""

    exit_code = 8
    is_everyones = True


def is_said_elsewhere(error: BaseException) -> bool:
    """Whether another process of the run prints this error, so that it is read once."""
    if isinstance(error, OtherProcessError):
        return True
    return os.environ.get("RANK", "0") != "0" and getattr(type(error), "is_everyones", False)


_OUT_OF_MEMORY_WORDS = (
    *("can't allocate memory", "not enough memory", "out of memory"),
    *("cannot allocate memory", "failed to map segment", "can't start new thread"),
)
"""How torch says it, whose CPU allocator has words of its own on Linux and on Windows, as GPUs have; and how the system
says it where libraries are loaded and threads started."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    if isinstance(error, MemoryError):
        return True
    speaks_of_it = isinstance(error, RuntimeError | ImportError | OSError)  # torch.OutOfMemoryError is a RuntimeError
    return speaks_of_it and any(words in str(error).lower() for words in _OUT_OF_MEMORY_WORDS)
