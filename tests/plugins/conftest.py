"""Without the libraries there is nothing to test here; `make test-plugins` has them."""

import pytest

pytest.importorskip("stable_baselines3", reason='swell.plugins.sb3 needs the extra "sb3"')
pytest.importorskip("sb3_contrib", reason="the tests of swell.plugins.sb3 need sb3-contrib")
pytest.importorskip("tianshou", reason='swell.plugins.tianshou needs the extra "tianshou"')
