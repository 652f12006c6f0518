"""The ESS objective and the readings of tokens, on tensors alone."""

import math
from functools import partial

import pytest
import torch

from swell.batch.signals import effective_sample_size, effective_sample_size_of, ratio_sums
from swell.errors import DivergedError
from swell.llm.objective import ess_token_losses, token_ratios, verl_policy_loss
from swell.llm.readings import TOKEN_SIGNALS


def tokens(rows=4, length=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, rows, length, generator=generator, dtype=torch.float64)
    mask = torch.rand(rows, length, generator=generator) < 0.8
    mask[:, 0] = True
    return draw() - 2.0, draw() - 2.0, torch.randn(rows, generator=generator, dtype=torch.float64), mask.long()


def test_a_known_effective_sample_size():
    sums = ratio_sums(torch.log(torch.tensor([4.0, 1.0, 1.0, 1.0])))
    assert sums.dtype == torch.float64
    assert effective_sample_size_of(sums).item() == pytest.approx(49 / 76)


def test_sums_add_up_over_any_partition():
    log_ratios = torch.randn(60, generator=torch.Generator().manual_seed(1))
    whole = effective_sample_size(log_ratios)
    for sizes in ([60], [1, 59], [20, 20, 20], [7, 0, 53]):
        sums = torch.stack([ratio_sums(part) for part in log_ratios.split(sizes)]).sum(0)
        assert effective_sample_size_of(sums).item() == pytest.approx(whole.item(), abs=1e-6)


def test_no_ratio_at_all_is_full_trust_and_an_infinite_one_is_an_error():
    assert effective_sample_size_of(ratio_sums(torch.zeros(0))).item() == 1.0
    with pytest.raises(DivergedError, match="not finite"):
        effective_sample_size_of(ratio_sums(torch.tensor([0.0, 400.0])))


def test_masked_infinities_and_unknown_tokens_do_no_harm():
    log_probs, behavior, advantages, mask = tokens()
    log_probs.requires_grad_()
    reference, trust = ess_token_losses(log_probs, behavior, advantages, mask)
    (expected,) = torch.autograd.grad(reference.sum(), log_probs)
    spoiled = torch.where(mask.bool(), behavior, torch.tensor(-math.inf, dtype=torch.float64))
    spoiled[mask == 0] = torch.tensor([math.inf, math.nan, -math.inf], dtype=torch.float64).repeat(20)[
        : (mask == 0).sum()
    ]
    losses, same = ess_token_losses(log_probs, spoiled, advantages, mask)
    (gradient,) = torch.autograd.grad(losses.sum(), log_probs)
    assert torch.equal(losses, reference) and torch.equal(trust, same) and torch.equal(gradient, expected)


def test_an_unknown_token_is_a_fresh_one_outside_the_pool():
    log_probs, behavior, advantages, mask = tokens()
    behavior[1, 0] = math.nan
    losses, trust = ess_token_losses(log_probs, behavior, advantages, mask)
    known = token_ratios(log_probs, behavior, mask).known
    assert known.sum() == mask.sum() - 1
    assert trust.item() == pytest.approx(effective_sample_size((log_probs - behavior)[known]).item())
    assert losses[1, 0].item() == pytest.approx(-min(1.0, trust.item()) * (log_probs[1, 0] * advantages[1]).item())


def test_the_losses_are_those_of_the_formula():
    log_probs, behavior, advantages, mask = tokens()
    losses, trust = ess_token_losses(log_probs, behavior, advantages, mask)
    for row, column in ((0, 0), (2, 0), (3, 0)):
        log_ratio = (log_probs - behavior)[row, column].item()
        policy = -min(math.exp(log_ratio), trust.item()) * log_probs[row, column].item() * advantages[row].item()
        pull = (1.0 - trust.item()) * (log_ratio + math.exp(-log_ratio) - 1.0)
        assert losses[row, column].item() == pytest.approx(policy + pull)
    assert losses[mask == 0].abs().sum() == 0.0


def test_the_pull_points_back_however_small_the_ratio():
    log_probs = torch.tensor([[-12.0]], requires_grad=True)
    ratios = token_ratios(log_probs, torch.zeros(1, 1), torch.ones(1, 1))
    ratios.pull().backward()
    assert log_probs.grad.item() < -1e4


def test_fresh_tokens_are_plain_reinforce():
    log_probs, _, advantages, mask = tokens()
    losses, trust = ess_token_losses(log_probs, None, advantages, mask)
    assert trust.item() == 1.0
    assert torch.allclose(losses, -log_probs * advantages.unsqueeze(1) * mask)


# Readings.


@pytest.mark.parametrize("name", TOKEN_SIGNALS)
def test_equal_policies_are_still(name):
    before = torch.randn(30) if not TOKEN_SIGNALS[name].of_greedy_tokens else torch.arange(30)
    signal = TOKEN_SIGNALS[name]
    assert signal.reading(signal.sums(before, before.clone())) == (1.0 if name == "effective_sample_size" else 0.0)


def test_the_reading_is_the_divergence_of_the_old_policy_from_the_new_in_the_mean():
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(0)
    new = (old + 0.5 * torch.randn(6, generator=generator, dtype=torch.float64)).log_softmax(0)
    exact = (old.exp() * (old - new)).sum().item()
    reverse = (new.exp() * (new - old)).sum().item()
    sampled = torch.multinomial(old.exp(), 200_000, replacement=True, generator=generator)
    signal = TOKEN_SIGNALS["kl_divergence"]
    reading = signal.reading(signal.sums(old[sampled], new[sampled]))
    assert reading == pytest.approx(exact, rel=0.03)
    assert abs(reading - reverse) > 0.03 * reverse
    assert (torch.stack([signal.sums(old[i : i + 1], new[i : i + 1])[0] for i in range(6)]) >= 0).all()


# veRL.


def agg_loss(loss_mat, loss_mask, loss_agg_mode, batch_num_tokens, dp_size):
    """As veRL's, for the one mode of this test."""
    assert loss_agg_mode == "token-mean"
    return (loss_mat * loss_mask).sum() / batch_num_tokens * dp_size


def test_the_loss_for_verl_is_the_same_objective():
    log_probs, behavior, advantages, mask = tokens()
    log_probs.requires_grad_()
    per_token = advantages.unsqueeze(1).expand_as(mask)
    loss, metrics = verl_policy_loss(behavior, log_probs, per_token, mask)
    losses, trust = ess_token_losses(log_probs, behavior, advantages, mask)
    assert loss.item() == pytest.approx((losses.sum() / mask.sum()).item())
    assert metrics["actor/ess"] == pytest.approx(trust.item())
    assert set(metrics) == {"actor/ess", "actor/ess_ratio_mean", "actor/ess_capped_share", "actor/ess_pull"}
    loss.backward()
    assert log_probs.grad.isfinite().all()


def test_verls_own_aggregation_is_used_with_what_it_knows_of_the_batch():
    log_probs, behavior, advantages, mask = tokens()
    config = type("Config", (), {"global_batch_info": {"batch_num_tokens": 2 * mask.sum(), "dp_size": 2}})
    registered = partial(verl_policy_loss, aggregate=agg_loss)
    loss, _ = registered(behavior, log_probs, advantages.unsqueeze(1), mask, config=config)
    assert loss.item() == pytest.approx(verl_policy_loss(behavior, log_probs, advantages.unsqueeze(1), mask)[0].item())


def test_verls_rollout_weights_and_unknown_modes_are_refused():
    log_probs, behavior, advantages, mask = tokens()
    with pytest.raises(ValueError, match="weighs tokens itself"):
        verl_policy_loss(behavior, log_probs, advantages, mask, rollout_is_weights=torch.ones_like(log_probs))
    with pytest.raises(ValueError, match="aggregate=agg_loss"):
        verl_policy_loss(behavior, log_probs, advantages, mask, loss_agg_mode="seq-mean-token-sum")
