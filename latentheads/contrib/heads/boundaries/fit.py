"""Profiles, heads and the error of boundaries from examples: labelled, unlabelled or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from annotated_types import Ge, Le
from jaxtyping import Bool, Float
from pydantic import PositiveFloat
from torch import Tensor

from latentheads.console import show_progress
from latentheads.contrib.heads.boundaries.anchor import anchor_shift
from latentheads.contrib.heads.boundaries.chain import BoundaryChain, monotone_chain
from latentheads.contrib.heads.boundaries.dtw import dtw_starts
from latentheads.contrib.heads.boundaries.energy import energy_offsets
from latentheads.contrib.heads.boundaries.model import (
    LEAST_ERROR,
    BoundaryModel,
    em_step,
    label_distances,
    maximise,
)
from latentheads.contrib.heads.boundaries.profiles import make_profiles
from latentheads.contrib.heads.word_attention import WordAttention
from latentheads.options import Count, options_class

DURATION, PAUSE = 0.6, 0.25
"""Median duration of a word and of a pause, as shares of the positions of a word."""

START = 0.8
"""Median positions from one start to the next, as a share of the positions of a word."""

UNLABELLED_ERRORS = (0.04, 0.06)
"""Scale of the error of starts and ends where no label shows it, as such shares.

They, and the number of views, were chosen on the development sets of the study of word times.
"""

ERRORS = torch.logspace(-0.3, 1, 27, dtype=torch.float64, device="cpu")
"""Scales of the error among which labels that are left out choose, in positions."""

FOLDS = 5
"""Parts of the examples that are left out in turn."""


@options_class()
class FitOptions:
    """How profiles are learned.

    Attributes:
        kinds: 1: starts of words; 2: starts and ends.
        views: Views that are chosen for each kind of boundary.
        rounds: How often they are chosen anew.
        steps: Steps of expectation-maximisation in each round.
        reach: Largest lag of a profile, in positions.
        width: Standard deviation of the bumps that make a profile, in positions.
        counts: Samples that the attention of one word counts as.
        prior: Observations that the prior of each parameter counts as.
        energy: Whether pauses are taken to be quiet, where starts and ends are learned.
    """

    kinds: Annotated[int, Ge(1), Le(2)] = 1
    views: Count = 6
    rounds: Count = 4
    steps: Count = 3
    reach: Count = 60
    width: PositiveFloat = 1.5
    counts: PositiveFloat = 1.0
    prior: PositiveFloat = 1.0
    energy: bool = True


def fit_boundary_model(
    examples: Sequence[WordAttention],
    options: FitOptions,
    chain: BoundaryChain | None = None,
) -> BoundaryModel:
    """Learns profiles from labelled examples where there are any, and from all others.

    Without labels the first boundaries are those of dynamic time warping of the upper half of the
    heads. The shift of boundaries without any label is anchored in the energy of the sound.

    Args:
        examples: Examples.
        options: How.
        chain: The prior of boundaries; None: words that follow each other.
    """
    if chain is not None and chain.kinds != options.kinds:
        raise ValueError(
            f"chain must have a row of jumps for each of {options.kinds} kinds of boundaries, got "
            f"{chain.kinds}"
        )
    if options.kinds == 1:
        examples = [replace(e, ends=torch.full_like(e.ends, torch.nan)) for e in examples]
    labelled = [example for example in examples if example.is_labelled]
    model = make_model(examples, options, chain)
    if labelled:
        marginals = [model.posterior(example).marginals for example in labelled]
    else:
        marginals = [warp_boundaries(example, options.kinds) for example in examples]
    model = learn(model, examples, labelled or examples, marginals, options)
    error = make_model(examples, options, chain).error
    if labelled:
        error = left_out_error(model, labelled, examples, options)
    return replace(model, shift=_anchor_shifts(model, examples, options.kinds), error=error)


def _anchor_shifts(
    model: BoundaryModel, examples: Sequence[WordAttention], kinds: int
) -> Float[Tensor, " kind"]:
    """The shift of each kind of boundary that no label anchors; 0 of the others."""
    shifts = torch.zeros(kinds, dtype=torch.float64)
    marginals = [model.posterior(example).marginals for example in examples]
    for kind in range(kinds):
        labels = [(example.starts, example.ends)[kind] for example in examples]
        if torch.cat(labels).isnan().all():
            shifts[kind] = anchor_shift(examples, marginals, kind)
    return shifts


def make_model(
    examples: Sequence[WordAttention], options: FitOptions, chain: BoundaryChain | None = None
) -> BoundaryModel:
    """A model without heads: the prior of boundaries, and flat profiles."""
    words = sum(len(example.starts) for example in examples)
    mean = sum(example.positions for example in examples) / words
    medians = [START * mean] if options.kinds == 1 else [DURATION * mean, PAUSE * mean]
    views = len(examples[0].weights)
    error = torch.tensor(UNLABELLED_ERRORS[: options.kinds], dtype=torch.float64) * mean
    return BoundaryModel(
        make_profiles(options.kinds, views, options.reach, options.width, options.counts),
        chain or monotone_chain(medians),
        torch.zeros(options.kinds, views, dtype=torch.bool),
        error.clamp(min=LEAST_ERROR),
        torch.zeros(options.kinds, dtype=torch.float64),
        energy_offsets(examples) if options.kinds == 2 and options.energy else None,
    )


def warp_boundaries(example: WordAttention, kinds: int) -> Float[Tensor, "kind word position"]:
    """Boundaries of dynamic time warping; a word ends where the next one starts."""
    heads = len(example.weights) // 2
    starts = dtw_starts(example.weights[heads // 2 : heads])
    ends = [*starts[1:], example.positions - 1]
    marginals = torch.zeros(kinds, *example.weights.shape[1:], dtype=torch.float64)
    for marginal, boundaries in zip(marginals, (starts, ends)):
        marginal[torch.arange(len(starts)), torch.tensor(boundaries).long()] = 1.0
    return marginals


def learn(
    model: BoundaryModel,
    examples: Sequence[WordAttention],
    first: Sequence[WordAttention],
    marginals: Sequence[Float[Tensor, "kind word position"]],
    options: FitOptions,
) -> BoundaryModel:
    """Learns profiles, choosing the most informative views anew in each round.

    Args:
        model: The model before.
        examples: All examples.
        first: The examples whose first boundaries are given.
        marginals: The first boundaries of these.
        options: How.
    """
    for _ in show_progress(range(options.rounds), "learning heads", "round"):
        model = _settle(model, first, marginals, options)
        information = view_information(model, first, marginals).mean(0)
        model = replace(model, chosen=choose_views(information, options.views))
        views = model.chosen.any(0)  # only these are worth a step each time
        climbed, some = model.restrict(views), [example.restrict(views) for example in examples]
        for _ in range(options.steps):
            climbed, marginals = em_step(climbed, some, options.prior)
        first = examples
        model = replace(model, chain=climbed.chain, error=climbed.error)
    return _settle(model, first, marginals, options)


def _settle(
    model: BoundaryModel,
    examples: Sequence[WordAttention],
    marginals: Sequence[Float[Tensor, "kind word position"]],
    options: FitOptions,
) -> BoundaryModel:
    """Profiles of all views given the boundaries, from flat ones.

    The bumps of a profile share its samples, so that one step is not the optimum.
    """
    flat = make_model(examples, options, model.chain).profiles
    model = replace(model, profiles=flat)
    for _ in range(6):
        model = maximise(model, examples, marginals, None, options.prior)
    return model


def view_information(
    model: BoundaryModel,
    examples: Sequence[WordAttention],
    marginals: Sequence[Float[Tensor, "kind word position"]],
) -> Float[Tensor, "example kind view"]:
    """Nats of information of each view alone on a boundary, in the mean over each example."""
    return torch.stack(
        [
            model.profiles.head_information(example, marginal).mean(-1)
            for example, marginal in zip(examples, marginals, strict=True)
        ]
    )


def left_out_information(
    model: BoundaryModel, examples: Sequence[WordAttention], options: FitOptions
) -> Float[Tensor, "example kind view"]:
    """As :func:`view_information`, each example with profiles learned from other examples.

    A single example has the profiles that were learned from it.
    """
    marginals = [model.posterior(example).marginals for example in examples]
    if len(examples) < 2:
        return view_information(model, examples, marginals)
    rows: dict[int, Tensor] = {}
    for fold in show_progress(range(min(FOLDS, len(examples))), "testing heads", "fold"):
        left_out = range(fold, len(examples), FOLDS)
        kept = [index for index in range(len(examples)) if index % FOLDS != fold]
        fitted = _settle(model, [examples[i] for i in kept], [marginals[i] for i in kept], options)
        for index in left_out:  # its boundaries too are those of profiles without it
            example = examples[index]
            boundaries = fitted.posterior(example).marginals
            rows[index] = view_information(fitted, [example], [boundaries])[0]
    return torch.stack([rows[index] for index in range(len(examples))])


def choose_views(information: Float[Tensor, "kind view"], number: int) -> Bool[Tensor, "kind view"]:
    """The most informative views of each kind of boundary."""
    best = information.topk(min(number, information.shape[-1])).indices
    return torch.zeros_like(information, dtype=torch.bool).scatter_(-1, best, True)


def left_out_error(
    model: BoundaryModel,
    labelled: Sequence[WordAttention],
    examples: Sequence[WordAttention],
    options: FitOptions,
) -> Float[Tensor, " kind"]:
    """The error under which labels are likeliest that profiles were not learned from."""
    if len(labelled) < 2:
        return make_model(examples, options, model.chain).error
    views = model.chosen.any(0)
    model, labelled = model.restrict(views), [example.restrict(views) for example in labelled]
    unlabelled = [example.restrict(views) for example in examples if not example.is_labelled]
    scores = torch.zeros(len(ERRORS), options.kinds, dtype=torch.float64)
    for fold in show_progress(range(min(FOLDS, len(labelled))), "testing labels", "fold"):
        left_out = labelled[fold::FOLDS]
        kept = [example for i, example in enumerate(labelled) if i % FOLDS != fold]
        fitted = _refit(model, kept, [*kept, *unlabelled], options)
        for example in left_out:
            marginals = fitted.posterior(example, with_labels=False).marginals
            scores += _label_scores(fitted, example, marginals)
    best = ERRORS[scores.argmax(0)].clamp(min=LEAST_ERROR)
    has_labels = (scores != 0).any(0)  # of starts, but not of ends, or the other way round
    return torch.where(has_labels, best, make_model(examples, options, model.chain).error)


def _refit(
    model: BoundaryModel,
    kept: Sequence[WordAttention],
    examples: Sequence[WordAttention],
    options: FitOptions,
) -> BoundaryModel:
    """The model from fewer examples: the same views, profiles learned anew."""
    flat = make_model(examples, options, replace(model.chain, jumps=model.chain.base))
    marginals = [flat.posterior(example).marginals for example in kept]
    flat = replace(_settle(flat, kept, marginals, options), chosen=model.chosen)
    for _ in range(2 * options.steps):
        flat, _ = em_step(flat, examples, options.prior)
    return flat


def _label_scores(
    model: BoundaryModel, example: WordAttention, marginals: Float[Tensor, "kind word position"]
) -> Float[Tensor, "error kind"]:
    """Log-density of the labels of an example for each scale of their error."""
    distance = label_distances(model, example).abs()
    errors = ERRORS[:, None, None, None]
    densities = (marginals * (-distance / errors - (2 * errors).log()).exp()).sum(-1)
    return densities.log().nansum(-1)
