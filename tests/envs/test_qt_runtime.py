"""Qt for Procgen: the system's, or else the one in a wheel."""

import ctypes
import importlib

import pytest

from swell.envs.qt_runtime import LIBRARY, load_qt


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    library = tmp_path / "PyQt5" / "Qt5" / "lib" / LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return library


@pytest.mark.parametrize("system_has_qt", [True, False])
def test_the_wheel_is_loaded_only_where_the_system_has_no_qt(system_has_qt, wheel, monkeypatch):
    loaded: list[str] = []

    def load(name: str) -> None:
        if name == LIBRARY and not system_has_qt:
            raise OSError("no such library")
        loaded.append(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    load_qt()
    assert loaded == ([LIBRARY] if system_has_qt else [str(wheel)])


def test_without_any_qt_nothing_is_raised_here(wheel, monkeypatch):
    """EnvPool notices it when an env is made, and that is where the user is told."""

    def fail(name: str) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    load_qt()
