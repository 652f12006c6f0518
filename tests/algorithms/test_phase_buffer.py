"""What a phase remembers: bytes stay bytes, nothing is lost when it grows."""

import pytest
import torch
from swell.algorithms.phase_buffer import PhaseBuffer

from swell.runs.state_tree import decode_tree, encode_tree


def rows(start, count, dtype=torch.uint8):
    states = torch.arange(start, start + count).view(-1, 1, 1).expand(-1, 2, 3).to(dtype)
    return states, torch.arange(start, start + count) / 10.0


def holds(buffer, *parts):
    states, returns = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return torch.equal(buffer.states, states) and torch.equal(buffer.returns, returns)


@pytest.mark.parametrize("expected_rows", [1, 6, 100])
def test_rows_come_out_as_they_went_in_however_many_were_expected(expected_rows):
    buffer = PhaseBuffer(expected_rows)
    parts = [rows(0, 4), rows(4, 3), rows(7, 20)]
    for number, part in enumerate(parts):
        buffer.add(*part)
        assert holds(buffer, *parts[: number + 1])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32, torch.float64])
def test_observations_keep_the_dtype_of_the_env(dtype):
    buffer = PhaseBuffer(2)
    for start in (0, 2):
        buffer.add(*rows(start, 2, dtype))
    assert buffer.states.dtype == dtype and buffer.returns.dtype == torch.float32


def test_memory_is_allocated_once_for_the_expected_rows():
    buffer = PhaseBuffer(10)
    buffer.add(*rows(0, 4))
    address = buffer.states.data_ptr()
    buffer.add(*rows(4, 6))
    assert buffer.states.data_ptr() == address
    buffer.clear()
    buffer.add(*rows(0, 10))
    assert buffer.states.data_ptr() == address


def test_a_buffer_keeps_copies():
    buffer, (states, returns) = PhaseBuffer(4), rows(0, 4)
    states = states.clone()
    buffer.add(states, returns)
    states.zero_()
    returns.zero_()
    assert holds(buffer, rows(0, 4))


def test_a_cleared_buffer_starts_anew():
    buffer = PhaseBuffer(4)
    buffer.add(*rows(0, 9))
    buffer.clear()
    assert len(buffer.states) == len(buffer.returns) == 0
    buffer.add(*rows(50, 2))
    assert holds(buffer, rows(50, 2))


@pytest.mark.parametrize("count", [0, 3, 9])
def test_a_restored_buffer_goes_on_as_the_original(count):
    buffer, restored = PhaseBuffer(5), PhaseBuffer(5)
    restored.add(*rows(100, 7))  # what it held before does not matter
    parts = [rows(0, count)] if count else []
    for part in parts:
        buffer.add(*part)
    restored.load_state_dict(decode_tree(*encode_tree(buffer.state_dict())))
    assert len(restored.returns) == count
    restored.add(*rows(count, 4))
    assert holds(restored, *parts, rows(count, 4))
