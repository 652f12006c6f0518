"""A trained policy as one file for other programs, with a card that says what it is."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from swell.errors import ConfigError, StorageError
from swell.learning.distributions import ActionSpace
from swell.networks.parts import FORBIDDEN
from swell.runs.agent import Policy, Which, load_policy
from swell.runs.build import make_learner
from swell.runs.model_card import model_card
from swell.runs.run_directory import replace_durably, storage_errors

ExportFormat = Literal["onnx", "torchscript", "state-dict"]
FILES: dict[ExportFormat, str] = {"onnx": "policy.onnx", "torchscript": "policy.pt", "state-dict": "policy.safetensors"}
CARD = "MODEL_CARD.md"
CHECKED = 1000
"""Observations on which an exported file is compared with the policy."""
TOLERANCE = 1e-4
"""Largest difference, relative to the largest output: a runtime may add the same float32 numbers in another order."""
LARGEST_INPUT = 10.0
"""Of made-up observations, where the space itself has no bound."""

Outputs = tuple[np.ndarray, np.ndarray]
"""Actions, and what they were chosen by."""


@dataclass(frozen=True)
class Check:
    """How an exported file did beside the policy."""

    observations: int
    agreeing: int
    """Rows with the same action."""
    difference: float
    """Largest one between outputs."""


class GreedyPolicy(nn.Module):
    """From observations to greedy actions, and to the Q-values or parameters that they were chosen by."""

    def __init__(self, network: nn.Module, space: ActionSpace | None) -> None:
        """A Q-network has no `space`."""
        super().__init__()
        self.network = network
        self._space = space

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        if self._space is None:
            q_values = self.network(observations)
            return q_values.argmax(dim=1), q_values
        parameters = self.network.policy(observations)  # pyright: ignore[reportCallIssue]
        return self._space.for_env(self._space.kind.distribution(parameters).mode()), parameters


def export(
    directory: str | Path,
    format: ExportFormat = "onnx",
    out: str | Path | None = None,
    which: Which = "newest",
    trust: bool = False,
) -> Path:
    """Writes the policy of a run as one file and a model card, into `out` or `<directory>/export/<format>`.

    The file is run on 1,000 made-up observations before it is announced; where it does not do what the policy does, it
    is deleted and a StorageError says how far it was off. Returns the path of the file.
    """
    if format not in FILES:
        raise ConfigError(f"format must be one of {', '.join(FILES)}, got {format!r}")
    if format == "onnx" and not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
        raise ConfigError('format onnx needs the onnx extra: pip install "swell-rl[onnx]"')
    policy = load_policy(directory, which, device="cpu", trust=trust)
    target = Path(out) if out is not None else Path(directory) / "export" / format
    path = target / FILES[format]
    module = GreedyPolicy(policy.network, getattr(policy.learner, "space", None)).eval()
    observations = made_up_observations(policy.spaces.observation, policy.spaces.masks, CHECKED)
    with storage_errors("write", path):
        target.mkdir(parents=True, exist_ok=True)
        runs = WRITERS[format](policy, module, path, torch.from_numpy(observations[:2]))
        check = compared(module, runs, observations)
        if check.difference > 1.0 or check.agreeing < 0.99 * check.observations:
            path.unlink()
            raise StorageError(
                f"{path} was not kept: of {check.observations} actions {check.agreeing} are those of the policy, and "
                f"outputs differ by {check.difference * TOLERANCE:.1e} of the largest; try another --format"
            )
        (target / CARD).write_text(model_card(policy, Path(directory), format, FILES[format], vars(check)))
    return path


def made_up_observations(space: Space[Any], masks: int, count: int) -> np.ndarray:
    """Numbers of every size that the space has; some actions of each row are allowed where there are masks."""
    shape, dtype = (count, *(space.shape or ())), np.dtype(space.dtype)
    generator = np.random.default_rng(0)
    bounds: Any = space
    if dtype.kind in "bu":
        rows = generator.integers(bounds.low, bounds.high, shape, np.int64, endpoint=True)
    else:
        low, high = (np.clip(side, -LARGEST_INPUT, LARGEST_INPUT) for side in (bounds.low, bounds.high))
        rows = generator.uniform(low, high, shape)
    if masks:
        rows[:, -masks:] = generator.integers(0, 1, (count, masks), endpoint=True)
        rows[np.arange(count), -generator.integers(1, masks, count, endpoint=True)] = 1
    return rows.astype(dtype)


@torch.no_grad()
def compared(module: nn.Module, runs: Callable[[np.ndarray], Outputs], observations: np.ndarray) -> Check:
    """`difference` is in units of the tolerance."""
    actions, outputs = (tensor.numpy() for tensor in module(torch.from_numpy(observations)))
    others, other_outputs = runs(observations)
    size = np.abs(outputs[outputs > FORBIDDEN]).max()
    difference = np.abs(outputs - other_outputs).max() / (TOLERANCE * size)
    same = np.isclose(actions, others, rtol=TOLERANCE, atol=TOLERANCE).reshape(len(actions), -1).all(axis=1)
    return Check(len(observations), int(same.sum()), float(difference))


def _write_onnx(policy: Policy, module: nn.Module, path: Path, example: Tensor) -> Callable[[np.ndarray], Outputs]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        program: Any = torch.onnx.export(
            module,
            (example,),
            input_names=["observations"],
            output_names=["actions", "outputs"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    replace_durably(path, program.model_proto.SerializeToString())
    from onnxruntime import InferenceSession

    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def runs(observations: np.ndarray) -> Outputs:
        actions, outputs = session.run(None, {"observations": observations})
        return np.asarray(actions), np.asarray(outputs)

    return runs


def _write_torchscript(
    policy: Policy, module: nn.Module, path: Path, example: Tensor
) -> Callable[[np.ndarray], Outputs]:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced: Any = torch.jit.trace(module, (example,))
        replace_durably(path, traced.save_to_buffer())
        loaded: Any = torch.jit.load(str(path))
    return _run_by(loaded)


def _write_state_dict(
    policy: Policy, module: nn.Module, path: Path, example: Tensor
) -> Callable[[np.ndarray], Outputs]:
    state = {name: value.contiguous() for name, value in policy.network.state_dict().items()}
    replace_durably(path, safetensors.torch.save(state, metadata={"config": json.dumps(policy.config.to_dict())}))
    spaces = policy.spaces
    other = make_learner(policy.config, spaces.observation, spaces.action, torch.device("cpu"))
    other.network.load_state_dict(safetensors.torch.load_file(path))
    return _run_by(GreedyPolicy(other.network, getattr(other, "space", None)).eval())


def _run_by(module: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Callable[[np.ndarray], Outputs]:
    def runs(observations: np.ndarray) -> Outputs:
        with torch.no_grad():
            actions, outputs = module(torch.from_numpy(observations))
        return actions.numpy(), outputs.numpy()

    return runs


Writer = Callable[[Policy, nn.Module, Path, Tensor], Callable[[np.ndarray], Outputs]]
WRITERS: dict[ExportFormat, Writer] = {
    "onnx": _write_onnx,
    "torchscript": _write_torchscript,
    "state-dict": _write_state_dict,
}
"""Each writes the file and returns what runs it."""
