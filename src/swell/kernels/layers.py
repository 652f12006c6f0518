"""Plain networks, forward and backward, compiled: dense layers and small convolutions, norms, ReLU and tanh.

A network is a table of integers with one row a layer, so that widths and depth need no new machine code. All layers
read and write one flat vector of weights. With a batch of B samples, layer r has its outputs [B, n] in `activations`
from B · OUT on, and ∂loss/∂outputs at the same place of `slopes`.
"""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false, reportAssignmentType=false, reportCallIssue=false

import math
from typing import NamedTuple

import numpy as np

from swell.kernels.jit import kernel
from swell.kernels.views import matrix, vector

CONVOLVES = 0
"""1 for a convolution of pixels, 0 for a dense layer."""
SOURCE = 1
"""The layer whose outputs it takes; −1 takes what goes into the network."""
INPUTS, OUTPUTS = 2, 3
WEIGHT, BIAS = 4, 5
"""Where they start in the flat vector."""
SCALE, SHIFT = 6, 7
"""Those of the norm; −1 without one."""
GROUP = 8
"""How many neighbouring outputs are normalised together."""
ACTIVATION = 9
OUT, HAT, DEVIATION = 10, 11, 12
"""Places, per sample: of the outputs, of the normalised sums, and of the reciprocal deviations."""
PULL = 13
"""What its backward pass does to the slopes of its source: nothing, writes them, adds to them."""
CHANNELS, HEIGHT, WIDTH, KERNEL, FILTERS = 14, 15, 16, 17, 18
COLUMNS = 19

LINEAR, RELU, TANH = 0, 1, 2
NOTHING, WRITES, ADDS = 0, 1, 2

ONE = np.float32(1.0)
ZERO = np.float32(0.0)
FLAT_FROM = np.float32(8.0)
"""Beyond it tanh is 1 in float32."""
P1, P2, P3, P4 = map(np.float32, (0.13444525, 0.0035716302, 2.1895179e-05, 1.5231109e-08))
Q1, Q2, Q3, Q4 = map(np.float32, (0.46777853, 0.026164567, 0.00034113441, 8.522735e-07))


class Network(NamedTuple):
    """A network as kernels see it."""

    layers: np.ndarray
    """int64 [L, COLUMNS]."""
    epsilons: np.ndarray
    """float32 [L], of the norms."""
    weights: np.ndarray
    """float32, all parameters."""
    pixel_scale: np.ndarray
    """float32 [1], what a pixel of 1 counts."""


class Room(NamedTuple):
    """Memory for a pass through a network, of as many samples as it was made for."""

    inputs: np.ndarray
    """float32 [B, D]; of no width where pixels go in."""
    pixels: np.ndarray
    """uint8 [B, C · H · W]; of no width where numbers go in."""
    activations: np.ndarray
    hats: np.ndarray
    deviations: np.ndarray
    slopes: np.ndarray
    spare: np.ndarray
    """As large as the largest weight and as B times the widest layer."""


@kernel
def tanh(x: float) -> float:
    """x P(x²) / Q(x²), to 4e-7: a fit of our own, since there is no vectorised tanh to call."""
    if x > FLAT_FROM:
        x = FLAT_FROM
    elif x < -FLAT_FROM:
        x = -FLAT_FROM
    s = x * x
    above = (((P4 * s + P3) * s + P2) * s + P1) * s + ONE
    below = (((Q4 * s + Q3) * s + Q2) * s + Q1) * s + ONE
    return x * above / below


@kernel
def rows_of(memory: np.ndarray, place: int, width: int, count: int) -> np.ndarray:
    """[count, width] of what all layers share."""
    return matrix(memory, place * count, count, width)


@kernel
def from_place(memory: np.ndarray, place: int) -> np.ndarray:
    return vector(memory, place, memory.size - place)


@kernel
def inputs_of(layer: np.ndarray, network: Network, room: Room, count: int) -> np.ndarray:
    if layer[SOURCE] < 0:
        return room.inputs[:count]
    source = network.layers[layer[SOURCE]]
    return rows_of(room.activations, source[OUT], source[OUTPUTS], count)


@kernel
def forward(network: Network, room: Room, count: int) -> None:
    """Outputs of all layers for the first `count` rows of what is in the room."""
    for number in range(network.layers.shape[0]):
        layer = network.layers[number]
        outputs = rows_of(room.activations, layer[OUT], layer[OUTPUTS], count)
        bias = from_place(network.weights, layer[BIAS])
        if layer[CONVOLVES]:
            convolve(layer, network, room, layer[OUT] * count, count)
        else:
            inputs = inputs_of(layer, network, room, count)
            np.dot(inputs, matrix(network.weights, layer[WEIGHT], layer[OUTPUTS], layer[INPUTS]).T, outputs)
        width = layer[GROUP]
        rows = count * layer[OUTPUTS] // width
        groups = matrix(room.activations, layer[OUT] * count, rows, width)
        if layer[SCALE] >= 0:
            hats = matrix(room.hats, layer[HAT] * count, rows, width)
            deviations = from_place(room.deviations, layer[DEVIATION] * count)
            scale, shift = from_place(network.weights, layer[SCALE]), from_place(network.weights, layer[SHIFT])
            biases = layer[CONVOLVES] == 0  # a convolution starts from its bias
            normalise(groups, bias, biases, scale, shift, network.epsilons[number], hats, deviations)
        elif layer[CONVOLVES] == 0:
            add_bias(outputs, bias)
        activate(groups, layer[ACTIVATION])


@kernel
def pass_through(
    network: Network, room: Room, inputs: np.ndarray, pixels: np.ndarray, heads: np.ndarray, outputs: np.ndarray
) -> None:
    """The outputs [R, n] of some layers side by side; as many rows at a time as there is room for."""
    most = room.inputs.shape[0]
    for start in range(0, outputs.shape[0], most):
        count = min(most, outputs.shape[0] - start)
        room.inputs[:count] = inputs[start : start + count]
        room.pixels[:count] = pixels[start : start + count]
        forward(network, room, count)
        column = 0
        for head in heads:
            width = network.layers[head, OUTPUTS]
            outputs[start : start + count, column : column + width] = rows_of(
                room.activations, network.layers[head, OUT], width, count
            )
            column += width


@kernel
def add_bias(outputs: np.ndarray, bias: np.ndarray) -> None:
    for row in range(outputs.shape[0]):
        for column in range(outputs.shape[1]):
            outputs[row, column] += bias[column]


@kernel
def activate(outputs: np.ndarray, activation: int) -> None:
    if activation == RELU:
        for row in range(outputs.shape[0]):
            for column in range(outputs.shape[1]):
                output = outputs[row, column]
                outputs[row, column] = output * np.float32(output > ZERO)  # a choice would not be vectorised
    elif activation == TANH:
        for row in range(outputs.shape[0]):
            for column in range(outputs.shape[1]):
                outputs[row, column] = tanh(outputs[row, column])


@kernel
def normalise(
    rows: np.ndarray,
    bias: np.ndarray,
    biases: bool,
    scale: np.ndarray,
    shift: np.ndarray,
    epsilon: float,
    hats: np.ndarray,
    deviations: np.ndarray,
) -> None:
    """LayerNorm of each row; keeps what the backward pass needs."""
    width = rows.shape[1]
    share = ONE / np.float32(width)
    if biases:
        add_bias(rows, bias)
    for row in range(rows.shape[0]):
        mean, square = ZERO, ZERO
        for column in range(width):
            mean += rows[row, column]
        mean *= share
        for column in range(width):
            difference = rows[row, column] - mean
            square += difference * difference
        deviation = ONE / np.float32(math.sqrt(square * share + epsilon))
        deviations[row] = deviation
        for column in range(width):
            hat = (rows[row, column] - mean) * deviation
            hats[row, column] = hat
            rows[row, column] = hat * scale[column] + shift[column]


@kernel
def convolve(layer: np.ndarray, network: Network, room: Room, first: int, count: int) -> None:
    """Only pixels that are not zero are looked at: those of MinAtar are nearly all zero."""
    filters, taps = layer[FILTERS], room.spare
    for number in range(layer[KERNEL] ** 2 * layer[CHANNELS]):
        place = tap_place(layer, number)
        for each in range(filters):
            taps[place + each] = network.weights[weight_place(layer, each, number)] * network.pixel_scale[0]
    maps = from_place(room.activations, first)
    bias = from_place(network.weights, layer[BIAS])
    places = matrix(room.activations, first, count * layer[OUTPUTS] // filters, filters)
    for place in range(places.shape[0]):
        for each in range(filters):
            places[place, each] = bias[each]
    touch(layer, room.pixels, count, maps, taps, True)


@kernel
def convolve_back(
    layer: np.ndarray, network: Network, room: Room, first: int, count: int, gradient: np.ndarray
) -> None:
    """Adds the gradient of the filters; nothing goes on to the pixels."""
    filters, taps, size = layer[FILTERS], room.spare, layer[KERNEL] ** 2 * layer[CHANNELS]
    taps[: size * filters] = ZERO
    touch(layer, room.pixels, count, from_place(room.slopes, first), taps, False)
    for number in range(size):
        place = tap_place(layer, number)
        for each in range(filters):
            gradient[weight_place(layer, each, number)] += taps[place + each] * network.pixel_scale[0]


@kernel
def weight_place(layer: np.ndarray, each: int, number: int) -> int:
    """Where a filter's weight number (row, column, channel) is in the flat vector."""
    return layer[WEIGHT] + each * layer[KERNEL] ** 2 * layer[CHANNELS] + number


@kernel
def tap_place(layer: np.ndarray, number: int) -> int:
    """Where the same weights of all filters are while they are used: by channel, row and column from right to left.

    So the places of a row of the map that see one pixel lie beside each other, as do the weights with which they do.
    """
    size, channels = layer[KERNEL], layer[CHANNELS]
    channel, column, row = number % channels, number // channels % size, number // channels // size
    return ((channel * size + row) * size + size - 1 - column) * layer[FILTERS]


@kernel
def touch(
    layer: np.ndarray, pixels: np.ndarray, count: int, maps: np.ndarray, taps: np.ndarray, goes_forward: bool
) -> None:
    """For each pixel, and all places of the map that see it, adds the taps to the places, or the places to the taps."""
    channels, height, width = layer[CHANNELS], layer[HEIGHT], layer[WIDTH]
    size, filters = layer[KERNEL], layer[FILTERS]
    down, across = height - size + 1, width - size + 1
    for sample in range(count):
        for pixel in range(channels * height * width):
            if pixels[sample, pixel] == 0:
                continue
            value = np.float32(pixels[sample, pixel])
            channel, row, column = pixel // (height * width), pixel // width % height, pixel % width
            left, right = max(0, column - size + 1), min(across - 1, column)
            numbers = (right - left + 1) * filters
            for top in range(max(0, row - size + 1), min(down - 1, row) + 1):
                # Slices: numba would ask of each sum of two numbers whether it is an index from the end.
                place = from_place(maps, sample * layer[OUTPUTS] + (top * across + left) * filters)
                tap = from_place(taps, ((channel * size + row - top) * size + size - 1 - column + left) * filters)
                if goes_forward:
                    for number in range(numbers):
                        place[number] += tap[number] * value
                else:
                    for number in range(numbers):
                        tap[number] += place[number] * value


@kernel
def backward(network: Network, room: Room, count: int, gradient: np.ndarray, adds: bool) -> None:
    """The gradient of all weights from the slopes of the outputs, which are overwritten.

    Where it does not add, the dense layers overwrite what is in `gradient`; all else is added to it, so it has to be
    zero before the first pass.
    """
    for number in range(network.layers.shape[0] - 1, -1, -1):
        layer = network.layers[number]
        outputs = rows_of(room.activations, layer[OUT], layer[OUTPUTS], count)
        slopes = rows_of(room.slopes, layer[OUT], layer[OUTPUTS], count)
        width = layer[GROUP]
        rows = count * layer[OUTPUTS] // width
        groups = matrix(room.slopes, layer[OUT] * count, rows, width)
        activate_back(slopes, outputs, layer[ACTIVATION])
        if layer[SCALE] >= 0:
            hats = matrix(room.hats, layer[HAT] * count, rows, width)
            deviations = from_place(room.deviations, layer[DEVIATION] * count)
            scale_gradient = from_place(gradient, layer[SCALE])
            shift_gradient = from_place(gradient, layer[SHIFT])
            scale = from_place(network.weights, layer[SCALE])
            normalise_back(groups, hats, deviations, scale, scale_gradient, shift_gradient)
        bias_gradient = from_place(gradient, layer[BIAS])
        if layer[CONVOLVES]:
            places = count * layer[OUTPUTS] // layer[FILTERS]
            add_columns(matrix(room.slopes, layer[OUT] * count, places, layer[FILTERS]), bias_gradient)
            convolve_back(layer, network, room, layer[OUT] * count, count, gradient)
        else:
            add_columns(slopes, bias_gradient)
            dense_back(layer, network, room, count, slopes, gradient, adds)


@kernel
def dense_back(
    layer: np.ndarray, network: Network, room: Room, count: int, slopes: np.ndarray, gradient: np.ndarray, adds: bool
) -> None:
    inputs, start, size = inputs_of(layer, network, room, count), layer[WEIGHT], layer[INPUTS] * layer[OUTPUTS]
    if adds:
        spare = matrix(room.spare, 0, layer[OUTPUTS], layer[INPUTS])
        np.dot(slopes.T, inputs, spare)
        add(matrix(gradient, start, 1, size), matrix(room.spare, 0, 1, size))
    else:
        np.dot(slopes.T, inputs, matrix(gradient, start, layer[OUTPUTS], layer[INPUTS]))
    if layer[PULL] == NOTHING:
        return
    weight = matrix(network.weights, start, layer[OUTPUTS], layer[INPUTS])
    source = network.layers[layer[SOURCE]]
    pulled = rows_of(room.slopes, source[OUT], source[OUTPUTS], count)
    if layer[PULL] == WRITES:
        np.dot(slopes, weight, pulled)
        return
    spare = matrix(room.spare, 0, count, layer[INPUTS])
    np.dot(slopes, weight, spare)
    add(pulled, spare)


@kernel
def add(target: np.ndarray, others: np.ndarray) -> None:
    for row in range(target.shape[0]):
        for column in range(target.shape[1]):
            target[row, column] += others[row, column]


@kernel
def activate_back(slopes: np.ndarray, outputs: np.ndarray, activation: int) -> None:
    if activation == RELU:
        for row in range(slopes.shape[0]):
            for column in range(slopes.shape[1]):
                slopes[row, column] *= np.float32(outputs[row, column] > ZERO)
    elif activation == TANH:
        for row in range(slopes.shape[0]):
            for column in range(slopes.shape[1]):
                slopes[row, column] *= ONE - outputs[row, column] * outputs[row, column]


@kernel
def normalise_back(
    slopes: np.ndarray,
    hats: np.ndarray,
    deviations: np.ndarray,
    scale: np.ndarray,
    scale_gradient: np.ndarray,
    shift_gradient: np.ndarray,
) -> None:
    """∂/∂x = σ⁻¹ (g − mean g − x̂ mean(g x̂)), g = slopes · scale."""
    width = slopes.shape[1]
    share = ONE / np.float32(width)
    for row in range(slopes.shape[0]):
        mean, along = ZERO, ZERO
        for column in range(width):
            slope, hat = slopes[row, column], hats[row, column]
            scale_gradient[column] += slope * hat
            shift_gradient[column] += slope
            scaled = slope * scale[column]
            mean += scaled
            along += scaled * hat
        mean *= share
        along *= share
        for column in range(width):
            scaled = slopes[row, column] * scale[column]
            slopes[row, column] = deviations[row] * (scaled - mean - hats[row, column] * along)


@kernel
def add_columns(rows: np.ndarray, sums: np.ndarray) -> None:
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            sums[column] += rows[row, column]


@kernel
def squared_length(gradient: np.ndarray) -> float:
    """Of a vector, in parts, so that float32 sums stay exact enough; NaN stays NaN."""
    total = 0.0
    for start in range(0, gradient.size, 1024):
        part = ZERO
        for number in gradient[start : start + 1024]:
            part += number * number
        total += part
    return total
