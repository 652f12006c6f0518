"""PPG: when a phase ends, what the auxiliary phase teaches and holds, and what of a phase is saved."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from policy_learners import CPU, FOREVER, around_steps, assert_repeats, learner_for, practise, rollout_of, weights
from scripted_envs import IdentityEnvs, ScriptedEnvs

from swell.algorithms.ppg import PhaseBuffer
from swell.collect.collector import Collector
from swell.runs.state_tree import decode_tree, encode_tree
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

ARCHITECTURES = ["dual", "shared", "detached"]
ONE_STEP = BatchPlan(20, 1, 1)


def ppg(envs=None, algorithm="ppg", **fields):
    """Its phases are as long as one rollout of 20 steps of both envs, unless they are said to be longer."""
    phase = {"phase_env_steps": 40, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 10}
    return learner_for(envs or ScriptedEnvs(), algorithm, **{**phase, **fields})


def phases(learner, horizons, envs=None):
    """Whether each update ended in an auxiliary phase, and how far the next phase was after it."""
    collector, ended, progress = Collector(envs or ScriptedEnvs(), 40, CPU), [], []
    for horizon in horizons:
        metrics = learner.update(collector.collect(learner, horizon, FOREVER), BatchPlan(horizon, 1, 2), 0.0)
        ended.append("clone_kl" in metrics)
        progress.append(metrics["phase_progress"])
        assert (len(learner.phase.returns) == 0) == ended[-1]
    return ended, progress


def test_phases_are_counted_in_env_steps_while_the_batch_changes():
    ended, progress = phases(ppg(phase_env_steps=120), [10, 20, 5, 25, 30, 30])
    assert ended == [False, False, False, True, False, True]
    assert progress == pytest.approx([20 / 120, 60 / 120, 70 / 120, 0.0, 60 / 120, 0.0])


def test_a_phase_of_three_thirds_ends_with_the_third():
    assert phases(ppg(phase_env_steps=120), [20] * 6)[0] == [False, False, True] * 2


def test_reset_rows_do_not_count():
    envs = ScriptedEnvs(next_step=True)
    learner = ppg(envs, phase_env_steps=10**6)
    collector = Collector(envs, 20, CPU)
    metrics = learner.update(collector.collect(learner, 20, FOREVER), ONE_STEP, 0.0)
    assert metrics["phase_progress"] == pytest.approx(collector.env_steps / 10**6)
    assert len(learner.phase.returns) == collector.env_steps < 40


def test_without_its_rule_a_phase_is_counted_in_rollouts():
    """Of the reference batch of 40 a phase of 120 env steps has three, and so it has of any other."""
    fields = {"invariance": "on", "invariance_rules": ("learning-rate",), "reference_batch": 40}
    assert phases(ppg(phase_env_steps=120, **fields), [5, 30, 10, 20])[0] == [False, False, True, False]


def test_without_auxiliary_epochs_there_is_no_phase():
    rollout = rollout_of(ppg(), ScriptedEnvs())
    none, never, always = (
        ppg(**fields) for fields in ({"auxiliary_epochs": 0}, {"phase_env_steps": 10**6}, {"phase_env_steps": 1})
    )
    for learner in (none, never, always):
        learner.update(rollout, BatchPlan(20, 2, 4), 0.0)
    assert torch.equal(weights(none), weights(never)) and not torch.equal(weights(none), weights(always))
    assert len(none.phase.returns) == 0 and none.phase_done == 0.0


@pytest.mark.usefixtures("in_float64")
def test_without_auxiliary_epochs_ppg_is_ppo():
    ours = ppg(advantage_norm="none", auxiliary_epochs=0)
    theirs = learner_for(ScriptedEnvs(), "ppo", advantage_norm="none")
    rollout = rollout_of(ours, ScriptedEnvs())
    for learner in (ours, theirs):
        learner.update(rollout, BatchPlan(20, 3, 4), 0.0)
    expected = theirs.network.state_dict()
    for name, value in ours.network.state_dict().items():
        if not name.startswith("auxiliary_head"):
            torch.testing.assert_close(value, expected[name])


@pytest.mark.usefixtures("in_float64")
def test_the_auxiliary_phase_starts_where_the_policy_is():
    """Its one minibatch is looked at before its one step, when the policy is still the one to be held."""
    learner = ppg(auxiliary_epochs=1, auxiliary_minibatch_size=40)
    metrics = learner.update(rollout_of(learner, ScriptedEnvs()), ONE_STEP, 0.0)
    assert metrics["clone_kl"] == pytest.approx(0.0, abs=1e-12)
    longer = ppg(auxiliary_epochs=6, learning_rate=1e-2)
    assert longer.update(rollout_of(longer, ScriptedEnvs()), ONE_STEP, 0.0)["clone_kl"] > 1e-9


@pytest.mark.usefixtures("in_float64")
def test_the_clone_divergence_is_of_the_new_policy_from_the_old():
    """Two passes of one step each: the first looks at a policy that has not moved, the second at one that has."""
    learner = ppg(auxiliary_epochs=2, auxiliary_minibatch_size=40, learning_rate=0.1, clone_coefficient=0.0)
    rollout, kind, seen = rollout_of(learner, ScriptedEnvs()), learner.space.kind, []

    def look():
        seen.append(kind.distribution(learner.parameters(rollout.states)))

    around_steps(learner.auxiliary_optimizer, before=look)
    metrics = learner.update(rollout, ONE_STEP, 0.0)
    old, new = seen
    assert metrics["clone_kl"] == pytest.approx(old.kl(new).mean().item() / 2)
    assert metrics["clone_kl"] != pytest.approx(new.kl(old).mean().item() / 2, rel=1e-2)


def after_an_auxiliary_phase(**fields):
    """KL(before ‖ after) of the policy, and the squared errors of both value heads before and after."""
    learner = ppg(learning_rate=1e-2, auxiliary_epochs=10, **fields)
    with torch.no_grad():
        learner.network.policy_head.weight *= 100.0  # so that the policy moves with its trunk
    batch = learner.peek(rollout_of(learner, ScriptedEnvs()))
    learner.phase.add(batch.states, batch.returns)
    kind = learner.space.kind

    @torch.no_grad()
    def look():
        parameters, values, auxiliary = learner.network.auxiliary(batch.states)
        errors = [(each - batch.returns).square().mean().item() for each in (values, auxiliary)]
        return kind.distribution(parameters), errors

    before, errors_before = look()
    learner._auxiliary_phase(0.0)
    after, errors_after = look()
    return before.kl(after).mean().item(), errors_before, errors_after


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_auxiliary_phase_teaches_both_heads_values(architecture):
    _, before, after = after_an_auxiliary_phase(architecture=architecture)
    assert all(later < 0.8 * earlier for earlier, later in zip(before, after, strict=True))


def test_cloning_holds_the_policy_while_values_are_taught():
    free, held = (after_an_auxiliary_phase(clone_coefficient=coefficient)[0] for coefficient in (0.0, 100.0))
    assert held < 0.2 * free


def first_auxiliary_gradients(architecture):
    """Of the trunk and of the value head, where neither the clone nor the auxiliary head has one for the trunk yet."""
    learner = ppg(architecture=architecture, auxiliary_epochs=1, auxiliary_minibatch_size=40)
    with torch.no_grad():
        learner.network.auxiliary_head.weight.zero_()
    found = {}

    def look():
        trunk = [parameter.grad.abs().max().item() for parameter in learner.network.policy_encoder.parameters()]
        found["trunk"] = max(trunk)
        found["value_head"] = learner.network.value_head.weight.grad.abs().max().item()

    around_steps(learner.auxiliary_optimizer, before=look)
    learner.update(rollout_of(learner, ScriptedEnvs()), ONE_STEP, 0.0)
    return found


@pytest.mark.usefixtures("in_float64")
def test_a_detached_value_head_never_changes_the_trunk_in_the_auxiliary_phase():
    detached, shared = first_auxiliary_gradients("detached"), first_auxiliary_gradients("shared")
    assert detached["trunk"] < 1e-12 and detached["value_head"] > 0.1
    assert shared["trunk"] > 0.1


def test_a_detached_value_head_never_changes_the_trunk_in_the_policy_phase():
    trunks = {}
    for architecture in ("detached", "shared"):
        for coefficient in (0.0, 10.0):
            learner = ppg(architecture=architecture, value_coefficient=coefficient, auxiliary_epochs=0)
            learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 2, 4), 0.0)
            trunk = [parameter.detach().flatten() for parameter in learner.network.policy_encoder.parameters()]
            trunks[architecture, coefficient] = torch.cat(trunk)
    assert torch.equal(trunks["detached", 0.0], trunks["detached", 10.0])
    assert not torch.equal(trunks["shared", 0.0], trunks["shared", 10.0])


def test_the_average_starts_anew_after_the_auxiliary_phase():
    learner = ppg(algorithm="ppg-ewma", phase_env_steps=80)
    collector, after = Collector(ScriptedEnvs(), 20, CPU), []
    for _ in range(2):
        learner.update(collector.collect(learner, 20, FOREVER), BatchPlan(20, 1, 4), 0.0)
        averaged = torch.cat([parameter.flatten() for parameter in learner.average.network.parameters()])
        after.append((learner.average.weight, torch.equal(averaged, weights(learner))))
    assert after[0][0] > 3.0 and not after[0][1]
    assert after[1] == (1.0, True)


@pytest.mark.usefixtures("in_float64")
def test_only_ppg_ewma_averages():
    assert ppg().average is None
    with_average = ppg(algorithm="ppg-ewma", proximal_decay=0.0, phase_env_steps=10**6, learning_rate=3e-2)
    metrics = with_average.update(rollout_of(with_average, ScriptedEnvs()), BatchPlan(20, 4, 4), 0.0)
    assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-12) and metrics["proximal_decay"] == 0.0
    without = ppg(phase_env_steps=10**6, learning_rate=3e-2)
    assert without.update(rollout_of(without, ScriptedEnvs()), BatchPlan(20, 4, 4), 0.0)["approx_kl"] > 1e-3


class ByteEnvs(ScriptedEnvs):
    def _observations(self):
        return super()._observations().astype(np.uint8)


def test_a_phase_keeps_bytes_as_bytes():
    learner = ppg(ByteEnvs(), phase_env_steps=60)
    phases(learner, [20], ByteEnvs())
    assert learner.phase.states.dtype == torch.uint8 and len(learner.phase.states) == 40
    assert phases(learner, [20], ByteEnvs())[0] == [True]  # the buffer grows past what was expected


def test_auxiliary_steps_count_as_gradient_steps():
    learner = ppg(auxiliary_epochs=3)
    metrics = learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 1, 2), 0.0)
    assert metrics["gradient_steps"] == learner.gradient_steps == 2 + 3 * 4


def test_the_auxiliary_phase_keeps_the_learning_rate_of_the_reference_batch():
    learner = ppg(invariance="on", reference_batch=160, learning_rate=1e-3)
    metrics = learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 1, 4), 0.0)
    assert metrics["learning_rate"] == pytest.approx(0.5e-3)
    assert learner.auxiliary_optimizer.learning_rate == 1e-3


PIECES = ["phase", "phase_done", "moments", "auxiliary_optimizer", "optimizer", "average", "shuffle"]


@pytest.mark.parametrize("dropped", [None, *PIECES])
def test_a_learner_restored_within_a_phase_goes_on_exactly_and_needs_each_piece(dropped):
    """One phase and a half are over; two more updates end the second."""
    made = {"algorithm": "ppg-ewma", "phase_env_steps": 80, "advantage_decay": 0.9}
    learner, restored = ppg(**made), ppg(**made, seed=7)
    collector, plan = Collector(ScriptedEnvs(), 20, CPU), BatchPlan(20, 2, 4)
    for _ in range(3):
        learner.update(collector.collect(learner, 20, FOREVER), plan, 0.0)
    assert learner.phase_done == pytest.approx(0.5)
    state = deepcopy(learner.state_dict())
    if dropped:
        state[dropped] = restored.state_dict()[dropped]
    restored.load_state_dict(state)
    same = True
    for _ in range(2):
        rollout = collector.collect(learner, 20, FOREVER)
        same &= restored.update(rollout, plan, 0.1) == learner.update(rollout, plan, 0.1)
    assert same == (dropped is None)
    if dropped is None:
        assert torch.equal(weights(learner), weights(restored))


@pytest.mark.parametrize("mode", ["behavior", "recent", "decoupled"])
def test_ppg_learns_from_stale_data_in_every_mode(mode):
    envs = IdentityEnvs()
    fields = {"phase_env_steps": 512, "auxiliary_minibatch_size": 128, "learning_rate": 1e-2}
    learner = ppg(envs, staleness=2, staleness_mode=mode, **fields)
    practise(learner, envs, BatchPlan(8, 4, 4), 20, staleness=2)
    assert_repeats(learner, envs)


@pytest.mark.parametrize("algorithm", ["ppg", "ppg-ewma"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ppg_learns_to_repeat_the_observation(algorithm, architecture):
    envs = IdentityEnvs()
    fields = {"phase_env_steps": 512, "auxiliary_minibatch_size": 128, "learning_rate": 1e-2}
    learner = ppg(envs, algorithm, architecture=architecture, **fields)
    metrics = practise(learner, envs, BatchPlan(8, 4, 4), 20)
    assert_repeats(learner, envs)
    assert sum("clone_kl" in each for each in metrics) == 5


def rows(start, count, dtype=torch.uint8):
    states = torch.arange(start, start + count).view(-1, 1, 1).expand(-1, 2, 3).to(dtype)
    return states, torch.arange(start, start + count) / 10.0


def holds(buffer, *parts):
    states, returns = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return torch.equal(buffer.states, states) and torch.equal(buffer.returns, returns)


@pytest.mark.parametrize("expected_rows", [1, 6, 100])
def test_rows_come_out_as_they_went_in_however_many_were_expected(expected_rows):
    buffer = PhaseBuffer(expected_rows)
    parts = [rows(0, 4), rows(4, 3), rows(7, 20)]
    for number, part in enumerate(parts):
        buffer.add(*part)
        assert holds(buffer, *parts[: number + 1])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32, torch.float64])
def test_observations_keep_the_dtype_of_the_env(dtype):
    buffer = PhaseBuffer(2)
    for start in (0, 2):
        buffer.add(*rows(start, 2, dtype))
    assert buffer.states.dtype == dtype and buffer.returns.dtype == torch.float32


def test_memory_is_allocated_once_for_the_expected_rows():
    buffer = PhaseBuffer(10)
    buffer.add(*rows(0, 4))
    address = buffer.states.data_ptr()
    buffer.add(*rows(4, 6))
    assert buffer.states.data_ptr() == address
    buffer.clear()
    buffer.add(*rows(0, 10))
    assert buffer.states.data_ptr() == address


def test_a_buffer_keeps_copies():
    buffer, (states, returns) = PhaseBuffer(4), rows(0, 4)
    states = states.clone()
    buffer.add(states, returns)
    states.zero_()
    returns.zero_()
    assert holds(buffer, rows(0, 4))


def test_a_cleared_buffer_starts_anew():
    buffer = PhaseBuffer(4)
    buffer.add(*rows(0, 9))
    buffer.clear()
    assert len(buffer.states) == len(buffer.returns) == 0
    buffer.add(*rows(50, 2))
    assert holds(buffer, rows(50, 2))


@pytest.mark.parametrize("count", [0, 3, 9])
def test_a_restored_buffer_goes_on_as_the_original(count):
    buffer, restored = PhaseBuffer(5), PhaseBuffer(5)
    restored.add(*rows(100, 7))  # what it held before does not matter
    parts = [rows(0, count)] if count else []
    for part in parts:
        buffer.add(*part)
    restored.load_state_dict(decode_tree(*encode_tree(buffer.state_dict())))
    assert len(restored.returns) == count
    restored.add(*rows(count, 4))
    assert holds(restored, *parts, rows(count, 4))
