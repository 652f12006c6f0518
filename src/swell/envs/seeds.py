"""Seeds of single envs, drawn from the seed of the run."""

import numpy as np


def env_seeds(seed: int, resume_count: int, num_envs: int) -> list[int]:
    """One seed per env. A resumed run gets others, so that it does not play its first episodes again."""
    return [int(word) >> 1 for word in np.random.SeedSequence((seed, resume_count)).generate_state(num_envs)]


def episode_seed(seed: int, resume_count: int, env_index: int, episode: int) -> int:
    """The seed of one episode of one env; 31 bits, because ALE takes a signed int."""
    words = np.random.SeedSequence((seed, resume_count, env_index, episode)).generate_state(1)
    return int(words[0]) >> 1
