"""Procgen draws with Qt 5, which EnvPool does not bring along: it comes from the system or from a wheel."""

import ctypes
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

LIBRARY = "libQt5Gui.so.5"
HOW_TO_GET_QT = "`apt install libqt5gui5` or `dnf install qt5-qtbase`; without root rights `pip install PyQt5-Qt5`"


def load_qt() -> None:
    """Loads Qt from the PyQt5-Qt5 wheel where the system has none, so that EnvPool finds it by name.

    Has to happen before EnvPool is imported, which tries only once. Elsewhere than on Linux this does nothing.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        with suppress(OSError):  # the wheel's Qt in turn may miss libGL: EnvPool says that Qt is missing
            for path in _wheel_libraries():
                ctypes.CDLL(str(path))


def _wheel_libraries() -> list[Path]:
    spec = find_spec("PyQt5")
    places = spec.submodule_search_locations if spec is not None else None
    return [path for place in places or [] if (path := Path(place) / "Qt5" / "lib" / LIBRARY).exists()]
