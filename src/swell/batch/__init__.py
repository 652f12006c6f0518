"""The heart: signals, scalers and batch-size rules. They know nothing of envs, rollouts or runs."""
