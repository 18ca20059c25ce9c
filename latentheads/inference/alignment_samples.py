"""A few draws of the alignments of a pass, where it does not sum over all of them.

Further draws than that of the pass are of the same laws: one softmax a word each, and no further
pass of the network.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from pyro.poutine import Trace
from torch import Tensor

from latentheads.alignment.aligner import AlignedTokens, AlignmentPass
from latentheads.alignment.distribution import Alignments, sample_blocks, word_log_probs
from latentheads.alignment.sampled import AlignmentSamples
from latentheads.distributions import make_token_distribution
from latentheads.inference.enumeration import Enumeration, find_answers, find_tied
from latentheads.names import TARGET

__all__ = ["draw_alignments", "soft_log_prob", "without_words"]


def draw_alignments(model_trace: Trace, guide_trace: Trace, number: int = 1) -> AlignmentSamples:
    """Draws all alignments of a pass from its guide; a single draw is that of the pass.

    Args:
        model_trace: The model's, with alignments.
        guide_trace: The guide's; a block that it leaves out keeps its prior.
        number: How many draws; every one of vectorised particles has as many of its own.
    """
    target = model_trace.nodes[TARGET]
    answers = find_answers(model_trace, guide_trace)
    laws = [site["fn"] for site in answers.values()]
    priors = [model_trace.nodes[name]["fn"] for name in answers]
    valid = laws[0].valid.expand(*laws[0].batch_shape, -1)
    if number == 1:
        drawn = torch.cat([site["value"] for site in answers.values()], -1).unsqueeze(0)
    else:
        drawn = _draw_anew(laws, number)
    words = AlignedTokens(target["fn"].aligned, drawn).token_log_prob(target["value"])
    tied = [answers[name]["fn"] for name in find_tied(model_trace, answers)]
    return AlignmentSamples(
        words,
        word_log_probs([law.pointing for law in priors], valid, drawn),
        word_log_probs([law.pointing for law in laws], valid, drawn),
        any(law.pointing.chained for law in (*laws, *priors)),
        word_log_probs([law.pointing for law in tied], valid, drawn) if tied else 0.0,
    )


def _draw_anew(laws: Sequence[Alignments], number: int) -> Int[Tensor, "draw *batch target head"]:
    """Draws all blocks; each particle has draws of its own, though they may share one law."""
    shape, made = laws[0].batch_shape, laws[0].pointing.scores.shape[:-3]
    apart = shape[: len(shape) - len(made)]
    pointings = [law.pointing for law in laws]
    drawn = sample_blocks(pointings, laws[0].valid, number * apart.numel())
    return drawn.view(number, *apart, *drawn.shape[1:])


@torch.no_grad()
def soft_log_prob(model_trace: Trace) -> Float[Tensor, "*batch target"]:
    """Log-probability of every word if each head adds its mean word vector by its prior scores."""
    target = model_trace.nodes[TARGET]
    aligned: AlignmentPass = target["fn"].aligned
    soft = make_token_distribution(
        aligned.softened(), aligned.valid, aligned.output, aligned.smoothing
    )
    return soft.token_log_prob(target["value"])


def without_words(model_trace: Trace, guide_trace: Trace) -> Enumeration:
    """The laws of a pass, for the KL of every block, which is a sum that reads no word."""
    aligned: AlignmentPass = model_trace.nodes[TARGET]["fn"].aligned
    answers = find_answers(model_trace, guide_trace)
    posterior = [site["fn"].pointing for site in answers.values()]
    summed = aligned.summed_from(aligned.priors[0].scores[..., 0, :])  # no word is read
    return Enumeration(summed, posterior, list(answers), find_tied(model_trace, answers))
