"""How a command ends: in one line and an exit code, whatever happened and whoever reads it, or has stopped reading."""

import codecs
import errno
import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn, TextIO

from swell.display.words import to_ascii
from swell.errors import OutOfMemoryError, StorageError, SwellError, is_out_of_memory, is_said_elsewhere

REFUSED_BY_THE_SYSTEM = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENFILE),
}
"""What a file, or the place where output goes, can refuse."""
_PLAIN = "swell-plain"


def write_what_streams_can() -> None:
    """On a stream without UTF-8, texts are told in the characters that it has, instead of not at all."""
    codecs.register_error(_PLAIN, _in_ascii)
    if getattr(sys.stdout, "errors", None) == "strict":
        sys.stdout.reconfigure(errors=_PLAIN)  # pyright: ignore[reportAttributeAccessIssue]


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return to_ascii(error.object[error.start : error.end]), error.end


def flush_output() -> None:
    """Here, and not when Python ends, because here it can still be said that the output could not be written."""
    with suppress(AttributeError):  # nobody gave us a stdout
        sys.stdout.flush()


def fail(error: BaseException, arguments: list[str], exit_code: int | None = None) -> NoReturn:
    """Says in a line, or one for each fault, why nothing more is done, and exits as the kind of error wants it."""
    if "--debug" in arguments:
        traceback.print_exception(error)
    if not is_said_elsewhere(error):
        tell(said(error))
    known = named(error)
    leave(exit_code or (1 if known is None else known.exit_code))


def said(error: BaseException) -> list[str]:
    """The lines of an error."""
    shown = named(error)
    if shown is not None:
        return str(shown).splitlines() or [type(shown).__name__]
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return [f"unexpected {type(error).__name__}: {first}; --debug shows the traceback"]


def named(error: BaseException) -> SwellError | None:
    """The error as one of ours: what the system refuses, wherever that was noticed, has an exit code of its own."""
    if isinstance(error, SwellError):
        return error
    first = (str(error).splitlines() or ["no more is to be had"])[0]
    if is_out_of_memory(error):
        return OutOfMemoryError(f"out of memory: {first}; close other programs, or raise the limit of this process")
    if isinstance(error, OSError) and error.errno in REFUSED_BY_THE_SYSTEM:
        place = "the output" if error.filename is None else repr(os.fsdecode(error.filename))
        return StorageError(f"cannot use {place}: {error.strerror}")
    return None


def tell(lines: list[str]) -> None:
    """On stderr, if there is one that takes them."""
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by whoever started us
        return
    with suppress(OSError, ValueError):
        print(*(f"swell: {line}" for line in lines), sep="\n", file=sys.stderr, flush=True)


def end_quietly() -> NoReturn:
    """Whoever read our output has gone, as `head` does: nothing is left to say."""
    leave(141)  # 128 + SIGPIPE, a name that Windows does not have


def leave(exit_code: int) -> NoReturn:
    """Exits. What a stream does not take is thrown away first: Python would try again, and exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # pyright: ignore[reportUnnecessaryComparison]
            _flush_or_discard(stream)
    sys.exit(exit_code)


def _flush_or_discard(stream: TextIO) -> None:
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
