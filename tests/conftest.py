"""What all tests share: one thread, so that bits do not change between machines, and a fixed hypothesis seed."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def in_float64():
    """For tests that compare two ways of computing one thing."""
    from float64 import everything_in_float64

    with everything_in_float64():
        yield


@pytest.fixture(autouse=True, scope="session")
def compiled_kernels():
    """Before any test: a short run would go without kernels as long as there are none, and with them afterwards."""
    from swell.kernels.factory import can_compile

    if can_compile():
        from swell.runs.compiling import compile_kernels

        compile_kernels()
