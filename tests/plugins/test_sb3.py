"""Stable-Baselines3: a fixed plan changes nothing, a moving one is trained on rightly, readings are what they say."""

import copy

import numpy as np
import pytest
import torch
from refusals import refusal
from sb3_contrib import TRPO
from sb3_models import (
    KINDS,
    N_STEPS,
    NUM_ENVS,
    Record,
    advantages_by_hand,
    are_equal,
    make_envs,
    make_model,
    scripted,
    weights,
)
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback, EveryNTimesteps
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnvWrapper, VecNormalize
from torch import distributions

from swell.plugins.sb3 import (
    AdaptiveA2C,
    AdaptiveBatch,
    AdaptiveBatchCallback,
    AdaptivePPO,
    BatchCallback,
    MeasureBatchCallback,
)
from swell.plugins.sb3_batch import RolloutPolicy, even_minibatch_size

STEPS = 4 * N_STEPS * NUM_ENVS
FIXED = {"min_steps": N_STEPS, "max_steps": N_STEPS, "every": 1}
SIGNALS = ("kl_divergence", "behavioral_divergence", "effective_sample_size")


def adaptive(kind):
    """The algorithm of a kind with the mixin."""
    plain = KINDS[kind][0]
    return type(f"Adaptive{plain.__name__}", (AdaptiveBatch, plain), {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_fixed_plan_trains_to_the_bit_as_without_it(kind):
    plain = make_model(kind).learn(STEPS)
    draws = np.random.get_state()[1].copy(), torch.get_rng_state()
    measure = MeasureBatchCallback(every=1, verbose=0)
    for callback in (measure, AdaptiveBatchCallback(**FIXED)):
        model = make_model(kind).learn(STEPS, callback=callback)
        assert are_equal(weights(plain), weights(model))
        assert np.array_equal(draws[0], np.random.get_state()[1]) and torch.equal(draws[1], torch.get_rng_state())
        assert callback.controller.reading > 0.0
    without_lag = make_model(kind, adaptive(kind), batch_settings=FIXED).learn(STEPS)
    assert are_equal(weights(plain), weights(without_lag))
    assert without_lag.batch_state["controller"]["reading"] == pytest.approx(measure.controller.reading, rel=1e-6)


@pytest.mark.parametrize("signal", SIGNALS)
def test_every_signal_reads_every_kind_of_policy(signal):
    for kind in KINDS:
        callback = MeasureBatchCallback(signal, every=1, verbose=0)
        make_model(kind, learning_rate=0.01).learn(N_STEPS * NUM_ENVS, callback=callback)
        reading = callback.controller.reading
        assert 0.0 <= reading < 10.0 and (signal == "behavioral_divergence" or reading not in (0.0, 1.0)), kind


def test_vec_normalize_and_subprocesses_stay_as_they_were():
    def trained(callback):
        envs = VecNormalize(make_vec_env_of_processes())
        model = make_model("PPO", envs=envs)
        model.learn(STEPS, callback=callback)
        envs.close()
        return weights(model), envs.obs_rms.mean

    def make_vec_env_of_processes():
        import gymnasium

        return SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2, start_method="fork")

    plain, moments = trained(None)
    with_callback, same_moments = trained(AdaptiveBatchCallback(N_STEPS, N_STEPS))
    assert are_equal(plain, with_callback) and np.array_equal(moments, same_moments)


PLAN = (16, 48, 7, 64, 20)


def test_a_callback_acts_one_rollout_late_and_the_mixin_does_not():
    record = Record()
    callback = BatchCallback(lambda _: scripted(*PLAN))
    make_model("PPO").learn(4 * sum(PLAN[:4]), callback=[record, callback])
    assert record.lengths == [16, 16, 48, 7, 64]
    assert record.env_steps == list(4 * np.cumsum(record.lengths))

    class ScriptedPPO(AdaptivePPO):
        def make_controller(self):
            return scripted(*PLAN)

    record = Record()
    model = make_model("PPO", ScriptedPPO).learn(4 * sum(PLAN), callback=record)
    assert tuple(record.lengths) == PLAN and model.num_timesteps == 4 * sum(PLAN)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "A2C"])
def test_minibatches_of_a_moving_batch_are_even_and_hold_every_sample(kind):
    record = Record()
    callback = BatchCallback(lambda _: scripted(5, 24, 11, 9))
    make_model(kind).learn(4 * (5 + 5 + 24 + 11), callback=[record, callback])
    assert record.lengths == [5, 5, 24, 11]
    for length, sizes in zip(record.lengths, record.minibatches, strict=True):
        assert sum(sizes) == (3 if kind == "TRPO" else 2) * 4 * length  # TRPO: the policy's pass, and two of the critic
        assert min(sizes) >= 20 and (length == 5 or max(sizes[1:]) <= 40)


def test_a2c_trains_on_the_whole_of_a_moving_batch():
    record = Record()
    make_model("A2C").learn(4 * 37, callback=[record, BatchCallback(lambda _: scripted(5, 24, 3))])
    assert record.lengths == [5, 5, 24, 3] and record.minibatches == [[20], [20], [96], [12]]


class Recorder(VecEnvWrapper):
    """Rewards, ends and observations as the envs gave them."""

    def __init__(self, venv):
        super().__init__(venv)
        self.seen = []

    def reset(self):
        self.last = self.venv.reset()
        return self.last.copy()

    def step_wait(self):
        observations, rewards, ended, infos = self.venv.step_wait()
        self.seen.append((self.last, rewards.copy(), ended.copy(), infos, observations))
        self.last = observations.copy()
        return observations, rewards, ended, infos


@pytest.mark.parametrize("kind", ["PPO", "PPO on Pendulum", "A2C"])
def test_advantages_of_moving_rollouts_are_those_of_the_definition(kind):
    """Pendulum's episodes end by their time limit, which bootstraps; CartPole's by falling, which does not."""
    envs = Recorder(make_envs(KINDS[kind][1]))
    model = make_model(kind, envs=envs, gae_lambda=0.9)
    plan = (30, 48, 7, 130, 20)

    def value_of(observations):
        with torch.no_grad():
            return model.policy.predict_values(torch.as_tensor(observations)).double().numpy().reshape(-1)

    class Compare(Record):
        def _on_rollout_end(self):
            super()._on_rollout_end()
            rows = envs.seen[-self.lengths[-1] :]
            rewards = np.array([row[1] for row in rows], dtype=np.float64)
            ended = np.array([row[2] for row in rows])
            for step, (*_, infos, _) in enumerate(rows):
                for env, info in enumerate(infos):
                    if info.get("TimeLimit.truncated"):
                        rewards[step, env] += model.gamma * value_of(info["terminal_observation"][None])[0]
                        cut.append(step)
            values = np.array([value_of(row[0]) for row in rows])
            next_values = np.array([*values[1:], value_of(rows[-1][4])])
            by_hand = advantages_by_hand(rewards, values, next_values * ~ended, ended, model.gamma, 0.9)
            # each of up to T float32 terms has an error of 2⁻²⁴ of its size, and the weights sum to 1 / (1 − γλ)
            tolerance = 2.0**-22 * 10 * (np.abs(rewards).max() + np.abs(values).max()) / (1 - model.gamma * 0.9)
            np.testing.assert_allclose(self.advantages[-1], by_hand, atol=tolerance, rtol=0)
            assert np.abs(by_hand).max() > 1000 * tolerance

    cut, record = [], Compare()
    model.learn(4 * (30 + sum(plan)), callback=[record, BatchCallback(lambda _: scripted(*plan))])
    assert record.lengths == [30, *plan]
    assert bool(cut) == (kind == "PPO on Pendulum")


class Twin(BaseCallback):
    """Keeps a copy of the policy and of the rollout as they were before the last update."""

    def __init__(self, kind):
        super().__init__()
        self.policy = make_model(kind).policy

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.policy.load_state_dict(copy.deepcopy(self.model.policy.state_dict()))
        buffer = self.model.rollout_buffer
        self.observations = torch.as_tensor(buffer.observations).flatten(0, 1).clone()


@pytest.mark.parametrize("kind", ["PPO", "PPO on Pendulum", "PPO with gSDE", "PPO on MultiBinary", "A2C", "TRPO"])
def test_readings_are_those_of_a_copy_of_the_policy(kind):
    twin, measure = Twin(kind), MeasureBatchCallback(every=1, verbose=0)
    model = make_model(kind, learning_rate=0.01).learn(2 * N_STEPS * NUM_ENVS, callback=[twin, measure])
    with torch.no_grad():
        pair = [policy.get_distribution(twin.observations).distribution for policy in (model.policy, twin.policy)]
        each = distributions.kl_divergence(*(in_float64(distribution) for distribution in pair))
    expected = (each.sum(1) if each.dim() > 1 else each).mean().item()
    # a log-probability of float32 is wrong by about 1e-7, and a KL is the mean of differences of them
    assert measure.controller.reading == pytest.approx(expected, rel=1e-4, abs=2e-7) and expected > 1e-5


def in_float64(distribution):
    if isinstance(distribution, distributions.Normal):
        return distributions.Normal(distribution.mean.double(), distribution.stddev.double())
    return type(distribution)(logits=distribution.logits.double())


def test_a_distribution_that_is_kept_as_it_is_would_read_exactly_zero():
    """SB3 has one distribution object, so a naive comparison compares it with itself; ours does not."""

    class Naive(Twin):
        def _on_rollout_end(self):
            super()._on_rollout_end()
            self.kept = self.model.policy.get_distribution(self.observations)

    naive, measure = Naive("PPO"), MeasureBatchCallback(every=1, verbose=0)
    model = make_model("PPO", learning_rate=0.01).learn(N_STEPS * NUM_ENVS, callback=[naive, measure])
    new = model.policy.get_distribution(naive.observations)
    assert new is naive.kept
    assert distributions.kl_divergence(new.distribution, naive.kept.distribution).mean().item() == 0.0
    assert measure.controller.reading > 1e-5


def test_probes_are_real_rows_and_looking_leaves_the_mode_of_the_policy():
    model = make_model("PPO")
    buffer = model.rollout_buffer
    buffer.observations[:] = np.arange(buffer.buffer_size * 4).reshape(-1, 4, 1)
    policy = RolloutPolicy(model, 10, (0, 1))
    for training in (True, False):
        model.policy.set_training_mode(training)
        policy()
        assert model.policy.training == training
    rows = policy._rows["observations"][:, 0]
    assert len(rows) == len(set(rows.tolist())) == 10 and rows.max() < buffer.buffer_size * 4


def test_the_horizon_follows_the_policy_and_is_logged(tmp_path):
    model = make_model("PPO")
    model.set_logger(configure(str(tmp_path), ["csv"]))
    callback = AdaptiveBatchCallback(8, 64, every=1, calibration_readings=3, smoothing=1.0)
    record = Record()
    model.learn(2_000, callback=[record, callback])
    assert record.lengths[:5] == [8] * 5  # three to calibrate by, one for which there is no reading yet, one of lag
    assert len(set(record.lengths)) > 3 and all(8 <= length <= 64 for length in record.lengths)
    header, *lines = (tmp_path / "progress.csv").read_text().splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=False)) for line in lines]
    assert [int(row["batch/n_steps"]) for row in rows] == record.lengths
    assert [int(row["batch/size"]) for row in rows] == [4 * length for length in record.lengths]
    assert rows[0].get("batch/reading") in (None, "") and float(rows[1]["batch/reading"]) > 0
    calm, volatile = callback.controller.thresholds
    assert float(rows[-1]["batch/calm_reading"]) == pytest.approx(calm)
    assert float(rows[-1]["batch/volatile_reading"]) == pytest.approx(volatile)


def test_the_mixin_logs_the_rollout_that_comes_now(tmp_path):
    model = make_model(
        "PPO", AdaptivePPO, batch_settings={"min_steps": 8, "max_steps": 64, "every": 1, "calibration_readings": 2}
    )
    model.set_logger(configure(str(tmp_path), ["csv"]))
    record = Record()
    model.learn(1_000, callback=record)
    header, *lines = (tmp_path / "progress.csv").read_text().splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=False)) for line in lines]
    assert [int(row["batch/n_steps"]) for row in rows[1:]] == record.lengths[1:]


class Due(BatchCallback):
    """Notes after which rollouts there was a reading."""

    def _on_training_start(self):
        super()._on_training_start()
        self.read_at = []

    def _on_rollout_end(self):
        before = self.controller.state_dict()["updates"]
        super()._on_rollout_end()
        if self.controller.state_dict()["updates"] > before:
            self.read_at.append(self.num_timesteps)


def test_without_a_count_of_updates_short_rollouts_share_a_reading_and_long_ones_have_their_own():
    record, callback = Record(), Due(lambda _: scripted(40, 100, 128), every=None)
    make_model("PPO").learn(2_100, callback=[record, callback])
    assert record.env_steps == [160, 320, 480, 640, 800, 1200, 1600, 2112]  # a reading acts one rollout late
    assert callback.read_at == [640, 1200, 1600, 2112]  # the first to pass 512, 1024, 1536 and 2048
    each = Due(lambda _: scripted(128))
    by_steps = Due(lambda _: scripted(128), every=None)
    for one in (each, by_steps):
        make_model("PPO").learn(2_048, callback=one)
    assert by_steps.read_at == each.read_at == [512, 1024, 1536, 2048]


def test_the_ready_made_callbacks_and_classes_read_once_in_512_env_steps_of_short_rollouts():
    steps = 4 * 5 * 26 * 3  # 1560: passes 512 three times, in 78 updates
    adaptive_callback = AdaptiveBatchCallback(5, 5)
    made = [
        make_model("A2C").learn(steps, callback=adaptive_callback),
        make_model("A2C", AdaptiveA2C, batch_settings={"min_steps": 5, "max_steps": 5}).learn(steps),
    ]
    assert [model.batch_state["controller"]["updates"] for model in made] == [3, 3]
    measure = MeasureBatchCallback(verbose=0)
    make_model("A2C", n_steps=5).learn(steps, callback=measure)
    assert measure.controller.state_dict()["updates"] == 3


def test_evaluation_callbacks_go_beside_it():
    evaluation = EvalCallback(make_envs("CartPole-v1", 1), eval_freq=20, n_eval_episodes=1, verbose=0)
    record = Record()
    callback = BatchCallback(lambda _: scripted(*PLAN))
    make_model("PPO").learn(600, callback=[evaluation, record, callback])
    assert record.lengths == [16, 16, 48, 7, 64] and evaluation.n_calls == sum(record.lengths)


def test_measuring_ends_with_thresholds(capsys):
    model = make_model("PPO", n_steps=15, batch_size=32)  # 60 samples, which 32 does not divide
    callback = MeasureBatchCallback(every=1, calibration_readings=3)
    record = Record()
    model.learn(4 * 15 * 4, callback=[record, callback])
    assert record.lengths == [15] * 4 and record.minibatches == [[32, 28, 32, 28]] * 4
    calm, volatile = callback.controller.thresholds
    assert calm == pytest.approx(volatile / 10)
    (line,) = capsys.readouterr().out.splitlines()
    assert (
        line.startswith("4 readings of kl_divergence from ") and f"calm_reading={calm:.3g}, volatile_reading=" in line
    )


def test_training_goes_on_with_and_without_the_callback():
    model, callback = make_model("PPO"), BatchCallback(lambda _: scripted(*PLAN))
    record = Record()
    model.learn(4 * 80, callback=[record, callback])
    length = model.n_steps
    model.learn(4 * 2 * length, callback=record, reset_num_timesteps=False)
    assert record.lengths == [16, 16, 48, length, length]
    adaptive_callback = AdaptiveBatchCallback(8, 64, every=1, calibration_readings=2)
    model = make_model("PPO")
    for _ in range(3):
        model.learn(300, callback=adaptive_callback, reset_num_timesteps=False)
    assert model.batch_state["controller"]["updates"] == adaptive_callback.controller.state_dict()["updates"] > 10


@pytest.mark.parametrize(
    ("samples", "nominal", "expected"), [(2048, 64, 64), (40, 64, 64), (65, 64, 65), (100, 64, 50), (12_809, 64, 70)]
)
def test_a_minibatch_size_near_the_nominal_leaves_no_crumbs(samples, nominal, expected):
    size = even_minibatch_size(samples, nominal)
    assert size == expected
    assert samples <= size or samples % size in (0, *range(size * 3 // 4, size))


@pytest.mark.parametrize("nominal", [32, 64, 100])
def test_no_last_minibatch_is_much_smaller_than_the_others(nominal):
    for samples in range(2 * nominal, 40 * nominal):
        size = even_minibatch_size(samples, nominal)
        assert abs(size - nominal) <= nominal / 4
        assert samples % size == 0 or samples % size >= size / 2


def test_wrong_use_is_refused_in_one_line():
    off_policy = DQN("MlpPolicy", make_envs("CartPole-v1", 1))
    callback = AdaptiveBatchCallback(8, 64)
    taken = "take PPO, A2C, TRPO, RecurrentPPO or MaskablePPO"
    line = refusal(off_policy.learn, 10, callback=callback)
    assert line == f"AdaptiveBatchCallback needs an on-policy algorithm, got DQN; {taken}"
    for inner in (callback, CallbackList([callback])):
        line = refusal(make_model("PPO").learn, 10, callback=EveryNTimesteps(5, inner))
        assert line.startswith("AdaptiveBatchCallback must not be inside EveryNTimesteps") and "a list of both" in line
    assert refusal(lambda: AdaptiveBatchCallback(8, 64).controller).endswith("before learn() was called with it")
    line = refusal(make_model("PPO", AdaptivePPO, batch_settings=FIXED).learn, 10, callback=callback)
    assert line == "AdaptiveBatchCallback is for plain algorithms, and AdaptivePPO has a batch that moves by itself"
    off_policy = type("AdaptiveDQN", (AdaptiveBatch, DQN), {})
    line = refusal(off_policy, "MlpPolicy", make_envs("CartPole-v1", 1), batch_settings=FIXED)
    assert line == f"AdaptiveBatch needs an on-policy algorithm, got AdaptiveDQN; {taken}"
    assert refusal(make_model, "PPO", AdaptivePPO).startswith("AdaptivePPO needs batch_settings, such as")
    line = refusal(make_model, "PPO", AdaptivePPO, batch_settings={"min_steps": 3})
    assert line == "max_steps must be a whole number of at least 1, got None"
    lone = make_model("PPO", envs=make_envs("CartPole-v1", 1))
    line = refusal(lone.learn, 10, callback=AdaptiveBatchCallback(1, 9))
    assert line == "min_steps must make rollouts of at least 2 samples, got 1 with 1 env"
    line = refusal(make_model("PPO").learn, 10, callback=AdaptiveBatchCallback(1, 9, probe_states=0))
    assert line == "probe_states must be a whole number of at least 1, got 0"


@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        ((64, 8), {}, "min_steps must be at most max_steps, got 64 and 8"),
        ((0, 8), {}, "min_steps must be a whole number of at least 1, got 0"),
        ((8, 9.5), {}, "max_steps must be a whole number of at least 1, got 9.5"),
        ((8, 9, "entropy"), {}, "signal must be one of kl_divergence, behavioral_divergence, effective_sample_size or"),
        ((8, 9), {"epochs": 3}, "unknown option epochs; there are calm_reading, volatile_reading,"),
        ((8, 9), {"calm_reading": 0.1}, "calm_reading and volatile_reading go together, got only calm_reading"),
        ((8, 9), {"every": 0}, "every must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_options_are_refused_as_they_are_given(arguments, named, said):
    assert refusal(AdaptiveBatchCallback, *arguments, **named).startswith(said)


def test_thresholds_that_no_reading_meets_are_warned_of():
    callback = AdaptiveBatchCallback(5, 10, every=1, calm_reading=3.0, volatile_reading=9.0)
    with pytest.warns(UserWarning, match="none of 20 readings of kl_divergence .* lies between calm_reading 3 and"):
        make_model("A2C").learn(4 * 5 * 40, callback=callback)


def test_the_ready_made_classes_are_what_they_say():
    assert issubclass(AdaptivePPO, PPO) and issubclass(AdaptiveA2C, A2C)
    assert make_model("TRPO", type("AdaptiveTRPO", (AdaptiveBatch, TRPO), {}), batch_settings=FIXED).n_steps == N_STEPS
