"""One step of acting, compiled: from observations and noise to actions and what is recorded beside them."""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false

import math

import numpy as np

from swell.kernels.jit import kernel
from swell.kernels.layers import OUT, OUTPUTS, Network, Room, forward, rows_of
from swell.kernels.objectives import Heads

LARGEST = np.float32(10.0)
"""As `CLIP` of the normaliser of observations."""


@kernel
def standardise(inputs: np.ndarray, count: int, center: np.ndarray, scale: np.ndarray) -> None:
    """clip((x − center) · scale, −10, 10), where there is something to standardise by."""
    for row in range(count):
        for column in range(center.size):
            number = (inputs[row, column] - center[column]) * scale[column]
            if number > LARGEST:
                number = LARGEST
            elif number < -LARGEST:
                number = -LARGEST
            inputs[row, column] = number


@kernel
def make_gumbel(uniform: np.ndarray) -> None:
    """−log(−log u), in place: the largest of log p + such noise is a draw of p."""
    for place in range(uniform.size):
        uniform[place] = -math.log(-math.log(uniform[place]))


@kernel
def act(
    network: Network,
    room: Room,
    heads: Heads,
    count: int,
    noise: np.ndarray,
    parameters: np.ndarray,
    values: np.ndarray,
    choices: np.ndarray,
    points: np.ndarray,
) -> None:
    """Draws an action for each row in the room; writes the distributions, the values (if the network has
    them) and the actions.

    `noise` [N, P] is Gumbel noise for choices, which are the largest of log p + noise, and normal for points, which
    are not clipped.
    """
    forward(network, room, count)
    policy = network.layers[heads.policy]
    outputs = rows_of(room.activations, policy[OUT], policy[OUTPUTS], count)
    for row in range(count):
        if heads.value >= 0:
            values[row] = room.activations[network.layers[heads.value, OUT] * count + row]
        for column in range(policy[OUTPUTS]):
            parameters[row, column] = outputs[row, column]
        if heads.log_std >= 0:
            for column in range(policy[OUTPUTS]):
                log_std = network.weights[heads.log_std + column]
                parameters[row, policy[OUTPUTS] + column] = log_std
                points[row, column] = outputs[row, column] + np.float32(math.exp(log_std)) * noise[row, column]
        else:
            choose(outputs[row], heads.sizes, noise[row], choices[row])


@kernel
def act_in_row(
    network: Network,
    room: Room,
    heads: Heads,
    step: int,
    center: np.ndarray,
    scale: np.ndarray,
    noise: np.ndarray,
    parameters: np.ndarray,
    values: np.ndarray,
    choices: np.ndarray,
    points: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    clipped: np.ndarray,
) -> None:
    """Standardises what is in the room, acts, and writes into row `step` of everything that is [T, N, ...]."""
    count = values.shape[1]
    if center.size:
        standardise(room.inputs, count, center, scale)
    act(network, room, heads, count, noise[step], parameters[step], values[step], choices[step], points[step])
    if heads.log_std >= 0:
        clip(points[step], low, high, clipped[step])


@kernel
def choose(logits: np.ndarray, sizes: np.ndarray, noise: np.ndarray, actions: np.ndarray) -> None:
    """The largest of logit + noise in each part; logits differ from log-probabilities by a constant only."""
    start = 0
    for part in range(sizes.size):
        best, most = 0, np.float32(-np.inf)
        for place in range(sizes[part]):
            score = logits[start + place] + noise[start + place]
            if score > most:
                best, most = place, score
        actions[part] = best
        start += sizes[part]


@kernel
def clip(points: np.ndarray, low: np.ndarray, high: np.ndarray, clipped: np.ndarray) -> None:
    for row in range(points.shape[0]):
        for column in range(points.shape[1]):
            clipped[row, column] = min(max(points[row, column], low[column]), high[column])


@kernel
def act_greedily(
    network: Network,
    room: Room,
    head: int,
    count: int,
    explores: np.ndarray,
    random_actions: np.ndarray,
    epsilon: float,
    values: np.ndarray,
    actions: np.ndarray,
) -> None:
    """ε-greedy: the action of the largest Q-value, or a random one where the uniform number is below ε."""
    forward(network, room, count)
    layer = network.layers[head]
    q_values = rows_of(room.activations, layer[OUT], layer[OUTPUTS], count)
    for row in range(count):
        best = 0
        for action in range(1, layer[OUTPUTS]):
            if q_values[row, action] > q_values[row, best]:
                best = action
        values[row] = q_values[row, best]
        actions[row] = random_actions[row] if explores[row] < epsilon else best
