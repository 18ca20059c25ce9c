"""Subsets of heads with exact posteriors: the gaps of guides, and rankings for pruning.

    python experiments/studies/head_subsets.py ladder runs/transformer-seed0 --out ladder.json
    python experiments/studies/head_subsets.py ranking runs/transformer-seed0 --out ranking.json

ladder: the top block of a trained translation model gets gates for each sentence, the model is
trained on by its exact log p(y | x), then one guide after the other on the frozen model; all gaps
are exact. ranking: the posterior over subsets of each block, given resampled validation sentences,
against gradient importance and random: nats lost on test after removing heads, how much rankings
of resamples agree, and whether pairs of heads interact as their covariance predicts.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import latentheads.experiments.cli.startup

import torch
from torch import Tensor

import latentheads as lh
from latentheads.analysis.importance import gradient_importance
from latentheads.corpora import Part
from latentheads.corpora.batches import batches
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.parser import OneLineErrorParser
from latentheads.files import write_text
from latentheads.guides import GUIDES
from latentheads.inference.evaluation import eval_no_grad, plug_in_log_likelihood
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.noise import fixed_noise
from latentheads.pruning import most_important, random_importance, remove_heads
from latentheads.runs.build import make_model
from latentheads.runs.run import Run
from latentheads.values import finite

GUIDE_ROWS = (
    ("tied", ""),
    ("mean-field", "source"),
    ("mean-field", "target"),
    ("autoregressive", "source"),
    ("autoregressive", "target"),
    ("exact", ""),
)
"""Guides and the text that they are conditioned on. One block has no cascade over blocks."""
GROUPS = {
    "the study": ("steps", "tokens", "sentences", "resamples", "removed", "tau", "rate"),
    "output": ("out", "help"),
}
TEMPERATURES = (1.0, 10.0, 100.0, 1000.0)
Importance = Mapping[str, Tensor]


def make_parser() -> OneLineErrorParser:
    """Makes the parser."""
    parser = OneLineErrorParser("head_subsets.py", __doc__, GROUPS, "[options] PART RUN")
    parser.add_argument("part", choices=("ladder", "ranking"))
    parser.add_argument("run", help="run folder of a network without latents")
    parser.add_argument("--out", required=True, help="JSON file to write")
    parser.add_argument("--steps", type=int, default=100, help="steps of model and of each guide")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a batch in training")
    parser.add_argument("--sentences", type=int, default=300, help="first ones of valid and test")
    parser.add_argument("--resamples", type=int, default=3, help="resamples of validation")
    parser.add_argument("--removed", default="4,8,12", help="numbers of heads to remove")
    parser.add_argument("--tau", type=float, default=1.0, help="temperature of the posterior")
    parser.add_argument("--rate", type=float, default=0.8, help="prior probability of a head")
    return parser


def train(modules: Sequence[Any], part: Part, options: Any, rate: float, objective: str) -> None:
    """Trains the parameters of modules that require a gradient, the last of which is the guide.

    Args:
        modules: Model and guide.
        part: The training part.
        options: Number of steps, and tokens of a batch.
        rate: Learning rate of Adam.
        objective: That of ``Head_ELBO``.
    """
    model, guide = modules
    loss = lh.Head_ELBO(analytic=True, objective=objective)
    learned = [p for module in modules for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(learned, rate)
    for step, batch in zip(range(options.steps), batches(part, options.tokens, 0), strict=False):
        optimizer.zero_grad()
        nats = loss.differentiable_loss(model, guide, replace(batch, corpus_size=0))
        (nats / batch.scored_mask.sum()).backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"{step}: {float(nats.detach() / batch.scored_mask.sum()):.4f}", flush=True)


def with_gates(run: Run, rate: float) -> Any:
    """The model of a run with gates in its top block, and its weights."""
    options = lh.BernoulliHeadsOptions(rate=rate)
    corpus = run.corpus
    settings = replace(run.settings, latents=(options,), guide=type(run.settings.guide)("tied"))
    model = make_model(settings, corpus.target, corpus.source)
    model.load_state_dict(run.model.state_dict(), strict=False)
    return model


def ladder(run: Run, options: Any) -> dict[str, Any]:
    """The bound and the exact gap of every guide of one model."""
    corpus, model = run.corpus, with_gates(run, options.rate)
    test = corpus.test.first(options.sentences)
    rows: list[dict[str, Any]] = []
    before = lh.evaluate(model, GUIDES["tied"](model), test)
    train((model.train(), GUIDES["tied"](model)), corpus.train, options, 3e-4, "marginal")
    model.requires_grad_(False).eval()
    for name, condition_on in GUIDE_ROWS:
        chosen = {"condition_on": condition_on} if condition_on else {}
        guide: Any = GUIDES[name](model, **chosen)
        if condition_on:
            train((model, guide), corpus.train, options, 3e-3, "bound")
        report = lh.evaluate(model, guide, test)
        figures = ("elbo", "kl", "exact", "gap", "prior_entropy", "posterior_entropy")
        row = {name: getattr(report, name) for name in figures}
        rows.append({"guide": name, "condition_on": condition_on, **row})
        print(rows[-1], flush=True)
    scale = report.tokens / report.sentences
    return {
        "block": model.latents["bernoulli-heads"].addresses[0].name,
        "exact_before_training": before.exact,
        "tokens_per_sentence": scale,
        "rows": rows,
    }


def resample(part: Part, seed: int) -> list[lh.Batch]:
    """Batches of sentences that are sampled with replacement."""
    generator = torch.Generator().manual_seed(seed)
    whole = list(batches(part, 1024))
    resampled = []
    for batch in whole:
        index = torch.randint(len(batch), (len(batch),), generator=generator)
        tokens = {"target": batch.target[index], "source": batch.source}
        if batch.source is not None:
            tokens["source"] = batch.source[index]
        resampled.append(lh.Batch(**tokens))  # type: ignore[arg-type]
    return resampled


def rank(model: Any, sentences: list[lh.Batch], options: Any, seed: int) -> dict[str, Importance]:
    """The importance of every head by three methods."""
    posteriors = lh.head_posteriors(model, sentences, tau=options.tau)
    by_gradient = gradient_importance(model, sentences)
    return {
        "posterior": {name: posterior.log_odds for name, posterior in posteriors.items()},
        "gradient": by_gradient,
        "random": random_importance(by_gradient, seed),
    }


def nats_per_token(model: Any, part: Part) -> float:
    """Log-likelihood of a part under the plug-in network, per target token."""
    total, tokens = 0.0, 0
    with eval_no_grad(model):
        for batch in batches(part, 2048):
            total += float(plug_in_log_likelihood(model, batch).sum())
            tokens += int(batch.scored_mask.sum())
    return total / tokens


def jaccard(kept: Sequence[Mapping[str, Sequence[int]]]) -> float:
    """Mean overlap of the removed heads of pairs of rankings: intersection over union."""
    sets = [{(name, head) for name, heads in one.items() for head in heads} for one in kept]
    pairs = combinations(sets, 2)
    return mean(len(a & b) / len(a | b) for a, b in pairs)


def removed_of(importance: Importance, number: int) -> tuple[dict[str, list[int]], Any]:
    """The heads that a ranking keeps, and those that it removes."""
    total = sum(map(len, importance.values()))
    kept = most_important(importance, total - number)
    gone = {n: [h for h in range(len(v)) if h not in kept[n]] for n, v in importance.items()}
    return kept, gone


def ranking(run: Run, options: Any) -> dict[str, Any]:
    """Nats lost after removing heads, and the overlap of rankings, by method and number."""
    model, corpus = run.model, run.corpus
    valid, test = (part.first(options.sentences) for part in (corpus.valid, corpus.test))
    rankings = [
        rank(model, resample(valid, seed), options, seed) for seed in range(options.resamples)
    ]
    whole, rows = nats_per_token(model, test), []
    for number in map(int, options.removed.split(",")):
        for method in rankings[0]:
            choices = [removed_of(one[method], number) for one in rankings]
            losses = []
            for kept, _ in choices:
                pruned = copy.deepcopy(model)
                remove_heads(pruned, kept)
                losses.append(whole - nats_per_token(pruned, test))
            overlap = jaccard([gone for _, gone in choices])
            rows.append(
                {"removed": number, "method": method, "nats_lost": losses, "jaccard": overlap}
            )
            print(rows[-1], flush=True)
    posteriors = lh.head_posteriors(model, valid)
    return {
        "whole": whole,
        "heads": sum(len(posterior.heads) for posterior in posteriors.values()),
        "rows": rows,
        "temperatures": temperatures(posteriors),
        "pairs": pairs(posteriors, lh.head_posteriors(model, test)),
    }


def temperatures(posteriors: Mapping[str, HeadPosterior]) -> list[dict[str, Any]]:
    """How inclusion and its intervals move with the temperature."""
    rows = []
    for name, posterior in posteriors.items():
        for tau in TEMPERATURES:
            tempered = posterior.with_temperature(tau)
            intervals = tempered.bootstrap()
            rows.append(
                {
                    "block": name,
                    "tau": tau,
                    "entropy": tempered.entropy,
                    "inclusion": tempered.inclusion.tolist(),
                    "low": intervals.low.tolist(),
                    "high": intervals.high.tolist(),
                    "covariance": tempered.covariance.tolist(),
                    "smallest_within_.01": tempered.smallest_subset(0.01).heads[name],
                }
            )
    return rows


def interaction(posterior: HeadPosterior, first: int, second: int) -> float:
    """Nats per token that removing both heads costs beyond the sum of removing each."""
    nats, every = posterior.nats, 2 ** len(posterior.heads) - 1
    one, other = every - 2**first, every - 2**second
    both = every - 2**first - 2**second
    return float(nats[one] + nats[other] - nats[every] - nats[both])


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation."""
    ranks = [torch.tensor(values).argsort().argsort().double() for values in (first, second)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def pairs(valid: Mapping[str, HeadPosterior], test: Mapping[str, HeadPosterior]) -> dict[str, Any]:
    """Whether covariances on validation predict interactions of pairs of heads on test."""
    rows: list[dict[str, Any]] = []
    for name, posterior in valid.items():
        heads = range(len(posterior.heads))
        covariances = {tau: posterior.with_temperature(tau).covariance for tau in TEMPERATURES[1:]}
        for first, second in combinations(heads, 2):
            rows.append(
                {
                    "block": name,
                    "heads": [first, second],
                    "interaction_test": interaction(test[name], first, second),
                    "interaction_valid": interaction(posterior, first, second),
                    **{
                        f"covariance_{t:g}": float(c[first, second]) for t, c in covariances.items()
                    },
                }
            )
    held_out = [row["interaction_test"] for row in rows]
    predictors = [name for name in rows[0] if name.startswith(("covariance", "interaction_valid"))]
    return {
        "rows": rows,
        "spearman": {n: correlation([row[n] for row in rows], held_out) for n in predictors},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("head_subsets.py"):
        run = lh.load_run(options.run)
        with fixed_noise(0, run.model.device):
            results = {"ladder": ladder, "ranking": ranking}[options.part](run, options)
        names = {"run": Path(options.run).name, "out": Path(options.out).name}
        record = {"options": vars(options) | names, **results}
        write_text(Path(options.out), json.dumps(finite(record), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
