"""What a user may type for an env, and what comes back when it is wrong."""

import subprocess
import sys

import pytest

import swell.envs.ids as ids
from swell.envs import env_family, resolve_env_id
from swell.errors import ConfigError

needs_ale = pytest.mark.skipif(ids.find_spec("ale_py") is None, reason="needs ale-py")
needs_minatar = pytest.mark.skipif(ids.find_spec("minatar") is None, reason="needs minatar")


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
        ("LunarLander-v3", 'LunarLander-v3 needs Box2D: pip install "gymnasium[box2d]"'),
        ("HalfCheetah-v5", 'HalfCheetah-v5 needs mujoco: pip install "gymnasium[mujoco]"'),
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
        ("HalfCheetah-v5", "other"),
        ("my_envs:Mine-v0", "other"),
    ],
)
def test_the_family_follows_from_the_name(env_id, family):
    assert env_family(env_id) == family


def test_asking_for_a_family_imports_no_env_package():
    program = (
        "import sys; from swell.envs import env_family, make_envs, EnvSettings; env_family('pong');"
        "print({'numpy', 'gymnasium', 'ale_py', 'minatar', 'torch'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
