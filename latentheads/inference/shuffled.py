"""The shuffled-target test: what a guide's bound loses when it is told another sentence's target.

A guide that makes use of the target must lose by it. One that reads the source alone, or the states
of the model, which go on with their own words, loses exactly nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from latentheads.checks import check_seed
from latentheads.corpora import Part, Rows
from latentheads.corpora import batches as in_batches
from latentheads.corpora.batches import TOKENS
from latentheads.corpora.corpus import check_part
from latentheads.guide import ModelGuide, check_pair
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import evaluating
from latentheads.model import HeadModel
from latentheads.noise import fixed_noise

__all__ = ["ShuffledTarget", "shuffle_targets", "shuffled_target"]


@dataclass(frozen=True)
class ShuffledTarget:
    """The bound of a guide that reads the right target, and a wrong one: nats a target token.

    Attributes:
        elbo: The guide's bound.
        shuffled: The bound on the same targets where the guide is told others.
        tokens: Target tokens.
    """

    elbo: float
    shuffled: float
    tokens: int

    @property
    def fall(self) -> float:
        """The loss of the bound: what the target is worth to the guide."""
        return self.elbo - self.shuffled


def shuffle_targets(part: Part) -> Part:
    """The part with wrong targets of the same lengths.

    Each sentence has the words that follow its own in the part: those of the next sentence, cut to
    its own length or continued with the sentence behind that. Its end stays where it is.

    Raises:
        ValueError: The part has one sentence, which no other's words can stand in.
    """
    check_part(part)
    if len(part.targets) < 2:
        raise ValueError(
            f"part must have two sentences or more to shuffle, got {len(part.targets)}"
        )
    rows, kept = part.targets, 0 if part.block else 1  # blocks of running text have no end
    words = np.concatenate([row[: len(row) - kept] for row in rows])
    lengths = rows.lengths - kept
    behind = np.cumsum(lengths)
    wrong = [
        np.append(words[(start + np.arange(size)) % len(words)], row[len(row) - kept :])
        for start, size, row in zip(behind.tolist(), lengths.tolist(), rows, strict=True)
    ]
    return replace(part, targets=Rows.of(row.astype(np.int32) for row in wrong))


def shuffled_target(
    model: HeadModel, guide: ModelGuide, part: Part, seed: int = 0
) -> ShuffledTarget:
    """Computes the bound of a guide twice, with the same noise: told the right target, and another.

    What all sentences share, as a selection of heads, is left out of both: it reads no target.

    Args:
        model: The model; it always runs on the right target.
        guide: Its guide.
        part: The sentences.
        seed: Of the noise.
    """
    check_pair(model, guide)
    check_seed(seed)
    device, right, wrong, tokens = model.device, 0.0, 0.0, 0
    pairs = zip(in_batches(part, TOKENS), in_batches(shuffle_targets(part), TOKENS), strict=True)
    with evaluating(model, guide):
        for place, (own, other) in enumerate(pairs):
            here, there = own.to(device), other.to(device)
            with fixed_noise(seed + place, device):
                right += float(terms(model, guide, here).elbo.sum())
            with fixed_noise(seed + place, device), guide.told(there):
                wrong += float(terms(model, guide, here).elbo.sum())
            tokens += int(own.target_valid.sum())
    return ShuffledTarget(right / tokens, wrong / tokens, tokens)
