"""Language-model tests run on one core, offline and without telemetry."""

import os

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", HF_DATASETS_OFFLINE="1")

import socket

import pytest
import torch

pytest.importorskip("trl", reason='swell.llm needs the extra "trl"')

from swell.llm.tasks import SORTING, character_tokenizer, small_model, warm_start


@pytest.fixture(autouse=True)
def one_thread_and_no_network(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def refuse(self, address, *rest):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "localhost", "::1"):
            raise AssertionError(f"a test asked for the network: {address}")
        return connect(self, address, *rest)

    connect = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tokenizer():
    return character_tokenizer()


@pytest.fixture(scope="session")
def warm_weights(tokenizer):
    """Of a model that solves about a fifth of the sorting problems."""
    model = small_model(seed=1)
    warm_start(model, tokenizer, SORTING, steps=30, seed=1)
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture
def warm_model(warm_weights):
    model = small_model(seed=1)
    model.load_state_dict(warm_weights)
    return model
