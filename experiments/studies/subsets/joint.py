"""The joint posterior over the heads of two blocks: sets against rankings, and pairs of heads.

All numbers come from two tables of log p(y | x, b), of validation and of test, with one column for
each of the 2^H subsets: what any subset loses on test is known exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import latentheads as lh
from latentheads.experiments.studies.subsets.guides import TEMPERATURES, corpus_rows, sentence_rows
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.latents.bernoulli_heads.subsets import subset_index
from latentheads.names import attention_type_of
from latentheads.pruning import all_heads
from latentheads.runs.run import Run


def stacks_of(model: Any) -> list[str]:
    """The names of the two highest blocks of every attention type, commas between."""
    by_type: dict[str, list[str]] = {}
    for name, heads in all_heads(model).items():
        if heads:
            by_type.setdefault(attention_type_of(name), []).append(name)
    return [",".join(names[-2:]) for names in by_type.values()]


def resampled(posterior: HeadPosterior, seed: int) -> HeadPosterior:
    """The posterior given sentences that are sampled with replacement."""
    generator = torch.Generator().manual_seed(seed)
    number = len(posterior.tokens)
    index = torch.randint(number, (number,), generator=generator)
    rows, tokens = posterior.log_likelihoods[index], posterior.tokens[index]
    return replace(posterior, log_likelihoods=rows, tokens=tokens)


def subset_of(heads: Sequence[int], like: Float[Tensor, "subset head"]) -> int:
    """The number of the subset in which these heads are active."""
    gates = torch.zeros(like.shape[-1])
    gates[list(heads)] = 1
    return int(subset_index(gates))


def best_of_size(posterior: HeadPosterior, size: int) -> int:
    """The most probable subset of some heads."""
    is_size = posterior.subsets.sum(-1) == size
    return int(posterior.log_probs.masked_fill(~is_size, -torch.inf).argmax())


def by_ranking(posterior: HeadPosterior, size: int) -> int:
    """The heads with the highest log-odds, each on its own."""
    return subset_of(posterior.log_odds.topk(size).indices.tolist(), posterior.subsets)


def by_elimination(posterior: HeadPosterior, size: int) -> int:
    """Removes one head after the other: always that without which the rest is most likely."""
    heads = list(range(len(posterior.heads)))
    while len(heads) > size:
        rests = [[head for head in heads if head != removed] for removed in heads]
        likelihoods = [posterior.nats[subset_of(rest, posterior.subsets)] for rest in rests]
        heads = rests[int(torch.stack(likelihoods).argmax())]
    return subset_of(heads, posterior.subsets)


CHOICES = {
    "most probable subset": best_of_size,
    "ranking, tau 1": by_ranking,
    "ranking, tau 100": lambda p, size: by_ranking(p.with_temperature(100.0), size),
    "ranking, tau 1000": lambda p, size: by_ranking(p.with_temperature(1000.0), size),
    "one after the other": by_elimination,
}
"""How some heads are chosen from a posterior."""


def set_rows(valid: HeadPosterior, test: HeadPosterior, resamples: int) -> list[dict[str, Any]]:
    """Nats per token that are lost on test with subsets that are chosen on resampled validation."""
    posteriors = [resampled(valid, seed) for seed in range(resamples)]
    total, losses = len(valid.heads), test.nats[-1] - test.nats
    rows: list[dict[str, Any]] = []
    for size in range(total - 2, 0, -2):
        is_size = test.subsets.sum(-1) == size
        oracle = float(losses[is_size].min())
        rows.append({"kept": size, "choice": "best on test", "nats_lost": [oracle]})
        for name, choose in CHOICES.items():
            chosen = [float(losses[choose(posterior, size)]) for posterior in posteriors]
            rows.append({"kept": size, "choice": name, "nats_lost": chosen})
    return [{"blocks": [block.name for block in valid.blocks], **row} for row in rows]


def interaction(posterior: HeadPosterior, first: int, second: int) -> float:
    """Nats per token that removing both heads costs beyond the sum of removing each."""
    nats, every = posterior.nats, 2 ** len(posterior.heads) - 1
    one, other = every - 2**first, every - 2**second
    both = every - 2**first - 2**second
    return float(nats[one] + nats[other] - nats[every] - nats[both])


def pair_rows(valid: HeadPosterior, test: HeadPosterior) -> list[dict[str, Any]]:
    """The covariance on validation and the interaction on test of every pair of heads."""
    covariances = {
        f"covariance_{tau:g}": valid.with_temperature(tau).covariance for tau in TEMPERATURES[1:]
    }
    return [
        {
            "heads": [valid.heads[first], valid.heads[second]],
            "interaction_test": interaction(test, first, second),
            "interaction_valid": interaction(valid, first, second),
            **{name: float(values[first, second]) for name, values in covariances.items()},
        }
        for first, second in combinations(range(len(valid.heads)), 2)
    ]


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation."""
    from scipy import stats  # slow to import

    return float(stats.spearmanr(first, second).statistic)


def correlations(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Spearman's correlation of every predictor of interactions with those on test."""
    held_out = [row["interaction_test"] for row in rows]
    names = [name for name in rows[0] if name.startswith(("covariance", "interaction_valid"))]
    return {name: correlation([row[name] for row in rows], held_out) for name in names}


def temperature_rows(posterior: HeadPosterior) -> list[dict[str, Any]]:
    """How inclusion, its intervals and the smallest subset move with the temperature."""
    rows = []
    for tau in TEMPERATURES:
        tempered = posterior.with_temperature(tau)
        intervals = tempered.bootstrap()
        rows.append(
            {
                "blocks": [block.name for block in posterior.blocks],
                "tau": tau,
                "entropy": tempered.entropy,
                "inclusion": tempered.inclusion.tolist(),
                "low": intervals.low.tolist(),
                "high": intervals.high.tolist(),
                "covariance": tempered.covariance.tolist(),
                "smallest_within_.01": tempered.smallest_subset(0.01).heads,
            }
        )
    return rows


def sets(run: Run, options: Any) -> dict[str, Any]:
    """Subsets against rankings, and covariances against interactions, for pairs of blocks."""
    parts = [part.first(options.sentences) for part in (run.corpus.valid, run.corpus.test)]
    result: dict[str, list[Any]] = {"rows": [], "pairs": [], "temperatures": [], "structures": []}
    for names in stacks_of(run.model):
        valid, test = (lh.head_posterior(run.model, part, names, tau=1) for part in parts)
        result["rows"] += set_rows(valid, test, options.resamples)
        result["pairs"] += pair_rows(valid, test)
        result["temperatures"] += temperature_rows(valid)
        per_sentence, corpus = sentence_rows(valid, test, options.rate), corpus_rows(valid)
        entry = {"blocks": names, "sentences": per_sentence, "corpus": corpus}
        result["structures"].append(entry)
        print(names, correlations(result["pairs"]), flush=True)
    return {**result, "spearman": correlations(result["pairs"])}
