"""Sweeps: options drawn by Optuna, trained on the queue of `swell bench`, the best written as a preset file."""
