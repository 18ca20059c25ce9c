r"""The gaps of guides to the exact posterior over subsets, for each sentence and for a corpus.

The network is frozen, so that log p(y | x, b) of every sentence and subset is computed once. Guides
are then trained on that table until their bound on validation no longer increases. Beside each
inference network stands the optimum of its structure for every sentence alone: what is left of the
gap is that of the structure, the rest is amortisation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import latentheads as lh
from latentheads.corpora import Part
from latentheads.corpora.batches import batches
from latentheads.experiments.studies.subsets.rankings import with_latents
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.latents.bernoulli_heads.enumeration import SubsetEnumeration
from latentheads.latents.bernoulli_heads.prior import SubsetPrior, chain_tables, dependence_mask
from latentheads.latents.bernoulli_heads.subsets import (
    SubsetTable,
    all_subsets,
    joint_conditionals,
    joint_table,
)
from latentheads.runs.run import Run

TEMPERATURES = (1.0, 10.0, 100.0, 1000.0)
OPTIMUM = "optimum of each sentence"
TOLERANCE = 1e-4
"""Nats per token by which the bound on validation must increase to count as an increase."""
EVALUATE_EVERY, PATIENCE = 100, 5
CHAIN_STEPS = 400
"""Steps of the optimum of one chain."""


def structures_of(heads: Sequence[int]) -> tuple[str, ...]:
    """The structures that differ for some blocks: one block has no cascade."""
    structures = ("mean-field", "autoregressive", "cascaded")
    return structures if len(heads) > 1 else structures[:2]


@dataclass(frozen=True)
class Sentences:
    """Sentences with the likelihood of every subset.

    Attributes:
        part: The sentences.
        log_likelihoods: Log p(y | x, b), in their order.
        tokens: Number of all target tokens.
    """

    part: Part
    log_likelihoods: Float[Tensor, "sentence subset"]
    tokens: float

    @classmethod
    def of(cls, model: Any, part: Part, blocks: str) -> Sentences:
        """Computes the table."""
        posterior = lh.head_posterior(model, part, blocks, tau=1)
        return cls(part, posterior.log_likelihoods, float(posterior.tokens.sum()))

    def batches(self, tokens: int) -> Iterator[Any]:
        """Batches with their rows of the table."""
        for batch in batches(self.part, tokens, shuffle=False):
            yield batch, self.log_likelihoods[batch.index]


def make_enumeration(latent: Any, log_likelihoods: Tensor, tables: Any) -> SubsetEnumeration:
    """All subsets under the prior and some posterior."""
    return SubsetEnumeration(log_likelihoods, latent.prior(), tables, latent.sites)


def bound_of(enumeration: SubsetEnumeration) -> Float[Tensor, "*batch"]:
    """The bound of every sentence."""
    return enumeration.log_likelihood - torch.stack([*enumeration.kl().values()]).sum(0)


@torch.no_grad()
def figures_of(latent: Any, posterior: Any, sentences: Sentences) -> dict[str, float]:
    """Bound, KL and gap of an inference network, per target token."""
    sums = dict.fromkeys(("bound", "kl", "gap"), 0.0)
    for batch, rows in sentences.batches(2048):
        enumeration = make_enumeration(latent, rows, posterior(batch))
        sums["bound"] += float(bound_of(enumeration).sum())
        sums["kl"] += float(torch.stack([*enumeration.kl().values()]).sum())
        sums["gap"] += float(torch.stack([*enumeration.gap().values()]).sum())
    return {name: total / sentences.tokens for name, total in sums.items()}


def train_guide(
    latent: Any, posterior: Any, train: Sentences, valid: Sentences, most_steps: int
) -> tuple[int, list[float]]:
    """Trains an inference network until its bound on validation no longer increases.

    Args:
        latent: The gates.
        posterior: The inference network; it has the best weights in the end.
        train: Sentences to train on.
        valid: Sentences to evaluate on.
        most_steps: Steps after which training stops anyway.

    Returns:
        The steps of the best weights, and the bound on validation at every evaluation.
    """
    optimizer = torch.optim.Adam(posterior.parameters(), 1e-3)
    history, best, best_step = [figures_of(latent, posterior, valid)["bound"]], None, 0
    for step, batch in enumerate(endless_batches(train.part, seed=0), 1):
        rows = train.log_likelihoods[batch.index]
        optimizer.zero_grad()
        bound = bound_of(make_enumeration(latent, rows, posterior(batch)))
        (-bound.sum() / batch.scored_mask.sum()).backward()
        optimizer.step()
        if step % EVALUATE_EVERY:
            continue
        history.append(figures_of(latent, posterior, valid)["bound"])
        if history[-1] > history[best_step // EVALUATE_EVERY] + TOLERANCE:
            best, best_step = copy.deepcopy(posterior.state_dict()), step
        if step >= min(most_steps, best_step + PATIENCE * EVALUATE_EVERY):
            break
    if best is not None:
        posterior.load_state_dict(best)
    return best_step, history


def endless_batches(part: Part, seed: int) -> Iterator[Any]:
    """Batches of 1,024 tokens, epoch after epoch."""
    for epoch in count():
        yield from batches(part, 1024, seed, epoch)


def best_chain(
    log_posterior: Float[Tensor, "*batch subset"], heads: Sequence[int], structure: str
) -> list[SubsetTable]:
    """The logistic chains of a structure that are closest to posteriors, each on its own.

    Minimises KL(q || p) by Adam, from the marginals of p.

    Args:
        log_posterior: Log-probability of every subset.
        heads: Heads of every block, from the lowest.
        structure: Which heads a head may be conditioned on.

    Returns:
        The table of every block.
    """
    mask = dependence_mask(heads, structure)
    marginals = log_posterior.exp() @ all_subsets(sum(heads), log_posterior)
    logits = marginals.clamp(1e-3, 1 - 1e-3).logit().requires_grad_()
    weight = log_posterior.new_zeros(*logits.shape, logits.shape[-1]).requires_grad_()
    optimizer = torch.optim.Adam([logits, weight], 0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CHAIN_STEPS)
    for _ in range(CHAIN_STEPS):
        optimizer.zero_grad()
        log_q = joint_table(chain_tables(logits, weight * mask, heads))
        (log_q.exp() * (log_q - log_posterior)).sum().backward()
        optimizer.step()
        schedule.step()
    return chain_tables(logits.detach(), weight.detach() * mask, heads)


def _per_token(enumeration: SubsetEnumeration, tokens: float) -> dict[str, float]:
    """Bound, KL and gap of given tables of all sentences."""
    kl, gap = (sum(values.values()) for values in (enumeration.kl(), enumeration.gap()))
    bound = bound_of(enumeration)
    return {
        name: float(values.sum()) / tokens  # type: ignore[union-attr]
        for name, values in (("bound", bound), ("kl", kl), ("gap", gap))
    }


def fixed_tables(
    prior: Sequence[SubsetTable], train: Tensor, test: Tensor
) -> dict[tuple[str, str], Any]:
    """The prior, one posterior for all sentences, and the optimum of each structure for each.

    Args:
        prior: The prior of every block.
        train: Log p(y | x, b) of the sentences that share a posterior.
        test: The same of the sentences that have posteriors of their own.
    """
    log_prior, heads = joint_table(prior), [table.heads for table in prior]
    shared = (log_prior + train.mean(0)).log_softmax(-1)
    exact = (log_prior + test).log_softmax(-1)
    tables: dict[tuple[str, str], Any] = {("tied", ""): prior}
    for structure in structures_of(heads):
        tables[structure, "nothing"] = best_chain(shared, heads, structure)
        tables[structure, OPTIMUM] = best_chain(exact, heads, structure)
    return tables | {("exact", ""): joint_conditionals(exact, heads)}


def fixed_rows(
    prior: Sequence[SubsetTable], train: Tensor, test: Tensor, tokens: float
) -> list[dict[str, Any]]:
    """Bound, KL and gap of :func:`fixed_tables`, per target token."""
    sites = [f"{index}" for index in range(len(prior))]
    return [
        {"guide": guide, "condition_on": condition_on}
        | _per_token(SubsetEnumeration(test, prior, tables, sites), tokens)
        for (guide, condition_on), tables in fixed_tables(prior, train, test).items()
    ]


def sentence_rows(valid: HeadPosterior, test: HeadPosterior, rate: float) -> list[dict[str, Any]]:
    """The gaps of :func:`fixed_rows` with gates for each sentence, from the tables of a corpus."""
    heads = [block.heads for block in valid.blocks]
    prior = SubsetPrior(heads, "independent", rate).double()()
    tokens = float(test.tokens.sum())
    return fixed_rows(prior, valid.log_likelihoods, test.log_likelihoods, tokens)


def corpus_rows(posterior: HeadPosterior) -> list[dict[str, Any]]:
    """KL from the best chain of every structure to the posterior of a corpus, by temperature."""
    heads, rows = [block.heads for block in posterior.blocks], []
    for tau in TEMPERATURES:
        tempered = posterior.with_temperature(tau)
        log_posterior = tempered.log_probs
        gaps = {"tied": tempered.log_prior.exp() @ (tempered.log_prior - log_posterior)}
        for structure in structures_of(heads):
            log_q = joint_table(best_chain(log_posterior, heads, structure))
            gaps[structure] = log_q.exp() @ (log_q - log_posterior)
        values = {name: float(value) for name, value in gaps.items()}
        rows.append({"tau": tau, "entropy": tempered.entropy, "gap": values})
    return rows


def ladder(run: Run, options: Any) -> dict[str, Any]:
    """Bound and exact gap of every guide of the gates of each sentence."""
    corpus = run.corpus
    model = with_latents(run, lh.latents.BernoulliHeadsOptions(options.blocks, rate=options.rate))
    latent: Any = model.latents["bernoulli-heads"]
    blocks = ",".join(latent.fixed_blocks)
    parts = (corpus.train, corpus.valid, corpus.test)
    numbers = (options.train_sentences, options.sentences, options.sentences)
    train, valid, test = (
        Sentences.of(run.model, part.first(number), blocks)
        for part, number in zip(parts, numbers, strict=True)
    )
    prior = [replace(table, log_probs=table.log_probs.double()) for table in latent.prior()]
    rows = fixed_rows(prior, train.log_likelihoods, test.log_likelihoods, test.tokens)
    for structure in structures_of(latent.heads):
        for condition_on in ("source", "target"):
            posterior = latent.make_posterior(model, structure, condition_on)
            steps, history = train_guide(latent, posterior, train, valid, options.steps)
            row = {"guide": structure, "condition_on": condition_on, "steps": steps}
            rows.append(row | figures_of(latent, posterior, test) | {"valid": history})
            print(rows[-1], flush=True)
    scale = test.tokens / len(test.part)
    return {"blocks": blocks, "tokens_per_sentence": scale, "rows": rows}
