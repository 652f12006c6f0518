"""The log of actions keeps every unfinished game, however long."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from swell.envs.action_log import ActionLog


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 2)), min_size=1, max_size=8))
def test_the_log_holds_the_actions_of_the_unfinished_games(plays):
    """Each play is a number of steps, after which one of three envs starts a new game."""
    log, starts, rng = ActionLog(3), np.zeros(3, dtype=np.int64), np.random.default_rng(0)
    history: list[np.ndarray] = []
    for steps, ended in plays:
        for _ in range(steps):
            history.append(rng.integers(0, 18, 3))
            log.append(history[-1])
        log.forget(np.arange(3) == ended)
        starts[ended] = len(history)
    assert log.lengths.tolist() == (len(history) - starts).tolist()
    assert log.rows().tolist() == [row.tolist() for row in history[starts.min() :]]
