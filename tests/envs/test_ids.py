"""What a user may type for an env, and what comes back when it is wrong."""

import subprocess
import sys

import pytest

import swell.envs.ids as ids
from swell.envs import env_family, resolve_env_id
from swell.errors import ConfigError

needs_ale = pytest.mark.skipif(ids.find_spec("ale_py") is None, reason="needs ale-py")
needs_minatar = pytest.mark.skipif(ids.find_spec("minatar") is None, reason="needs minatar")


@pytest.fixture
def everything_installed(monkeypatch):
    """Makes every package look installed: what an id stands for does not depend on it."""
    monkeypatch.setattr(ids, "find_spec", lambda package: object())


@needs_ale
@pytest.mark.parametrize(
    ("typed", "env_id"),
    [
        ("pong", "ALE/Pong-v5"),
        ("Pong", "ALE/Pong-v5"),
        ("space_invaders", "ALE/SpaceInvaders-v5"),
        ("MsPacman", "ALE/MsPacman-v5"),
        ("mspacman", "ALE/MsPacman-v5"),
        ("ale/breakout", "ALE/Breakout-v5"),
        ("ALE/Breakout-v5", "ALE/Breakout-v5"),
    ],
)
def test_short_names_stand_for_atari_games(typed, env_id):
    assert resolve_env_id(typed) == env_id


@needs_ale
def test_every_registered_atari_game_has_a_name_here():
    import ale_py.roms

    multi_player = {"combat", "joust", "maze_craze", "warlords"}
    assert set(ids.ATARI_GAMES) == set(ale_py.roms.get_all_rom_ids()) - multi_player
    assert all(ids.atari_game(ids.atari_id(game)) == game for game in ids.ATARI_GAMES)


@needs_minatar
@pytest.mark.parametrize(
    ("typed", "env_id"),
    [
        ("minatar/breakout", "MinAtar/Breakout-v1"),
        ("minatar/space_invaders", "MinAtar/SpaceInvaders-v1"),
        ("MinAtar/SpaceInvaders-v0", "MinAtar/SpaceInvaders-v0"),
    ],
)
def test_minatar_ids_get_the_minimal_action_set_by_default(typed, env_id):
    assert resolve_env_id(typed) == env_id


@pytest.mark.parametrize(
    ("typed", "env_id"),
    [
        ("procgen/coinrun", "Procgen/CoinrunHard-v0"),
        ("coinrun", "Procgen/CoinrunHard-v0"),
        ("coinrun_easy", "Procgen/CoinrunEasy-v0"),
        ("procgen/starpilot-easy", "Procgen/StarpilotEasy-v0"),
        ("CoinrunHard-v0", "Procgen/CoinrunHard-v0"),
        ("Procgen/BigfishEasy-v0", "Procgen/BigfishEasy-v0"),
    ],
)
def test_procgen_games_are_hard_unless_the_name_says_easy(typed, env_id, everything_installed):
    assert resolve_env_id(typed) == env_id


def test_a_mujoco_name_without_version_stands_for_the_newest(everything_installed):
    assert resolve_env_id("halfcheetah") == "HalfCheetah-v5"
    assert resolve_env_id("Ant-v4", "envpool") == "Ant-v4"


def test_every_mujoco_env_of_gymnasium_belongs_to_the_family():
    import gymnasium

    names = {spec.id.partition("-v")[0] for spec in gymnasium.registry.values() if ".mujoco" in str(spec.entry_point)}
    assert {name for name in names if "/" not in name} == set(ids.MUJOCO_NAMES)


@pytest.mark.parametrize(
    ("env_id", "backend", "message"),
    [
        ("minatar/breakout", "envpool", "backend must be gymnasium or auto for MinAtar/Breakout-v1"),
        ("CartPole-v1", "envpool", "backend must be gymnasium or auto for CartPole-v1"),
        ("coinrun", "gymnasium", "backend must be envpool or auto for Procgen/CoinrunHard-v0"),
        ("coinrun", "compiled", "backend must be envpool or auto for Procgen/CoinrunHard-v0"),
        ("pong", "compiled", "backend must be gymnasium or auto for ALE/Pong-v5: compiled has Acrobot-v1, CartPole-v0"),
        ("HalfCheetah-v5", "compiled", "backend must be gymnasium or auto for HalfCheetah-v5"),
    ],
)
def test_a_backend_that_does_not_have_the_env_is_refused(env_id, backend, message, everything_installed):
    with pytest.raises(ConfigError) as caught:
        resolve_env_id(env_id, backend)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("env_id", ["pong", "Hopper-v5"])
def test_with_envpool_only_envpool_is_needed(env_id, monkeypatch):
    monkeypatch.setattr(ids, "find_spec", lambda package: None if package != "envpool" else object())
    assert env_family(resolve_env_id(env_id, "envpool")) in ("atari", "mujoco")
    monkeypatch.setattr(ids, "find_spec", lambda package: None if package == "envpool" else object())
    with pytest.raises(ConfigError, match=r'needs the envpool extra: pip install "swell-rl\[envpool\]"'):
        resolve_env_id(env_id, "envpool")


@pytest.mark.parametrize(("typed", "env_id"), [("CartPole-v0", "CartPole-v0"), ("cartpole", "CartPole-v1")])
def test_a_name_without_version_stands_for_the_newest(typed, env_id):
    assert resolve_env_id(typed) == env_id


@pytest.mark.parametrize(
    ("typed", "suggestion"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("CartPole-v7", "CartPole-v1"),
        ("Breakot", "ALE/Breakout-v5"),
        ("PongNoFrameskip-v4", "ALE/Pong-v5"),
        ("ALE/Pong-v4", "ALE/Pong-v5"),
        ("minatar/brekout", "MinAtar/Breakout-v1"),
    ],
)
def test_an_unknown_env_is_one_line_with_suggestions(typed, suggestion):
    with pytest.raises(ConfigError) as caught:
        resolve_env_id(typed)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"unknown env '{typed}'")
    assert suggestion in message
    assert len(message.split(",")) <= 5


def test_a_name_unlike_any_other_gets_no_suggestions():
    with pytest.raises(ConfigError, match=r"^unknown env 'qqqqqqqqqqqq'$"):
        resolve_env_id("qqqqqqqqqqqq")


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("pong", 'ALE/Pong-v5 needs the atari extra: pip install "swell-rl[atari]"'),
        ("minatar/asterix", 'MinAtar/Asterix-v1 needs the minatar extra: pip install "swell-rl[minatar]"'),
        ("LunarLander-v3", 'LunarLander-v3 needs Box2D: pip install "swell-rl[box2d]"'),
        ("HalfCheetah-v5", 'HalfCheetah-v5 needs the mujoco extra: pip install "swell-rl[mujoco]"'),
        ("coinrun", 'Procgen/CoinrunHard-v0 needs the procgen extra: pip install "swell-rl[procgen]"'),
    ],
)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(env_id, message, monkeypatch):
    monkeypatch.setattr(ids, "find_spec", lambda package: None)
    with pytest.raises(ConfigError) as caught:
        resolve_env_id(env_id)
    assert str(caught.value) == message


def test_an_id_may_name_the_module_that_registers_it(tmp_path, monkeypatch, make):
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v0', 'gymnasium.envs.classic_control.mountain_car:MountainCarEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_env_id("my_envs:Mine-v0") == "my_envs:Mine-v0"
    assert make("my_envs:Mine-v0").reset().shape == (2, 2)


def test_a_module_that_does_not_exist_is_a_config_error():
    with pytest.raises(ConfigError, match="cannot import module 'no_such_module'"):
        resolve_env_id("no_such_module:Mine-v0")


@pytest.mark.parametrize(
    ("env_id", "family"),
    [
        ("ALE/Pong-v5", "atari"),
        ("space_invaders", "atari"),
        ("minatar/breakout", "minatar"),
        ("MinAtar/Freeway-v0", "minatar"),
        ("CartPole-v1", "classic"),
        ("Acrobot-v1", "classic"),
        ("MountainCarContinuous-v0", "classic"),
        ("HalfCheetah-v5", "mujoco"),
        ("halfcheetah", "mujoco"),
        ("Walker2d-v4", "mujoco"),
        ("inverted_double_pendulum", "mujoco"),
        ("procgen/coinrun", "procgen"),
        ("Procgen/CoinrunHard-v0", "procgen"),
        ("StarpilotEasy-v0", "procgen"),
        ("maze", "procgen"),
        ("Maze-v0", "other"),
        ("my_envs:HalfCheetah-v5", "other"),
        ("my_envs:Mine-v0", "other"),
    ],
)
def test_the_family_follows_from_the_name(env_id, family):
    assert env_family(env_id) == family


def test_asking_for_a_family_imports_no_env_package():
    program = (
        "import sys; from swell.envs import env_family, make_envs, EnvSettings;"
        "[env_family(name) for name in ('pong', 'halfcheetah', 'coinrun', 'CartPole-v1')];"
        "print({'numpy', 'gymnasium', 'ale_py', 'minatar', 'mujoco', 'envpool', 'torch'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
