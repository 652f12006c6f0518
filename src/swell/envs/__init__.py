"""Environments: Gymnasium, Atari and MinAtar behind one convention. Nothing here imports torch."""
