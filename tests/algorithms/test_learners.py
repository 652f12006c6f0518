"""From a config to its learner, and what every learner keeps to, whatever its objective."""

import math
import re
from copy import deepcopy
from functools import cache
from itertools import pairwise

import pytest
import torch
from gymnasium import spaces
from kill import same
from policy_learners import (
    CPU,
    FOREVER,
    POLICY_ALGORITHMS,
    assert_repeats,
    gradients_of,
    learner_for,
    practise,
    read_by,
    rollout_of,
    weights,
)
from scripted_envs import IdentityEnvs, ScriptedEnvs
from torch import nn

from swell.algorithms.ess import ESSPPO
from swell.algorithms.ppg import PPG, PPGEWMA
from swell.algorithms.ppo import PPO
from swell.algorithms.ppo_ewma import PPOEWMA
from swell.algorithms.pqn import PQN
from swell.collect.collector import Collector
from swell.config.run_config import RunConfig
from swell.errors import ConfigError
from swell.loop import train
from swell.networks.actor_critics import ActorCritic
from swell.presets import make_config
from swell.runs.build import build, make_learner
from swell.runs.state_tree import decode_tree, encode_tree
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

ALGORITHMS = ["pqn", *POLICY_ALGORITHMS]
PHASE = {"phase_env_steps": 40, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 16}


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([3, 2]), spaces.Box(-1, 1, (2,))])
def test_pqn_refuses_all_but_discrete_actions_and_names_the_way_out(space):
    match = r"^Robot-v1: pqn needs a Discrete action space, .* try --algorithm ppo$"
    with pytest.raises(ConfigError, match=match):
        make_learner(RunConfig("Robot-v1"), spaces.Box(-1, 1, (3,)), space, CPU)


def test_a_policy_learner_that_cannot_act_in_an_env_names_the_env():
    space = spaces.Text(4)
    with pytest.raises(ConfigError) as caught:
        make_learner(RunConfig("Robot-v1", algorithm="ppo"), spaces.Box(-1, 1, (3,)), space, CPU)
    (line,) = caught.value.faults
    assert line.startswith("Robot-v1: actions must be Discrete, MultiDiscrete, MultiBinary or a Box of floats, got ")


@pytest.mark.parametrize("algorithm", POLICY_ALGORITHMS)
def test_only_ppg_has_an_auxiliary_head(algorithm):
    network = learner_for(ScriptedEnvs(), algorithm).network
    assert isinstance(network, ActorCritic)
    assert (network.auxiliary_head is not None) == algorithm.startswith("ppg")


def test_the_seed_decides_the_weights_and_the_global_generator_does_not():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = weights(learner_for(ScriptedEnvs(), seed=1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(weights(learner_for(ScriptedEnvs(), seed=1)), first)
    assert not torch.equal(weights(learner_for(ScriptedEnvs(), seed=2)), first)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_restored_learner_goes_on_exactly(algorithm, normalize):
    if algorithm == "pqn" and normalize:
        pytest.skip("pqn normalises nothing")
    fields = {**PHASE, "phase_env_steps": 80, "normalize_observations": normalize, "normalize_rewards": normalize}
    fields = read_by(algorithm, **fields)
    learner, restored = (learner_for(ScriptedEnvs(), algorithm, seed=seed, **fields) for seed in (1, 7))
    collector, other, plan = *(Collector(ScriptedEnvs(), 20, CPU) for _ in range(2)), BatchPlan(20, 2, 4)
    for _ in range(3):
        learner.update(collector.collect(learner, 20, FOREVER), plan, 0.0)
    restored.load_state_dict(decode_tree(*encode_tree(learner.state_dict())))
    other.load_state_dict(collector.state_dict())
    for _ in range(2):
        ours, theirs = other.collect(restored, 20, FOREVER), collector.collect(learner, 20, FOREVER)
        assert torch.equal(ours.actions, theirs.actions)
        assert restored.update(ours, plan, 0.1) == learner.update(theirs, plan, 0.1)
    assert same(encode_tree(restored.state_dict())[1], encode_tree(learner.state_dict())[1])


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("algorithm", POLICY_ALGORITHMS)
def test_small_micro_batches_give_the_gradient_of_one_pass(algorithm):
    """In the first step of an update, and in the first of an auxiliary phase."""
    taken = {}
    rollout = rollout_of(learner_for(ScriptedEnvs(), algorithm), ScriptedEnvs())
    for size in (1024, 7):
        fields = read_by(algorithm, entropy_coefficient=0.1, **PHASE)
        learner = learner_for(ScriptedEnvs(), algorithm, micro_batch_size=size, **fields)
        taken[size] = gradients_of(learner)
        if algorithm.startswith("ppg"):
            taken[size, "auxiliary"] = gradients_of(learner, learner.auxiliary_optimizer)
        learner.update(rollout, BatchPlan(20, 1, 2), 0.0)
        assert len(taken[size]) == 2
    for one, other in [(1024, 7)] + [((1024, "auxiliary"), (7, "auxiliary"))] * algorithm.startswith("ppg"):
        assert taken[one][0].any()
        torch.testing.assert_close(taken[other][0], taken[one][0])


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_gradient_probe_shows_the_loss_of_the_first_step_and_changes_nothing(algorithm):
    fields = read_by(algorithm, entropy_coefficient=0.1, phase_env_steps=10**6)
    learner = learner_for(ScriptedEnvs(next_step=True), algorithm, **fields)
    rollout = rollout_of(learner, ScriptedEnvs(next_step=True))
    before = deepcopy(encode_tree(learner.state_dict()))
    indices, sample_losses, _ = learner.gradient_probe(rollout)
    losses = sample_losses(indices)
    assert torch.equal(indices, rollout.valid_indices) and losses.shape == indices.shape
    torch.autograd.grad(losses.mean(), list(learner.network.parameters()), allow_unused=True)
    assert same(list(encode_tree(learner.state_dict())), list(before))
    metrics = learner.update(rollout, BatchPlan(20, 1, 1), 0.0)
    # PPO-EWMA and PPG normalise by the deviation of the population, the probe by that of a sample: both have mean 0.
    assert metrics["loss"] == pytest.approx(losses.mean().item())


def run_of(algorithm, **fields):
    small = {
        "total_env_steps": 640,
        "num_envs": 8,
        "horizon": 16,
        "epochs": 2,
        "minibatch_rule": "count",
        "minibatches": 2,
        "hidden": (16,),
        "learning_rate": 1e-2,
        **read_by(algorithm, phase_env_steps=256),
    }
    if fields.get("scaler", "fixed") != "fixed":
        small |= {"min_horizon": 4, "max_horizon": 16}
    if fields.get("scaler") != "noise-scale" and fields.get("signal") != "gradient_noise_scale":
        small["probe_states"] = 64
    config = make_config("CartPole-v1", **{**small, "algorithm": algorithm, "scaler": "fixed", **fields})
    parts = build(config)
    return list(train(parts.collector, parts.learner, parts.measurement, parts.scaler, config.total_env_steps)), parts


@cache
def trained_unseen(algorithm):
    return run_of(algorithm, measure_every=10**6)[1].learner.state_dict()


SIGNALS = ["behavioral_divergence", "kl_divergence", "effective_sample_size", "gradient_noise_scale"]


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_measuring_does_not_change_training(algorithm, signal):
    if algorithm == "pqn" and signal in ("kl_divergence", "effective_sample_size"):
        pytest.skip("pqn has no distribution to compare")
    iterations, parts = run_of(algorithm, signal=signal, measure_every=1)
    assert all(iteration.reading is not None for iteration in iterations)
    assert len({iteration.reading for iteration in iterations}) > 1
    assert same(encode_tree(parts.learner.state_dict())[1], encode_tree(trained_unseen(algorithm))[1])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_batch_can_follow_the_noise_scale_of_every_learner(algorithm):
    """Eight envs and two minibatches: the horizon is a quarter of what a minibatch should hold, between 4 and 16."""
    factor = 2.0 if algorithm == "pqn" else 24.0  # large errors of values drown the noise of the policy gradient
    iterations, _ = run_of(
        algorithm, scaler="noise-scale", smoothing=1.0, measure_every=1, batch_per_noise_scale=factor
    )
    assert len({iteration.plan.horizon for iteration in iterations}) > 1
    for before, after in pairwise(iterations):
        assert after.plan.horizon == min(max(math.floor(factor * before.reading / 4 + 0.5), 4), 16)


@pytest.mark.parametrize("algorithm", POLICY_ALGORITHMS)
def test_an_adaptive_batch_follows_the_policy_of_every_learner(algorithm):
    fields = {"scaler": "adaptive", "smoothing": 1.0, "measure_every": 1, "calm_reading": 1e-4, "volatile_reading": 0.1}
    iterations, _ = run_of(algorithm, **fields)
    assert len({iteration.plan.horizon for iteration in iterations}) > 1
    sizes = {iteration.metrics["batch_size"] for iteration in iterations}
    assert len(sizes) > 1


LEARNERS = [PQN, PPO, PPOEWMA, PPG, PPGEWMA, ESSPPO]
each_learner = pytest.mark.parametrize("kind", LEARNERS)


def made_by_hand(kind, envs, **fields):
    return kind(envs.observation_space, envs.action_space, **fields)


def assert_goes_on_alike(learner, restored, envs):
    """All of one learner's state reaches another, through a checkpoint's encoding; both then act and learn alike."""
    restored.load_state_dict(decode_tree(*encode_tree(learner.state_dict())))
    assert same(list(encode_tree(restored.state_dict())), list(encode_tree(learner.state_dict())))
    rollout, plan = rollout_of(learner, envs), BatchPlan(20, 2, 4)
    restored.load_state_dict(decode_tree(*encode_tree(learner.state_dict())))  # acting drew numbers
    assert restored.update(rollout, plan, 0.5) == learner.update(rollout, plan, 0.5)
    assert torch.equal(restored.act(rollout.states, 0.5)[0], learner.act(rollout.states, 0.5)[0])
    assert same(list(encode_tree(restored.state_dict())), list(encode_tree(learner.state_dict())))


@each_learner
@pytest.mark.parametrize("envs", [ScriptedEnvs, IdentityEnvs])
def test_a_learner_made_by_hand_needs_nothing_but_spaces(kind, envs):
    learner, before = made_by_hand(kind, envs()), weights(made_by_hand(kind, envs()))
    assert torch.equal(weights(learner), before)
    metrics = learner.update(rollout_of(learner, envs()), BatchPlan(20, 2, 4), 0.0)
    assert metrics["gradient_steps"] == learner.gradient_steps == 8
    assert math.isfinite(metrics["loss"]) and not torch.equal(weights(learner), before)
    states = torch.from_numpy(envs().reset())
    view = learner.view(states, learner.act(states, 0.0)[0])
    assert torch.equal(view.greedy_actions, learner.greedy_actions(states))
    assert_goes_on_alike(learner, made_by_hand(kind, envs(), seed=7), envs())


@pytest.mark.parametrize("kind", [PPG, PPGEWMA])
def test_a_phase_of_a_learner_made_by_hand_is_counted_in_env_steps(kind):
    learner = made_by_hand(kind, ScriptedEnvs(), phase_env_steps=80)
    collector, ended = Collector(ScriptedEnvs(), 20, CPU), []
    for _ in range(4):
        metrics = learner.update(collector.collect(learner, 20, FOREVER), BatchPlan(20, 1, 1), 0.0)
        ended.append("clone_kl" in metrics)
    assert ended == [False, True, False, True]


@each_learner
def test_a_learner_made_by_hand_learns_to_repeat_the_observation(kind):
    envs = IdentityEnvs()
    learner = made_by_hand(kind, envs, learning_rate=1e-2, reward_scale=1.0)
    practise(learner, envs, BatchPlan(16, 2, 4), 40)
    assert_repeats(learner, envs)


@each_learner
def test_an_encoder_of_ones_own_acts_learns_and_is_saved(kind):
    envs = IdentityEnvs()
    fields = {"network": "own_networks:make", "learning_rate": 1e-2, "reward_scale": 1.0}
    learner = made_by_hand(kind, envs, **fields)
    assert any(isinstance(module, nn.GELU) for module in learner.network.modules())
    practise(learner, envs, BatchPlan(16, 2, 4), 40)
    assert_repeats(learner, envs)
    assert_goes_on_alike(learner, made_by_hand(kind, envs, **fields, seed=7), envs)


@each_learner
def test_settings_name_an_encoder_of_ones_own_too(kind):
    settings = type(made_by_hand(kind, ScriptedEnvs()).settings)(network="own_networks:make")
    by_settings, by_name = (
        made_by_hand(kind, ScriptedEnvs(), **fields)
        for fields in ({"settings": settings}, {"network": settings.network})
    )
    assert by_settings.settings == by_name.settings == settings
    assert torch.equal(weights(by_settings), weights(by_name))


def test_a_seed_decides_the_weights_of_an_encoder_of_ones_own():
    first, again, other = (
        weights(made_by_hand(PPO, ScriptedEnvs(), network="own_networks:make", seed=seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


@each_learner
@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "own_networks:make_maps",
            r"the network must map observations \[B, ...\] to features \[B, F\], got \[1, 4, 3\]",
        ),
        (
            "own_networks:make_too_wide",
            r"the network cannot take observations of shape \[1, 3\]: mat1 and mat2 .* \(1x3 and 4x8\)",
        ),
        ("own_networks:make_nothing", r"network own_networks:make_nothing must make a torch module of the shape .*"),
        ("own_networks:mak", r"network own_networks:mak: own_networks has no mak; did you mean make\?"),
        ("nowhere.at_all:make", r"network nowhere.at_all:make: cannot import nowhere.at_all \(No module named .*\)"),
    ],
)
def test_an_encoder_that_cannot_be_had_is_refused_in_one_line(kind, name, line):
    with pytest.raises(ConfigError) as caught:
        made_by_hand(kind, ScriptedEnvs(), network=name)
    (fault,) = caught.value.faults
    assert re.fullmatch(line, fault)
