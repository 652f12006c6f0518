"""Encoders such as a user would write, for `network="own_networks:…"`; one is right."""

from torch import nn

not_a_function = 3


def make(shape):
    (inputs,) = shape
    return nn.Sequential(nn.Linear(inputs, 12), nn.GELU(), nn.Linear(12, 6), nn.Tanh())


def make_maps(shape):
    """Returns [B, 4, 3] instead of [B, F]."""
    return nn.Sequential(nn.Linear(shape[0], 12), nn.Unflatten(1, (4, 3)))


def make_too_wide(shape):
    """Wants one number more than an observation has."""
    return nn.Linear(shape[0] + 1, 8)


def make_nothing(shape):
    return None
