"""Numbers of every size: what fits into float32 passes, what does not is named."""

import numpy as np
import pytest
from gymnasium.spaces import Box

from swell.envs.spaces import BadAnswerError, ObservationEncoder


@pytest.mark.parametrize(
    ("dtype", "largest"), [(np.float16, 6e4), (np.float32, 3e38), (np.float64, 3e38), (np.longdouble, 3e38)]
)
@pytest.mark.filterwarnings("error")
def test_finite_numbers_within_float32_pass(dtype, largest):
    for value in (0.0, -1.5, 6e4, 1e25, -3e38):
        observation = np.clip(np.array([0.0, value]), -largest, largest).astype(dtype)
        encoded = ObservationEncoder(Box(-np.inf, np.inf, (2,), np.float64), "env").encode(observation)
        assert encoded.dtype == np.float32
        assert encoded.tolist() == observation.astype(np.float32).tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 4e38, -1e300])
@pytest.mark.filterwarnings("error")
def test_other_numbers_do_not(dtype, value):
    with np.errstate(over="ignore"):
        observation = np.array([0.0, value]).astype(dtype)
    with pytest.raises(BadAnswerError, match=r"expected a finite observation, got (nan|inf|-inf) at \(1,\)"):
        ObservationEncoder(Box(-np.inf, np.inf, (2,), np.float64), "env").encode(observation)
