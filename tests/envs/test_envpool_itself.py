"""EnvPool itself: that it does what envpool_envs.py says of it. Needs the package, which `dev` does not install."""

import numpy as np
import pytest

from swell.errors import ConfigError

pytest.importorskip("envpool")

NO_OP = 4  # in Procgen


def play(envs, steps: int, seed: int = 0) -> list:
    envs.action_space.seed(seed)
    rows = [np.stack([envs.action_space.sample() for _ in range(envs.num_envs)]) for _ in range(steps)]
    return [envs.step(row) for row in rows]


@pytest.fixture
def make_procgen(make):
    def make_or_skip(game: str, **settings):
        try:
            return make(game, threads=1, **settings)
        except ConfigError as error:
            pytest.skip(str(error))

    return make_or_skip


@pytest.mark.parametrize(
    ("env_id", "observation", "action"),
    [
        ("ALE/Pong-v5", ((4, 84, 84), np.uint8), ((), np.int64)),
        ("HalfCheetah-v5", ((17,), np.float32), ((6,), np.float32)),
        ("Ant-v5", ((105,), np.float32), ((8,), np.float32)),
    ],
)
def test_spaces_are_those_of_the_usual_backend(env_id, observation, action, make):
    pytest.importorskip("ale_py" if env_id.startswith("ALE") else "mujoco")
    pooled, usual = make(env_id, backend="envpool"), make(env_id)
    assert pooled.observation_space == usual.observation_space
    assert pooled.action_space == usual.action_space
    rows = pooled.reset()
    assert (rows.shape[1:], rows.dtype) == observation
    assert (pooled.action_space.shape, pooled.action_space.dtype) == action


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "Hopper-v5"])
def test_every_env_plays_its_own_episode_and_every_run_alike(env_id, make):
    runs = []
    for seed in (0, 0, 1):
        envs = make(env_id, seed=seed, backend="envpool", threads=1)
        envs.reset()
        action = np.zeros((2, *envs.action_space.shape), dtype=envs.action_space.dtype)
        runs.append(np.stack([envs.step(action).observations for _ in range(30)]))
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert not np.array_equal(runs[0][:, 0], runs[0][:, 1])


def test_a_second_reset_starts_from_the_seeds_again_and_a_resume_from_others(make):
    envs = make("Hopper-v5", backend="envpool", threads=1)
    first = envs.reset()
    play(envs, 5)
    assert np.array_equal(envs.reset(), first)
    assert not np.array_equal(envs.load_state_dict({}, resume_count=1), first)


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "HalfCheetah-v5"])
def test_the_time_limit_truncates_and_the_next_row_resets(env_id, make):
    envs = make(env_id, backend="envpool", max_episode_steps=6, threads=1)
    envs.reset()
    steps = play(envs, 14)
    assert [step.truncated.all() for step in steps] == [(time + 1) % 7 == 6 for time in range(14)]
    assert [step.valid.all() for step in steps] == [(time + 1) % 7 != 0 for time in range(14)]
    assert not any(step.terminated.any() for step in steps)
    assert steps[6].scores.tolist() == [0, 0]


def test_an_unhealthy_robot_terminates_with_its_last_observation(make):
    """Hopper is unhealthy when its height, the first number, or its angle, the second, leaves a range."""
    envs = make("Hopper-v5", backend="envpool", threads=1)
    envs.reset()
    ends = [step for step in play(envs, 100) if step.terminated.any()]
    assert ends
    for step in ends:
        height, angle = step.observations[step.terminated][:, :2].T
        assert ((height <= 0.7) | (np.abs(angle) >= 0.2)).all()
    assert not any(step.truncated.any() for step in ends)


def test_lives_end_episodes_for_the_learner_and_not_the_game(make):
    envs = make("breakout", backend="envpool", episodic_life=True, threads=1)
    envs.reset()
    steps = play(envs, 300)
    ends = sum(step.terminated[0] for step in steps)
    games = sum(step.episode_over[0] for step in steps)
    assert games > 0
    assert 4 * games <= ends - games <= 4 * (games + 1)  # five lives: four lost without an end
    assert sum(~step.valid[0] for step in steps) == games


def test_scores_are_not_clipped(make):
    envs = make("space_invaders", backend="envpool", clip_rewards=True, threads=1)
    envs.reset()
    steps = play(envs, 150)
    scores = np.stack([step.scores for step in steps])
    assert scores.max() >= 5
    assert np.array_equal(np.stack([step.rewards for step in steps]), np.sign(scores))


@pytest.mark.parametrize("change", [{"sticky_actions": 0.5}, {"noop_max": 1}])
def test_sticky_actions_and_no_ops_change_the_game(change, make):
    plain, changed = make("breakout", backend="envpool"), make("breakout", backend="envpool", **change)
    plain.reset(), changed.reset()
    pairs = zip(play(plain, 60), play(changed, 60), strict=True)
    assert not all(np.array_equal(first.observations, second.observations) for first, second in pairs)


def test_steps_do_not_write_into_earlier_observations(make):
    envs = make("ALE/Pong-v5", backend="envpool", num_envs=4)
    kept = [envs.reset()] + [step.observations for step in play(envs, 30)]
    copies = [observations.copy() for observations in kept]
    play(envs, 30)
    assert all(map(np.array_equal, kept, copies))


def test_procgen_is_64_by_64_in_colour_with_15_actions(make_procgen):
    envs = make_procgen("coinrun")
    observations = envs.reset()
    assert observations.shape == (2, 3, 64, 64)
    assert observations.dtype == np.uint8
    assert observations.flags.c_contiguous
    assert envs.action_space.n == 15


@pytest.mark.parametrize("game", ["maze", "leaper_easy"])
def test_a_procgen_game_that_runs_out_of_time_is_truncated(game, make_procgen):
    envs = make_procgen(game)
    envs.reset()
    steps = [envs.step(np.full(2, NO_OP)) for _ in range(501)]
    assert [time for time, step in enumerate(steps) if step.truncated.any()] == [499]
    assert not any(step.terminated.any() for step in steps)
    assert not steps[500].valid.any()


def test_the_observation_at_a_procgen_end_is_the_last_frame(make_procgen):
    """A maze stands still, so the frame at an end shows the maze just played, and the next one another."""
    envs = make_procgen("maze_easy", num_envs=16)
    frames = [envs.reset()]
    steps = play(envs, 480)
    frames += [step.observations for step in steps]
    ends = [(time, index) for time, step in enumerate(steps[:-1]) for index in np.flatnonzero(step.terminated)]
    into_the_end = [(frames[time][index] != frames[time + 1][index]).mean() for time, index in ends]
    into_the_next = [(frames[time + 1][index] != frames[time + 2][index]).mean() for time, index in ends]
    assert len(ends) >= 5
    assert 0 < min(into_the_end) <= max(into_the_end) < 0.05
    assert np.mean(into_the_next) > 0.2  # two small mazes may look alike


def test_procgen_plays_unlimited_levels_the_same_in_every_run(make_procgen):
    firsts = [make_procgen("coinrun", num_envs=8, seed=seed).reset() for seed in (0, 0, 1)]
    assert np.array_equal(firsts[0], firsts[1])
    assert len({frame.tobytes() for frame in (*firsts[0], *firsts[2])}) == 16


def test_an_image_is_in_colour(make, make_procgen):
    for envs, shape in (
        (make("breakout", backend="envpool", render_mode="rgb_array"), (210, 160, 3)),
        (make_procgen("coinrun", render_mode="rgb_array"), (64, 64, 3)),
    ):
        envs.reset()
        play(envs, 20)
        assert envs.render().shape == shape
