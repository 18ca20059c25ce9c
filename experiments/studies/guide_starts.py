"""Where a guide starts that leaves out a coupling of its prior, and where its training ends.

    python experiments/studies/guide_starts.py --seeds 0,1,2 --out starts.json

A product over alignment heads, or over the words of a chain, cannot express a prior that couples
them. For each language and seed of the grammar, guide mean-field is trained from several starts:

    frozen    on a model that was trained on log p(y | x) itself
    joint     together with a new model, by the guide's bound
    marginal  beside a new model that is trained on log p(y | x) itself

The starts are scores for each position: those of the prior without its coupling, where the library
starts; those after one update of the upper head; the product nearest to the prior by
KL(product | prior); the prior's marginals, nearest by KL(prior | product); and half of their
logarithms, which is flatter. For a frozen model the entropy at the start, the gradient of the gap
in a word's scores, and the gap after updating every word's product in turn, with the exact
posterior, say whether training could improve on the start. Differences are paired by language and
seed.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.checks import check_choice, check_items, split_items
from latentheads.corpora import Corpus
from latentheads.corpora.batches import batches
from latentheads.data.grammar import Grammar
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.parser import Parser, positive, writable
from latentheads.files import finite, write_text
from latentheads.guides import Exact, MeanField
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import eval_no_grad, evaluate
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.alignments.enumeration import AlignmentEnumeration
from latentheads.latents.alignments.exact import (
    ExactInference,
    IndependentWords,
    broadcast_sum,
)
from latentheads.latents.alignments.marginals import head_marginals
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.alignments.passes import AlignmentContext, AlignmentPass
from latentheads.latents.alignments.transitions import SharedTransitions
from latentheads.layers.numeric import softmax
from latentheads.metrics.seeds import spread
from latentheads.models import Translation
from latentheads.training.fit import fit

Product = list[Float[Tensor, "*batch target key"]]
"""The scores of every head in a product, from the lowest."""

PLAN: Mapping[str, Any] = {
    "optimizer": "adamw",
    "learning_rate": 8e-3,
    "warmup_steps": 200,
    "tokens": 512,
    "report_every": 100,
    "quiet": True,
}
TRAININGS = ("frozen", "joint", "marginal")
ROUNDS = 3
"""Updates of every factor of the product that is nearest to the prior."""
ALL_TOKENS = 10**6
"""Tokens of a batch that holds the whole test part."""
POSTERIOR_ROUNDS = 50
"""Updates of every factor towards the exact posterior: more change no digit."""


def prior_scores(alignment_pass: AlignmentPass) -> Product:
    """The prior's scores, without the coupling."""
    return [scores for prior in alignment_pass.priors for scores in prior.scores.unbind(-2)]


def prior_marginals(alignment_pass: AlignmentPass) -> Product:
    """The logarithms of the prior's marginals."""
    return list(head_marginals(alignment_pass.priors).log().clamp_min(NOWHERE).unbind(-3))


def halved_marginals(alignment_pass: AlignmentPass) -> Product:
    """Half of the logarithms of the prior's marginals."""
    return [(scores / 2).clamp_min(NOWHERE) for scores in prior_marginals(alignment_pass)]


def one_update(alignment_pass: AlignmentPass) -> Product:
    """The prior's scores, and the best upper head beside this lower one."""
    return update_blocks(alignment_pass, 0)


def nearest_product(alignment_pass: AlignmentPass) -> Product:
    """The product that is nearest to the prior, by coordinate ascent."""
    if alignment_pass.priors[0].chained:
        return update_words(alignment_pass)
    return update_blocks(alignment_pass, ROUNDS)


def update_blocks(alignment_pass: AlignmentPass, rounds: int) -> Product:
    """Updates both heads of a product in turn, the upper one first and last."""
    (pair_scores,) = alignment_pass.priors[1].pairs.values()
    lower_scores, upper_scores = prior_scores(alignment_pass)
    log_normalisers = (upper_scores.unsqueeze(-2) + pair_scores).logsumexp(-1)
    matrix, lower = pair_scores.squeeze(-3), lower_scores
    for _ in range(rounds):
        upper = upper_scores + softmax(lower) @ matrix
        lower = lower_scores + softmax(upper) @ matrix.mT - log_normalisers
    return [lower, upper_scores + softmax(lower) @ matrix]


def update_words(alignment_pass: AlignmentPass) -> Product:
    """Updates the words of a chain's product; every second word at once."""
    chain = alignment_pass.priors[0]
    assert isinstance(chain, ChainParameters)
    transitions = chain.transitions(shared=True)
    assert isinstance(transitions, SharedTransitions)
    scores, matrix = transitions.scores, transitions.transition_scores
    log_normalisers = transitions.normalisers.log()
    probs, product = transitions.marginals, scores
    is_odd = torch.arange(scores.shape[-2])[:, None] % 2 == 1
    for is_updated in (~is_odd, is_odd) * ROUNDS:
        from_before = F.pad(probs[..., :-1, :] @ matrix, (0, 0, 1, 0))
        to_next = probs[..., 1:, :] @ matrix.mT - log_normalisers
        from_next = F.pad(to_next * alignment_pass.valid[..., 1:, None], (0, 0, 0, 1))
        product = torch.where(is_updated, scores + from_before + from_next, product)
        probs = softmax(product)
    return [product.to(chain.scores.dtype)]


STARTS: Mapping[str, Callable[[AlignmentPass], Product]] = {
    "scores": prior_scores,
    "one-update": one_update,
    "nearest-product": nearest_product,
    "marginals": prior_marginals,
    "halved-marginals": halved_marginals,
}
BASELINE = "scores"
"""The start that the others are compared with."""


def start_at(guide: MeanField, start: str) -> None:
    """Adds what a start has above the prior's scores, which are those of the library."""
    posterior, *_ = guide.latent_posteriors.values()  # one for both blocks

    def hook(_: nn.Module, inputs: Any, output: CategoricalParameters) -> CategoricalParameters:
        context: AlignmentContext = inputs[0]
        with torch.no_grad():
            scores = STARTS[start](context.alignment_pass)[context.index].unsqueeze(-2)
            prior_scores = context.prior.scores
            above = (scores - prior_scores).masked_fill(prior_scores == NOWHERE, 0)
        return replace(output, scores=output.scores + above)

    posterior.register_forward_hook(hook)


def make_model(corpus: Corpus, prior: str, seed: int) -> Translation:
    """A small model whose prior has a coupling."""
    torch.manual_seed(seed)
    alignments = AlignmentOptions(blocks=1 if prior == "chain" else 2, prior={"class": prior})
    return Translation.of(corpus, latents=[alignments], width=48, feed_forward=96, layers=1)


def train_from(
    start: str, training: str, model: Translation, corpus: Corpus, steps: int, seed: int
) -> dict[str, Any]:
    """Trains a guide from a start, with its model unless that is frozen."""
    torch.manual_seed(seed)
    guide = MeanField(model)
    loss = "marginal" if training == "marginal" else "Head_ELBO"
    start_at(guide, start)
    initial = describe_start(model, guide, corpus) if training == "frozen" else {}
    fit(model, guide, corpus.train, corpus.valid, steps=steps, seed=seed, loss=loss, **PLAN)
    report = evaluate(model, guide, corpus.test)
    end = {"gap": report.gap, "KL": report.kl, "bound": report.elbo, "exact log p": report.exact}
    return {"training": training, "start": start, **initial, **end}


def describe_start(model: Translation, guide: MeanField, corpus: Corpus) -> dict[str, Any]:
    """How far a start is from the exact posterior, and what a word's scores could gain."""
    (batch,) = batches(corpus.test, ALL_TOKENS, shuffle=False)
    with eval_no_grad(model, guide):
        bound = terms(model, guide, batch)
        assert isinstance(bound.enumeration, AlignmentEnumeration)
        inference = bound.enumeration.inference
        posterior = [parameters.detached() for parameters in bound.enumeration.posterior]
    scores = [block.scores.requires_grad_() for block in posterior]
    gap = broadcast_sum(inference.gap(posterior)).sum()
    gradients = torch.cat(torch.autograd.grad(gap, scores), -1)
    probs = [softmax(block.detach()).squeeze(-2) for block in scores]
    return {
        "start gap": float(gap.detach() / batch.scored_mask.sum()),
        "start entropy": float(broadcast_sum([*map(entropy, probs)])[batch.scored_mask].mean()),
        "start gradient": float(gradients.norm(dim=(-2, -1))[batch.scored_mask].mean()),
        "gap after updates": update_by_posterior(inference, probs),
    }


def entropy(probs: Float[Tensor, "*batch target key"]) -> Float[Tensor, "*batch target"]:
    """The entropy of every word's position."""
    return -torch.special.xlogy(probs, probs).sum(-1)


def update_by_posterior(
    inference: ExactInference, probs: list[Float[Tensor, "*batch target key"]]
) -> float | None:
    """The gap after updating both heads of every word in turn; of a chain it is not computed."""
    if not isinstance(inference, IndependentWords):
        return None
    log_posterior, (lower, upper) = inference.log_posterior, probs
    for _ in range(POSTERIOR_ROUNDS):
        lower = softmax(torch.einsum("...r,...sr->...s", upper, log_posterior))
        upper = softmax(torch.einsum("...s,...sr->...r", lower, log_posterior))
    cross_entropy = -torch.einsum("...s,...r,...sr->...", lower, upper, log_posterior)
    gaps = cross_entropy - entropy(lower) - entropy(upper)
    return float(gaps[inference.valid].mean())


def train_all(language: str, seed: int, options: Any) -> Iterator[dict[str, Any]]:
    """Every training from every start, in one language with one seed."""
    size = {"sentences": options.sentences, "held_out": options.held_out}
    corpus = Grammar(language=language, **size).load()
    exact = make_model(corpus, options.prior, seed)
    if "frozen" in options.training:
        plan = {"steps": options.model_steps, "seed": seed, **PLAN}
        fit(exact, Exact(exact), corpus.train, corpus.valid, **plan)
        exact.requires_grad_(False)
    for training, start in itertools.product(options.training, options.starts):
        model = exact if training == "frozen" else make_model(corpus, options.prior, seed)
        steps = options.guide_steps if training == "frozen" else options.model_steps
        row = train_from(start, training, model, corpus, steps, seed)
        yield {"language": language, "seed": seed, **row}


def compare_starts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean gap and bound of each start, and its bound less the baseline's, paired."""
    table = {(r["training"], r["start"], r["language"], r["seed"]): r for r in rows}
    summary = []
    for training, start in dict.fromkeys((r["training"], r["start"]) for r in rows):
        pairs = [key for key in table if key[:2] == (training, start)]
        bounds = [table[key]["bound"] for key in pairs]
        others = [table.get((training, BASELINE, *key[2:]), {}).get("bound") for key in pairs]
        differences = [a - b for a, b in zip(bounds, others, strict=True) if b is not None]
        line = {"training": training, "start": start, "n": len(pairs)}
        line |= {"gap": spread(table[key]["gap"] for key in pairs), "bound": spread(bounds)}
        line |= {f"bound less that of {BASELINE}": spread(differences)} if differences else {}
        summary.append(line)
    return summary


GROUPS = {
    "the study": ("languages", "seeds", "prior", "training", "starts"),
    "sizes": ("model_steps", "guide_steps", "sentences", "held_out"),
    "output": ("out", "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("guide_starts.py", __doc__, GROUPS)
    add = parser.add_argument
    add("--languages", default="velu,mirel", help="languages of the grammar")
    add("--seeds", type=tuple[int, ...], default=(0,), help="seeds of model, guide and order")
    add("--prior", choices=("cascaded", "chain"), default="cascaded")
    add("--training", default=",".join(TRAININGS), help=f"some of {', '.join(TRAININGS)}")
    add("--starts", default=",".join(STARTS), help=f"some of {', '.join(STARTS)}")
    add("--model_steps", type=positive, default=400, help="steps of a model")
    add("--guide_steps", type=positive, default=200, help="steps of a guide of a frozen model")
    add("--sentences", type=positive, default=4000, help="sentences of the corpus")
    add("--held_out", type=positive, default=100, help="of them in validation, and in test")
    add("--out", type=writable, required=True, help="JSON file to write")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with error_handling("guide_starts.py"):
        if options.prior == "chain":  # one head: there is no upper one
            options.starts = options.starts.replace("one-update,", "")
        options.training = split_items(options.training)
        options.starts = split_items(options.starts)
        check_items("training", options.training)
        check_items("starts", options.starts)
        for name in options.training:
            check_choice("training", name, TRAININGS)
        for name in options.starts:
            check_choice("starts", name, STARTS)
        for seed, language in itertools.product(options.seeds, split_items(options.languages)):
            for row in train_all(language, seed, options):
                print(
                    *(f"{v:.3f}" if isinstance(v, float) else v for v in row.values()), flush=True
                )
                rows.append(row)
                plan = vars(options) | {"out": options.out.name}
                record = {"options": plan, "summary": compare_starts(rows), "rows": rows}
                write_text(options.out, json.dumps(finite(record), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
