"""Tables of subsets of heads, and their distribution."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import RelaxedBernoulli, kl_divergence
from torch.nn.functional import logsigmoid, softplus

from latentheads.handlers import plug_in_value
from latentheads.latents.bernoulli_heads.subsets import (
    HeadSubsets,
    SubsetTable,
    all_subsets,
    extend_table,
    joint_conditionals,
    joint_table,
    logistic_chain,
    nearest_product,
    sample_relaxed,
    subset_index,
)

LIKE = torch.empty(0, dtype=torch.float64)


def a_table(heads: int = 3, first: int = 2, batch: tuple[int, ...] = ()) -> SubsetTable:
    weight = torch.randn(heads, first + heads, dtype=torch.float64).tril(first - 1)
    return logistic_chain(torch.randn(*batch, heads, dtype=torch.float64), weight)


def test_a_number_names_each_subset_once() -> None:
    subsets = all_subsets(5, LIKE)
    assert subsets.unique(dim=0).shape == (32, 5)
    assert subset_index(subsets).tolist() == list(range(32))
    assert subsets[6].tolist() == [0, 1, 1, 0, 0]


def test_a_chain_multiplies_the_probability_of_each_head_given_those_before() -> None:
    logits = torch.randn(2, dtype=torch.float64)
    weight = torch.tensor([[0.7, 0.0, 0.0], [-1.1, 2.3, 0.0]], dtype=torch.float64)
    table = logistic_chain(logits, weight)
    assert (table.heads, table.first) == (2, 1)
    gates = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    expected = logsigmoid(-(logits[0] + 0.7)) + logsigmoid(logits[1] - 1.1)
    torch.testing.assert_close(table.log_probs[subset_index(gates)], expected)
    torch.testing.assert_close(table.given(gates[:1])[2], expected)


def test_it_is_normalised_where_gates_are_nearly_certain() -> None:
    logits = torch.tensor([23.0, -29.0, 31.0], dtype=torch.float64)
    total = logistic_chain(logits, torch.zeros(3, 3, dtype=torch.float64)).log_probs.exp().sum()
    assert abs(float(total) - 1) < 1e-14


def test_it_is_normalised_given_lower_blocks() -> None:
    table = a_table(batch=(7,))
    for lower in all_subsets(2, LIKE):
        rows = table.given(lower)
        assert rows.shape == (7, 8)
        torch.testing.assert_close(rows.logsumexp(-1), torch.zeros(7, dtype=torch.float64))


def test_so_are_weights_of_ones_own() -> None:
    table = a_table(batch=(7,))
    weights = table.log_probs + torch.randn(7, 1, 4, dtype=torch.float64).expand(-1, 8, -1).flatten(
        1
    )
    torch.testing.assert_close(SubsetTable(weights, 3, 2).log_probs, table.log_probs)


def test_each_sample_of_lower_gates_selects_its_own_row() -> None:
    table, lower = a_table(batch=(4,)), all_subsets(2, LIKE)
    rows = table.given(lower)
    for index, gates in enumerate(lower):
        torch.testing.assert_close(rows[index], table.given(gates)[index])


def test_bayes_rule_splits_a_joint_into_blocks() -> None:
    log_joint = torch.randn(5, 64, dtype=torch.float64)
    tables = joint_conditionals(log_joint, [1, 3, 2])
    assert [(table.heads, table.first) for table in tables] == [(1, 0), (3, 1), (2, 4)]
    product = torch.stack([extend_table(table, 6) for table in tables]).sum(0)
    torch.testing.assert_close(product, log_joint.log_softmax(-1))
    marginal = log_joint.log_softmax(-1).exp() @ all_subsets(6, LIKE)[:, 0]
    torch.testing.assert_close(tables[0].log_probs[:, 1].exp(), marginal)


def test_moments_and_mode() -> None:
    table = a_table(first=0)
    distribution = HeadSubsets(table, batch_shape=(2,))
    assert (distribution.batch_shape, distribution.event_shape) == ((2,), (3,))
    support = distribution.enumerate_support()
    assert support.shape == (8, 2, 3)
    probs = distribution.log_prob(support).exp()
    torch.testing.assert_close(probs.sum(0), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(distribution.mean, (probs[..., None] * support).sum(0))
    assert (distribution.log_prob(distribution.mode) >= probs.log()).all()
    assert torch.equal(plug_in_value(distribution), distribution.mode)


def test_samples_have_its_probabilities() -> None:
    torch.manual_seed(0)
    distribution = HeadSubsets(a_table(first=0))
    index = subset_index(distribution.sample(torch.Size([20_000])))
    frequencies = index.bincount(minlength=8) / 20_000
    torch.testing.assert_close(
        frequencies.double(), distribution.log_probs.exp(), atol=0.015, rtol=0
    )


def test_kl_is_a_sum_over_subsets() -> None:
    q, p = HeadSubsets(a_table(first=0)), HeadSubsets(a_table(first=0))
    by_hand = sum(
        q.log_prob(b).exp() * (q.log_prob(b) - p.log_prob(b)) for b in all_subsets(3, LIKE)
    )
    torch.testing.assert_close(kl_divergence(q, p), by_hand)
    assert kl_divergence(q, p) > 0
    certain = HeadSubsets(SubsetTable(torch.tensor([0.0, 1.0, *[0.0] * 6]).double().log(), 3))
    torch.testing.assert_close(kl_divergence(certain, p), -p.log_probs[1])


def test_particles_stand_in_front() -> None:
    lower = all_subsets(2, LIKE)
    distribution = HeadSubsets(a_table(batch=(4,)), lower).expand((6, 4))
    value = distribution.sample()
    assert value.shape == (6, 4, 3)
    assert distribution.log_prob(value).shape == (6, 4)
    same = HeadSubsets(a_table(batch=(4,)), lower)
    assert same.expand((4,)) is same
    other = distribution.with_table(a_table(batch=(4,)))
    assert other.batch_shape == (6, 4)
    assert other.lower is lower
    with pytest.raises(RuntimeError):
        HeadSubsets(a_table(batch=(4,)), lower, (3,))


def test_relaxed_gates_of_a_chain_are_binary_concrete_given_those_before() -> None:
    first = torch.randn(7, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
    weight = torch.randn(3, 5, dtype=torch.float64).tril(1)
    second = torch.randn(7, 3, dtype=torch.float64), weight
    blocks = [HeadSubsets(logistic_chain(*chain), batch_shape=(7,)) for chain in (first,)]
    blocks.append(HeadSubsets(logistic_chain(*second), torch.zeros(7, 2), batch_shape=(7,)))
    torch.manual_seed(0)
    relaxed = sample_relaxed(blocks, 0.7)
    torch.manual_seed(0)
    gates = torch.empty(7, 0, dtype=torch.float64)
    rows = torch.cat([torch.zeros(2, 5, dtype=torch.float64), weight])
    for logits, row in zip(torch.cat([first[0], second[0]], -1).mT, rows, strict=True):
        logits = logits + gates @ row[: gates.shape[-1]]
        gate = RelaxedBernoulli(torch.tensor(0.7), logits=logits).rsample()
        gates = torch.cat([gates, gate[:, None]], -1)
    torch.testing.assert_close(relaxed, gates)


def test_no_product_that_is_near_is_nearer_than_the_nearest() -> None:
    log_joint, subsets = torch.randn(16).log_softmax(-1), all_subsets(4, LIKE)
    logits = nearest_product(log_joint, 4, rounds=99).requires_grad_()
    log_product = (subsets * logits - softplus(logits)).sum(-1)
    kl = (log_product.exp() * (log_product - log_joint)).sum()
    (slope,) = torch.autograd.grad(kl, logits)
    torch.testing.assert_close(slope, torch.zeros(4), rtol=0, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, -1e3])
def test_conditionals_of_sentences_of_many_nats_sum_to_one_in_float32(offset: float) -> None:
    weights = torch.randn(7, 32, dtype=torch.float32) + offset
    tables = joint_conditionals(weights, [2, 3])
    total = joint_table(tables).double().exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(7), rtol=0, atol=1e-6)
    expected = weights.double().softmax(-1)
    torch.testing.assert_close(joint_table(tables).double().exp(), expected, rtol=1e-5, atol=0)
