"""What a wrong use is answered with."""

import pytest

from swell.errors import ConfigError


def refusal(act, *arguments, **named):
    with pytest.raises(ConfigError) as caught:
        act(*arguments, **named)
    (line,) = caught.value.faults
    assert "\n" not in line
    return line
