"""MuJoCo: restored to the last bit, contacts and all, and quiet about what nobody can change."""

import numpy as np
import pytest
from env_comparisons import goes_on_alike, through_json

from swell.envs.gymnasium_envs import LoopedEnvs
from swell.envs.resume_check import same_state

pytest.importorskip("mujoco")

ENVS = ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "Reacher-v4"]


def saved_simulations(state) -> list[dict]:
    """The fields of every simulation in a saved state."""
    if isinstance(state, list):
        return [fields for part in state for fields in saved_simulations(part)]
    if not isinstance(state, dict):
        return []
    own = [state["fields"]] if state.get("kind") == "simulation" else []
    return own + [fields for part in state.values() for fields in saved_simulations(part)]


def in_contact(envs: LoopedEnvs) -> bool:
    return any(env.unwrapped.data.ncon > 0 for env in envs._envs)


@pytest.mark.parametrize("env_id", ENVS)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_restored_envs_go_on_exactly_like_the_originals(env_id, make, actions_for):
    original = make(env_id, seed=1, max_episode_steps=60)
    original.reset()
    actions = actions_for(original, 200)
    for row in actions[:95]:
        original.step(row)
    while not in_contact(original) and env_id != "Reacher-v4":  # an arm in the air
        original.step(actions[0])
    restored = make(env_id, seed=1, max_episode_steps=60)
    assert original.resume_tier == "exact"
    assert restored.load_state_dict(through_json(original.state_dict()), resume_count=1) is None
    assert goes_on_alike(original, restored, actions[95:])
    assert same_state(original.saved_state(), restored.saved_state())


def test_envs_in_workers_are_restored_exactly(make, actions_for):
    original = make("Hopper-v5", seed=1, async_envs=True)
    original.reset()
    actions = actions_for(original, 60)
    for row in actions[:30]:
        original.step(row)
    restored = make("Hopper-v5", seed=1, async_envs=True)
    assert restored.load_state_dict(through_json(original.state_dict()), resume_count=1) is None
    assert goes_on_alike(original, restored, actions[30:])


def test_a_simulation_is_saved_once_though_the_renderer_holds_it_too(make):
    envs = make("HalfCheetah-v5", num_envs=3)
    envs.reset()
    assert len(saved_simulations(envs.state_dict())) == 3


@pytest.mark.parametrize(
    ("env_id", "field", "part"),
    [
        ("HalfCheetah-v5", "integration", "qpos"),
        ("Ant-v5", "integration", "qacc_warmstart"),
        ("Ant-v5", "left_behind", "xpos"),
        ("Humanoid-v5", "left_behind", "xipos"),
    ],
)
def test_every_saved_part_is_needed(env_id, field, part, make, actions_for):
    """The negative control. Ant and Humanoid take their speed from where the last step left them."""
    original = make(env_id, num_envs=1, seed=1)
    original.reset()
    actions = actions_for(original, 40)
    for row in actions[:15]:
        original.step(row)
    state = original.state_dict()
    spoiled = getattr(original._envs[0].unwrapped.data, part).ravel()
    (saved,) = saved_simulations(state)
    saved[field][np.isin(saved[field], spoiled[spoiled != 0])] += 1e-3
    restored = make(env_id, num_envs=1, seed=1)
    restored.load_state_dict(state, resume_count=1)
    alike = goes_on_alike(original, restored, actions[15:])
    # a solver that starts from elsewhere changes digits that float32 observations show only much later
    assert not (alike and same_state(original.saved_state(), restored.saved_state()))


def test_computing_the_left_behind_anew_would_not_be_exact(make, actions_for):
    """Why nothing calls mj_forward after a restore."""
    import mujoco

    original, restored = make("Ant-v5", seed=1), make("Ant-v5", seed=1)
    original.reset()
    actions = actions_for(original, 40)
    for row in actions[:15]:
        original.step(row)
    restored.load_state_dict(original.state_dict(), resume_count=1)
    for env in restored._envs:
        mujoco.mj_forward(env.unwrapped.model, env.unwrapped.data)
    assert not goes_on_alike(original, restored, actions[15:])


def test_a_simulation_of_another_size_is_lost_with_a_warning(make):
    envs = make("HalfCheetah-v5", num_envs=1)
    envs.reset()
    state = envs.state_dict()
    (saved,) = saved_simulations(state)
    saved["integration"] = saved["integration"][:-1]
    with pytest.warns(UserWarning, match="the episodes in flight are lost: the saved simulation has another size"):
        assert envs.load_state_dict(state, resume_count=1) is not None


def test_observations_and_rewards_are_those_of_gymnasium(make, actions_for):
    import gymnasium

    from swell.envs.contract import env_seeds

    envs = make("Hopper-v5", num_envs=2, seed=3)
    reference = gymnasium.make("Hopper-v5")
    observation, _ = reference.reset(seed=env_seeds(3, 0, 2)[1])
    observations = envs.reset()
    for row in actions_for(envs, 100):
        assert np.array_equal(observations[1], observation.astype(np.float32))
        step = envs.step(row)
        observation, reward, terminated, _, _ = reference.step(row[1])
        assert (step.scores[1], step.terminated[1]) == (reward, terminated)
        assert np.array_equal(step.final_observations[1], observation.astype(np.float32))
        if terminated:
            observation, _ = reference.reset()
        observations = step.observations
    reference.close()


def test_mujoco_leaves_no_log_in_the_working_directory(make, tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    make("HalfCheetah-v5").reset()
    assert list(tmp_path.iterdir()) == []
    assert not [warning for warning in recwarn if "MuJoCo" in str(warning.message)]


def test_a_simulation_that_blows_up_is_a_warning(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    envs = make("HalfCheetah-v5", num_envs=1)
    envs.reset()
    envs._envs[0].unwrapped.data.qvel[:] = 1e20
    with pytest.warns(UserWarning, match="MuJoCo: Nan, Inf or huge value in QVEL"):
        envs.step(np.zeros((1, 6), dtype=np.float32))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("error")
def test_where_warnings_are_errors_the_process_survives_it(make):
    envs = make("HalfCheetah-v5", num_envs=1)
    envs.reset()
    envs._envs[0].unwrapped.data.qvel[:] = 1e20
    assert envs.step(np.zeros((1, 6), dtype=np.float32)).valid.all()
