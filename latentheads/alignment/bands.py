r"""The word that alignments explain, where the output layer is an adaptive softmax.

A word of a further band has two factors, each a softmax of scores that add up (see
:mod:`latentheads.layers.adaptive`),

.. math:: \log p(y \mid t, s) = \log p_0(\text{band } i \mid t, s) + \log p_i(y \mid t, s),

so that its table is the sum of two of :mod:`latentheads.alignment.emission`: one of all words
against the first softmax, one of the words of band :math:`i` against that band's. Every position
has scores for all types of a band that occurs in the batch; products with states are made of the
band's own words alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.alignment.emission import EmissionRequest, word_embeddings
from latentheads.alignment.next_token import NextTokenDistribution
from latentheads.layers.adaptive import AdaptiveOutput
from latentheads.layers.numeric import exp
from latentheads.layers.output import LinearOutput, RowOutput

__all__ = ["BandedNextTokenDistribution", "make_next_token_distribution", "make_table"]


def make_table(
    output: RowOutput,
    states: Float[Tensor, "sentence target dim"],
    lexicons: Sequence[Float[Tensor, "sentence key dim"]],
    words: Int[Tensor, "sentence target"],
    asked: EmissionRequest | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "sentence target *keys"]:
    """Log-probability of every word for each position that may be pointed at.

    Args:
        output: The output layer: one softmax, or an adaptive one.
        states: What predicts each word.
        lexicons: What every position adds to a state, for each head: one or two.
        words: The words.
        asked: What the table is likely to be made for; see
            :func:`latentheads.alignment.emission.word_embeddings`.
        smoothing: Label smoothing, of one softmax alone.
    """
    if isinstance(output, LinearOutput):
        return word_embeddings(states, lexicons, output.weight, words, asked, smoothing)
    output = _adaptive(output)
    output.check_smoothing(smoothing)
    # a posterior is of both factors: the gradient of the first is made later, its scores once more
    known = asked if asked and not asked.summed else None
    table = word_embeddings(states, lexicons, output.head, output.head_index(words), known)
    if asked and asked.summed:
        asked = replace(asked, log_law=asked.log_law + table.detach())
    for band in output.tail_bands:
        table = table + _band_table(output, band, states, lexicons, words, asked)
    return table


def _band_table(
    output: AdaptiveOutput,
    band: int,
    states: Float[Tensor, "sentence target dim"],
    lexicons: Sequence[Float[Tensor, "sentence key dim"]],
    words: Int[Tensor, "sentence target"],
    asked: EmissionRequest | None,
) -> Float[Tensor, "sentence target *keys"] | float:
    """What a further band adds to the table: 0 at words of other bands."""
    keys, inside = [each.shape[1] for each in lexicons], output.in_band(words, band)
    most = int(inside.sum(-1).amax()) if words.numel() else 0  # a GPU is waited for
    if not most:
        return 0.0
    # the band's words of every sentence stand together, filled up with some that are not of it
    places = inside.int().argsort(dim=-1, descending=True, stable=True)[:, :most]
    real, dim = inside.gather(-1, places), states.shape[-1]
    chosen = states.gather(1, places[..., None].expand(-1, -1, dim))
    own = (words.gather(-1, places) - output.table.ends[band]) * real
    rows = [output.project_to_band(each, band) for each in (chosen, *lexicons)]
    # one mask a sentence: a state and what a position adds are dropped out as their sum is
    kept = output.apply_dropout(torch.ones_like(rows[0][:, :1]))
    rows = [each * kept for each in rows]
    index = places.view(*places.shape, *(1,) * len(keys)).expand(-1, -1, *keys)
    if asked:
        valid = asked.valid.gather(1, places) & real
        asked = replace(asked, log_law=asked.log_law.gather(1, index), valid=valid)
    found = word_embeddings(rows[0], rows[1:], output.table.rows(band), own, asked)
    found = found * real.view(*real.shape, *(1,) * len(keys))
    return found.new_zeros(*words.shape, *keys).scatter(1, index, found)


def _adaptive(output: RowOutput) -> AdaptiveOutput:
    """The output layer, if it is one that alignments know how to sum."""
    if not isinstance(output, AdaptiveOutput):
        raise TypeError(
            "alignments are summed under a LinearOutput or an AdaptiveOutput, "
            f"not under {type(output).__name__}"
        )
    return output


def make_next_token_distribution(
    output: RowOutput, lexicons: Sequence[Float[Tensor, "sentence key dim"]]
) -> NextTokenDistribution | BandedNextTokenDistribution:
    """The law of the next word under an output layer, summed over where heads may point.

    Args:
        output: The output layer: one softmax, or an adaptive one.
        lexicons: What every position adds to a state, for each head: one or two.
    """
    if isinstance(output, LinearOutput):
        return NextTokenDistribution(lexicons, output.weight)
    return BandedNextTokenDistribution(lexicons, _adaptive(output))


class BandedNextTokenDistribution:
    """The law of the next word under an adaptive softmax: a dictionary for each softmax.

    Args:
        lexicons: What every position adds to a state, for each head: one or two.
        output: The output layer.
    """

    def __init__(
        self, lexicons: Sequence[Float[Tensor, "sentence key dim"]], output: AdaptiveOutput
    ) -> None:
        self.output = output
        self.first = NextTokenDistribution(lexicons, output.head)
        self.bands = {
            band: NextTokenDistribution(self._narrow(lexicons, band), output.table.rows(band))
            for band in output.tail_bands
        }

    def _narrow(self, lexicons: Sequence[Tensor], band: int) -> list[Tensor]:
        return [self.output.project_to_band(each, band) for each in lexicons]

    def select(self, sentences: Int[Tensor, " kept"]) -> None:
        """Keeps, repeats or reorders sentences."""
        for each in (self.first, *self.bands.values()):
            each.select(sentences)

    def extend(self, lexicons: Sequence[Float[Tensor, "sentence new dim"]]) -> None:
        """Takes further positions in, behind those there are."""
        self.first.extend(lexicons)
        for band, each in self.bands.items():
            each.extend(self._narrow(lexicons, band))

    def keep(self, positions: Int[Tensor, " kept"]) -> None:
        """Keeps some positions of every sentence."""
        for each in (self.first, *self.bands.values()):
            each.keep(positions)

    def _log_band(
        self, states: Float[Tensor, "sentence row dim"], band: int
    ) -> Float[Tensor, "sentence row *keys"]:
        """Log-probability that the next word is of a further band, for all positions."""
        words = states.new_full(states.shape[:2], self.output.cluster_index(band), dtype=torch.long)
        return self.first.word_log_probs(states, words)

    def log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        log_prior: Float[Tensor, "sentence row *keys"],
    ) -> Float[Tensor, "sentence row vocab"]:
        """Log-probabilities of all words; see :class:`NextTokenDistribution`."""
        parts = [self.first.log_probs(states, log_prior)[..., : self.output.table.ends[1]]]
        for band, each in self.bands.items():
            weights = log_prior + self._log_band(states, band)
            parts.append(each.log_probs(self.output.project_to_band(states, band), weights))
        return torch.cat(parts, -1)

    def word_log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        words: Int[Tensor, "sentence row"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Log-probability of one word a row, for all positions."""
        found = self.first.word_log_probs(states, self.output.head_index(words))
        for band, each in self.bands.items():
            inside = self.output.in_band(words, band)
            own = (words - self.output.table.ends[band]) * inside
            said = each.word_log_probs(self.output.project_to_band(states, band), own)
            found = found + said * inside.view(*inside.shape, *(1,) * (said.ndim - 2))
        return found

    def word_entropies(
        self, states: Float[Tensor, "sentence row dim"]
    ) -> Float[Tensor, "sentence row *keys"]:
        """Entropy of the next word given where heads point: that of its band, and that within."""
        found = self.first.word_entropies(states)
        for band, each in self.bands.items():
            within = each.word_entropies(self.output.project_to_band(states, band))
            found = found + exp(self._log_band(states, band)) * within
        return found

    def mean_log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        law: Float[Tensor, "sentence row vocab"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Mean log-probability of words that are sampled from another distribution."""
        ends = self.output.table.ends
        parts = {band: law[..., ends[band] : ends[band + 1]] for band in self.bands}
        masses = [part.sum(-1, keepdim=True) for part in parts.values()]
        found = self.first.mean_log_probs(states, torch.cat([law[..., : ends[1]], *masses], -1))
        for (band, part), mass in zip(parts.items(), masses, strict=True):
            inner = part / mass.clamp_min(torch.finfo(mass.dtype).tiny)
            said = self.bands[band].mean_log_probs(self.output.project_to_band(states, band), inner)
            found = found + mass.view(*mass.shape[:2], *(1,) * (said.ndim - 2)) * said
        return found
