"""One seed per consumer of randomness."""

import numpy as np

SEED_PURPOSES = ("envs", "network", "learner", "probes", "evaluation", "horizons", "prompts", "sweep")


def derive_seed(seed: int, purpose: str, occasion: int = 0) -> int:
    """A seed for one purpose (and occasion) of a run, so that no consumer can disturb another."""
    return int(np.random.SeedSequence((seed, SEED_PURPOSES.index(purpose), occasion)).generate_state(1)[0])
