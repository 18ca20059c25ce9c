"""The shuffled-target test: how much a guide's bound falls if it is conditioned on a wrong target.

The bound of a guide that uses the target must fall. One that is conditioned on the source only, or
on the states of the model, which still runs on the right target, does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from latentheads.checks import check_seed
from latentheads.corpora.batches import TOKENS
from latentheads.corpora.batches import batches as in_batches
from latentheads.corpora.part import Part, check_part
from latentheads.corpora.rows import Rows
from latentheads.guide import ModelGuide, check_pair
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import eval_no_grad
from latentheads.model import HeadModel
from latentheads.noise import fixed_noise


@dataclass(frozen=True)
class ShuffledTarget:
    """The bound of a guide given the right target and a wrong one, in nats per target token.

    Attributes:
        elbo: The guide's bound.
        shuffled: The bound on the same targets if the guide is conditioned on others.
        tokens: Number of target tokens.
    """

    elbo: float
    shuffled: float
    tokens: int

    @property
    def fall(self) -> float:
        """By how much the bound falls: the value of the target to the guide."""
        return self.elbo - self.shuffled


def shuffle_targets(part: Part) -> Part:
    """The part with wrong targets of the same lengths.

    Each sentence gets the tokens that follow it in the part: those of the next sentence, cut to its
    own length or continued with the sentence after that. Its EOS stays in place.
    """
    check_part(part)
    if len(part.targets) < 2:
        raise ValueError(
            f"part must have two sentences or more to shuffle, got {len(part.targets)}"
        )
    rows, num_kept = part.targets, 0 if part.block_size else 1  # blocks of running text have no end
    tokens = np.concatenate([row[: len(row) - num_kept] for row in rows])
    lengths = rows.lengths - num_kept
    starts = np.cumsum(lengths)
    shuffled = [
        np.append(tokens[(start + np.arange(length)) % len(tokens)], row[len(row) - num_kept :])
        for start, length, row in zip(starts.tolist(), lengths.tolist(), rows, strict=True)
    ]
    return replace(part, targets=Rows.of(row.astype(np.int32) for row in shuffled))


def shuffled_target(
    model: HeadModel, guide: ModelGuide, part: Part, seed: int = 0
) -> ShuffledTarget:
    """Compute the bound of a guide given the right target and a wrong one, with the same noise.

    Latents that all sentences share, such as a selection of heads, are left out of both: they are
    not conditioned on the target.

    Args:
        model: The model; it always runs on the right target.
        guide: Its guide.
        part: The sentences.
        seed: Seed of the noise.
    """
    check_pair(model, guide)
    check_seed(seed)
    device, elbo, shuffled, tokens = model.device, 0.0, 0.0, 0
    pairs = zip(
        in_batches(part, TOKENS, shuffle=False),
        in_batches(shuffle_targets(part), TOKENS, shuffle=False),
        strict=True,
    )
    with eval_no_grad(model, guide):
        for index, (target_batch, shuffled_batch) in enumerate(pairs):
            batch, other_batch = target_batch.to(device), shuffled_batch.to(device)
            with fixed_noise(seed + index, device):
                elbo += float(terms(model, guide, batch).elbo.sum())
            with fixed_noise(seed + index, device), guide.conditioned_on(other_batch):
                shuffled += float(terms(model, guide, batch).elbo.sum())
            tokens += int(target_batch.target_valid.sum())
    return ShuffledTarget(elbo / tokens, shuffled / tokens, tokens)
