"""PQN: targets, exploration, updates, and that it learns."""

import re
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from scripted_envs import IdentityEnvs, ScriptedEnvs
from tolerances import rounding_of
from torch import nn

from swell.algorithms.pqn import PQN
from swell.batch.rules import BatchSizes
from swell.collect.collector import Collector
from swell.config.learners import PQNSettings
from swell.errors import ConfigError
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

CPU = torch.device("cpu")
SETTINGS = PQNSettings(
    learning_rate=1e-3,
    anneal_learning_rate=False,
    epsilon_start=1.0,
    epsilon_end=0.1,
    epsilon_fraction=0.5,
    discount=0.9,
    trace_decay=0.5,
    max_gradient_norm=10.0,
    loss_coefficient=1.0,
    reward_scale=1.0,
    truncation_is_termination=False,
    micro_batch_size=64,
    hidden=(32,),
    norm_over="map",
)


def learner_for(envs, settings=SETTINGS, **fields):
    return PQN(envs.observation_space, envs.action_space, settings, **{"seed": 0, **fields})


def step_value_learner(settings=SETTINGS, **fields):
    return learner_for(ScriptedEnvs(), settings, network=StepValue(), **fields)


class StepValue(nn.Module):
    """Q(s, ·) = (0, 10 · step): the greedy action is 1 and the value is known."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, observations):
        return torch.stack([torch.zeros_like(observations[:, 2]), self.scale * observations[:, 2]], dim=1)


def slow_targets(rollout, settings):
    """Backward through time, one env and one step at a time, by the words of the definition."""
    values = rollout.observations[..., 2].double() * 10.0
    finals = dict(zip(rollout.final_indices.tolist(), rollout.final_observations.tolist(), strict=True))
    targets = torch.zeros_like(rollout.rewards, dtype=torch.float64)
    horizon, num_envs = rollout.rewards.shape
    for env in range(num_envs):
        for step in reversed(range(horizon)):
            reward = rollout.rewards[step, env]
            if rollout.terminated[step, env] or (rollout.truncated[step, env] and settings.truncation_is_termination):
                targets[step, env] = reward
            elif rollout.truncated[step, env]:
                final = finals.get(step * num_envs + env)
                value = final[2] * 10.0 if final else values[step + 1, env]
                targets[step, env] = reward + settings.discount * value
            elif step == horizon - 1:
                targets[step, env] = reward + settings.discount * values[step + 1, env]
            else:
                mixed = (1 - settings.trace_decay) * values[step + 1, env] + settings.trace_decay * targets[
                    step + 1, env
                ]
                targets[step, env] = reward + settings.discount * mixed
    return targets


@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("truncation_is_termination", [False, True])
def test_targets_bootstrap_at_time_limits_and_not_at_terminal_states(next_step, truncation_is_termination):
    settings = replace(SETTINGS, truncation_is_termination=truncation_is_termination)
    learner = step_value_learner(settings)
    rollout = Collector(ScriptedEnvs(next_step=next_step), 30, CPU).collect(learner, 30, 10**9)
    assert rollout.truncated.any() and rollout.terminated.any()
    valid = rollout.valid
    # Sums of positive terms: each step back adds three roundings, of which γλ = 0.45 reach the step before it.
    digits = rounding_of(1.0, roundings=6)
    targets, expected = learner.targets(rollout)[valid].double(), slow_targets(rollout, settings)[valid]
    torch.testing.assert_close(targets, expected, rtol=digits, atol=0.0)


def test_exploration_follows_env_steps():
    learner = step_value_learner()
    observations = torch.ones(20_000, 3)
    for progress, epsilon in [(0.0, 1.0), (0.25, 0.55), (0.5, 0.1), (1.0, 0.1)]:
        actions, _ = learner.act(observations, progress)
        assert learner.epsilon(progress) == pytest.approx(epsilon)
        assert (actions == 0).float().mean().item() == pytest.approx(epsilon / 2, abs=0.01)


def test_the_value_recorded_with_an_action_is_the_greedy_one():
    _, recorded = step_value_learner().act(torch.tensor([[0.0, 0.0, 3.0]]), 0.0)
    assert recorded["values"].tolist() == [30.0]


def test_reset_rows_do_not_change_the_update():
    envs = ScriptedEnvs(next_step=True)
    learner, twin = learner_for(envs), learner_for(envs)
    rollout = Collector(envs, 20, CPU).collect(learner, 20, 10**9)
    assert not rollout.valid.all()
    spoiled = replace(rollout, rewards=torch.where(rollout.valid, rollout.rewards, 1e6))
    plan = BatchPlan(20, 2, 4)
    assert learner.update(rollout, plan, 0.0)["loss"] == twin.update(spoiled, plan, 0.0)["loss"]


def rate_at(learner, batch, progress):
    """The learning rate of an update on so many transitions."""
    rollout = Collector(ScriptedEnvs(num_envs=16), batch // 16, CPU).collect(learner, batch // 16, 10**9)
    rate = learner.update(rollout, BatchPlan(batch // 16, 1, 4), progress)["learning_rate"]
    assert learner.optimizer.learning_rate == rate
    return rate


@pytest.mark.parametrize(("batch", "factor"), [(1024, 1.0), (4096, 2.0), (256, 0.5)])
def test_the_sqrt_rule_follows_the_batch(batch, factor):
    learner = step_value_learner(learning_rate_rule="sqrt", reference=BatchSizes(1024, 256))
    assert rate_at(learner, batch, 0.0) == pytest.approx(1e-3 * factor)
    assert rate_at(step_value_learner(), batch, 0.5) == 1e-3


def test_annealing_ends_at_zero():
    learner = step_value_learner(anneal_learning_rate=True)
    assert rate_at(learner, 1024, 0.25) == pytest.approx(0.75e-3)
    assert rate_at(learner, 1024, 1.0) == 0.0


def test_invariance_follows_the_minibatch():
    """Of 256 transitions in 4 minibatches, where 1024 in 4 were tuned: c is 4."""
    learner = step_value_learner(
        invariance="on", invariance_rules=("learning-rate", "betas"), reference=BatchSizes(1024, 256)
    )
    assert rate_at(learner, 256, 0.0) == pytest.approx(0.5e-3)
    assert learner.optimizer.betas == pytest.approx((0.9**0.25, 0.999**0.25))


@pytest.mark.parametrize("fields", [{"learning_rate_rule": "sqrt"}, {"invariance": "on"}])
def test_rules_of_the_batch_need_the_batch_that_was_tuned_at(fields):
    with pytest.raises(ConfigError, match="need `reference`, the BatchSizes tuned at"):
        step_value_learner(**fields)


def test_an_update_reports_what_it_did():
    envs = ScriptedEnvs()
    learner = learner_for(envs)
    metrics = learner.update(Collector(envs, 10, CPU).collect(learner, 10, 10**9), BatchPlan(10, 3, 4), 0.0)
    assert (metrics["batch_size"], metrics["minibatches"], metrics["minibatch_size"], metrics["epochs"]) == (
        20,
        4,
        5,
        3,
    )
    assert metrics["gradient_steps"] == learner.gradient_steps == 12


@pytest.mark.usefixtures("in_float64")
def test_the_gradient_probe_shows_the_losses_that_the_update_trains_on():
    envs = ScriptedEnvs(next_step=True)
    learner = learner_for(envs, replace(SETTINGS, loss_coefficient=0.5))
    rollout = Collector(envs, 20, CPU).collect(learner, 20, 10**9)
    indices, sample_losses, _ = learner.gradient_probe(rollout)
    assert torch.equal(indices, rollout.valid_indices)
    q_values = learner.network(rollout.states).gather(1, rollout.actions.flatten().unsqueeze(1)).squeeze(1)
    errors = q_values - learner.targets(rollout).flatten()
    torch.testing.assert_close(sample_losses(indices[3:7]), 0.5 * errors.square()[indices[3:7]])
    mean = sample_losses(indices).mean().item()
    assert learner.update(rollout, BatchPlan(20, 1, 1), 0.0)["loss"] == pytest.approx(mean)


def test_pqn_learns_to_repeat_the_observation():
    envs = IdentityEnvs()
    learner = learner_for(envs, replace(SETTINGS, learning_rate=3e-3))
    collector = Collector(envs, 16, CPU)
    for iteration in range(60):
        rollout = collector.collect(learner, 16, 60 * 16 * 16)
        learner.update(rollout, BatchPlan(16, 2, 4), iteration / 60)
    shown = torch.eye(4)
    assert learner.greedy_actions(shown).tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(learner.network(shown).diag(), torch.ones(4), atol=0.1, rtol=0.0)


class Dueling(nn.Module):
    """A state's value and the advantage of each action: a network that has no kernel."""

    def __init__(self):
        super().__init__()
        self.value, self.advantages = nn.Linear(4, 1), nn.Linear(4, 4)

    def forward(self, observations):
        return self.value(observations) + self.advantages(observations)


def plain():
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))


@pytest.mark.parametrize("make", [Dueling, plain])
def test_a_network_of_ones_own_acts_and_learns(make):
    torch.manual_seed(0)
    envs, network = IdentityEnvs(), make()
    learner = learner_for(envs, learning_rate=1e-2, network=network)
    assert learner.network is network
    shown = torch.eye(4)
    with torch.no_grad():
        torch.testing.assert_close(learner.act(shown, 1.0)[1]["values"], network(shown).amax(1))
    collector = Collector(envs, 16, CPU)
    for iteration in range(60):
        learner.update(collector.collect(learner, 16, 60 * 16 * 16), BatchPlan(16, 2, 4), iteration / 60)
    assert learner.greedy_actions(shown).tolist() == [0, 1, 2, 3]
    assert network(shown).argmax(1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("network", "line"),
    [
        (nn.Linear(4, 5), r"the network must map observations \[B, ...\] to Q-values \[B, 4\], got \[1, 5\]"),
        (nn.Linear(4, 1), r"the network must map observations \[B, ...\] to Q-values \[B, 4\], got \[1, 1\]"),
        (nn.Linear(3, 4), r"the network cannot take observations of shape \[1, 4\]: mat1 and mat2 .*"),
    ],
)
def test_a_network_of_another_shape_is_refused_in_one_line(network, line):
    with pytest.raises(ConfigError) as caught:
        learner_for(IdentityEnvs(), network=network)
    (fault,) = caught.value.faults
    assert re.fullmatch(line, fault)


def test_to_try_a_network_changes_nothing_in_it():
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 4))
    before, random_state = deepcopy(network.state_dict()), torch.get_rng_state()
    learner_for(IdentityEnvs(), network=network)
    assert network.training and torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_frozen_layer_of_a_network_of_ones_own_stays_as_it_is():
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    network[0].requires_grad_(False)
    before = deepcopy(network.state_dict())
    learner = learner_for(IdentityEnvs(), network=network)
    learner.update(Collector(IdentityEnvs(), 8, CPU).collect(learner, 8, 10**9), BatchPlan(8, 2, 2), 0.0)
    moved = {name: not torch.equal(value, before[name]) for name, value in network.state_dict().items()}
    assert moved == {"0.weight": False, "0.bias": False, "2.weight": True, "2.bias": True}


def test_a_restored_learner_goes_on_exactly():
    envs = ScriptedEnvs()
    learner = learner_for(envs)
    plan = BatchPlan(10, 2, 4)
    rollout = Collector(envs, 10, CPU).collect(learner, 10, 10**9)
    learner.update(rollout, plan, 0.0)
    restored = learner_for(envs, seed=7)
    restored.load_state_dict(deepcopy(learner.state_dict()))  # as a file would: nothing shared
    assert restored.update(rollout, plan, 0.1) == learner.update(rollout, plan, 0.1)
    observations = torch.rand(64, 3)
    assert restored.act(observations, 0.1)[0].tolist() == learner.act(observations, 0.1)[0].tolist()
