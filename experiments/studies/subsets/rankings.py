"""Rankings of the heads of a trained network, and the nats that are lost without the last heads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import latentheads as lh
from latentheads.checks import check_choice, check_within, split_items
from latentheads.contrib.heads import (
    gradient_importance,
    learn_noise,
    measure,
    noise_cost,
    relevance,
)
from latentheads.corpora import Part
from latentheads.corpora.batches import batches
from latentheads.experiments.studies.subsets.overlap import mean_jaccard
from latentheads.guides import GUIDES
from latentheads.inference.evaluation import eval_no_grad, plug_in_log_likelihood
from latentheads.latents.gates.hard_gates import GateController
from latentheads.latents.logits.options import LogitsOptions, PriorSpec
from latentheads.latents.selector import SelectionFamily
from latentheads.names import block_of
from latentheads.pruning import all_heads, most_important, random_importance, remove_heads
from latentheads.runs.build import make_model
from latentheads.runs.run import Run

Importance = Mapping[str, Tensor]
NOISE_SCALE = 8.0
"""Standard deviation of the noise in the logits of one head, and that of the prior of all."""
KL_WEIGHT = 1e-3
"""Weight of the KL when noise is learned: a sentence has far more logits than nats."""
GATE_RATE = 1e-3
"""Change of the L0 penalty, in nats per target token, for one open gate too many."""


def with_latents(run: Run, *latents: Any) -> Any:
    """The network of a run with other latents and its own weights."""
    settings = replace(run.settings, latents=latents, guide=type(run.settings.guide)("tied"))
    model = make_model(settings, run.corpus.target, run.corpus.source)
    model.load_state_dict(run.model.state_dict(), strict=False)
    return model.requires_grad_(False).eval()


def resample(part: Part, seed: int) -> list[lh.data.Batch]:
    """Batches of sentences of similar length, sampled with replacement within each batch."""
    generator = torch.Generator().manual_seed(seed)
    resampled = []
    for batch in batches(part, 1024, shuffle=False):
        index = torch.randint(len(batch), (len(batch),), generator=generator)
        source = None if batch.source is None else batch.source[index]
        resampled.append(lh.data.Batch(batch.target[index], source, corpus_size=len(part)))
    return resampled


def noisy_network(run: Run) -> Any:
    """The network with noise in all attention logits."""
    spec = PriorSpec("independent", {"scale": NOISE_SCALE})
    return with_latents(run, LogitsOptions(spec))


def learned_noise(run: Run, sentences: list[lh.data.Batch], options: Any, seed: int) -> Importance:
    """How little noise a head tolerates: the negative of its learned scale."""
    steps = [sentences[step % len(sentences)] for step in range(options.noise_steps)]
    scales = learn_noise(noisy_network(run), steps, KL_WEIGHT, seed=seed)
    return {name: -scale for name, scale in scales.items()}


def log_odds(run: Run, sentences: list[lh.data.Batch], options: Any, seed: int) -> Importance:
    """Log-odds that a head is in the subset of its block, with all other blocks active."""
    return {
        name: lh.head_posterior(run.model, sentences, name, tau=options.tau).log_odds
        for name, heads in all_heads(run.model).items()
        if heads
    }


def thin(batch: lh.data.Batch) -> lh.data.Batch:
    """A fifth of a batch: relevance takes one backward pass for each position."""
    source = None if batch.source is None else batch.source[::5]
    return lh.data.Batch(batch.target[::5], source)


def gate_logits(run: Run, sentences: list[lh.data.Batch], options: Any, seed: int) -> Importance:
    """Log alpha of gates that are trained on the frozen network, half of them open."""
    model, steps = with_latents(run, lh.latents.GateOptions()), options.gate_steps
    guide = GUIDES["tied"](model)
    tokens = sum(int(batch.scored_mask.sum()) for batch in sentences)
    half = sum(map(len, all_heads(run.model).values())) // 2
    control = GateController(model, guide, half, steps, GATE_RATE, tokens, quiet=True)
    training = {"optimizer": "adamw", "learning_rate": 0.05, "steps": steps, "report_every": steps}
    lh.fit(model, guide, sentences, callbacks=[control], seed=seed, quiet=True, **training)
    families = guide.find_posteriors(SelectionFamily)
    return {block_of(site): family.logits.detach().flatten() for site, family in families.items()}


METHODS: Mapping[str, Callable[[Run, list[lh.data.Batch], Any, int], Importance]] = {
    "posterior": log_odds,
    "gradient": lambda run, b, _, __: gradient_importance(run.model, b),
    "raw gradient": lambda run, b, _, __: gradient_importance(run.model, b, normalise=False),
    "relevance": lambda run, b, _, __: relevance(run.model, [thin(x) for x in b]).shares,
    "confidence": lambda run, b, _, __: measure(run.model, b).confidence,
    "noise in one head": lambda run, b, _, s: noise_cost(noisy_network(run), b, NOISE_SCALE, s),
    "learned noise": learned_noise,
    "gates": gate_logits,
    "random": lambda run, _, __, seed: random_importance(all_heads(run.model), seed),
}
"""The importance of every head, from sentences and a seed."""


def rank(
    run: Run, sentences: list[lh.data.Batch], options: Any, seed: int
) -> dict[str, Importance]:
    """The importance of every head by several methods, given the same sentences."""
    chosen = split_items(options.methods) if options.methods else list(METHODS)
    for name in chosen:
        check_choice("methods", name, METHODS)
    return {name: METHODS[name](run, sentences, options, seed) for name in chosen}


def nats_per_token(model: Any, part: Part) -> float:
    """Log-likelihood of a part under the plug-in network, per target token."""
    total, tokens = 0.0, 0
    with eval_no_grad(model):
        for batch in batches(part, 2048, shuffle=False):
            total += float(plug_in_log_likelihood(model, batch).sum())
            tokens += int(batch.scored_mask.sum())
    return total / tokens


def jaccard(removed: Sequence[Mapping[str, Sequence[int]]]) -> float:
    """Mean overlap of the removed heads of pairs of rankings: intersection over union."""
    return mean_jaccard(
        [{(name, head) for name, heads in one.items() for head in heads} for one in removed]
    )


def removed_of(importance: Importance, number: int) -> tuple[dict[str, list[int]], Any]:
    """The heads that a ranking keeps, and those that it removes."""
    total = sum(map(len, importance.values()))
    kept = most_important(importance, total - number)
    gone = {n: [h for h in range(len(v)) if h not in kept[n]] for n, v in importance.items()}
    return kept, gone


def removal_rows(
    model: Any, part: Part, rankings: Sequence[Mapping[str, Importance]], numbers: Sequence[int]
) -> list[dict[str, Any]]:
    """Nats lost after removing heads, and the overlap of rankings, by number and method.

    Args:
        model: The network; it is copied.
        part: Held-out sentences.
        rankings: The importance of the heads by method, from every resample.
        numbers: Numbers of heads to remove.
    """
    whole, rows = nats_per_token(model, part), []
    for number in numbers:
        for method in rankings[0]:
            choices = [removed_of(ranking[method], number) for ranking in rankings]
            losses = []
            for kept, _ in choices:
                pruned = copy.deepcopy(model)
                remove_heads(pruned, kept)
                losses.append(whole - nats_per_token(pruned, part))
            overlap = jaccard([gone for _, gone in choices])
            row = {"removed": number, "method": method, "nats_lost": losses, "jaccard": overlap}
            rows.append(row)
            print(row, flush=True)
    return rows


def ranking(run: Run, options: Any) -> dict[str, Any]:
    """Rankings from resampled validation sentences, and what is lost on test without heads."""
    total = sum(map(len, all_heads(run.model).values()))
    for number in options.removed:
        check_within("removed", number, 1, total)
    valid, test = (part.first(options.sentences) for part in (run.corpus.valid, run.corpus.test))
    rankings = [
        rank(run, resample(valid, seed), options, seed) for seed in range(options.resamples)
    ]
    return {
        "whole": nats_per_token(run.model, test),
        "heads": total,
        "rows": removal_rows(run.model, test, rankings, options.removed),
        "importance": [
            {method: {n: v.tolist() for n, v in heads.items()} for method, heads in one.items()}
            for one in rankings
        ],
    }
