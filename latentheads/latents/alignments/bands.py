r"""Emission log-probabilities where the output layer is an adaptive softmax.

The probability of a token of a further band has two factors, each a softmax of scores that add up
(see :mod:`latentheads.layers.adaptive`),

.. math:: \log p(y \mid t, s) = \log p_0(\text{band } i \mid t, s) + \log p_i(y \mid t, s),

so its log-probabilities are the sum of two of :mod:`latentheads.latents.alignments.emission`:
those of all tokens under the first softmax, and those of the tokens of band :math:`i` under that
band's. Scores of positions are computed for all bands that occur in the batch; scores of states
only for tokens of the band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.latents.alignments.emission import EmissionRequest, emission_log_probs
from latentheads.latents.alignments.next_token import NextTokenDistribution
from latentheads.layers.adaptive import AdaptiveOutput
from latentheads.layers.linear_output import LinearOutput
from latentheads.layers.numeric import exp
from latentheads.layers.output import RowOutput


def compute_emission_log_probs(
    output: RowOutput,
    states: Float[Tensor, "sentence target dim"],
    vectors: Sequence[Float[Tensor, "sentence key dim"]],
    tokens: Int[Tensor, "sentence target"],
    request: EmissionRequest | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "sentence target *keys"]:
    """Compute the log-probability of every target token for each position.

    Args:
        output: The output layer: one softmax, or an adaptive one.
        states: The decoder states that predict the tokens.
        vectors: The vector that each position adds to a state, for each of one or two heads.
        tokens: The target tokens.
        request: How the result is likely to be used; see
            :func:`latentheads.latents.alignments.emission.emission_log_probs`.
        smoothing: Label smoothing; for a single softmax only.
    """
    if isinstance(output, LinearOutput):
        return emission_log_probs(states, vectors, output.weight, tokens, request, smoothing)
    output = _check_adaptive(output)
    output.check_smoothing(smoothing)
    # a posterior needs both factors: the gradient of the first is computed in the backward pass
    head_request = request if request and not request.marginal else None
    table = emission_log_probs(
        states, vectors, output.head, output.head_index(tokens), head_request
    )
    if request and request.marginal:
        request = replace(request, log_probs=request.log_probs + table.detach())
    for band in output.tail_bands:
        table = table + _band_log_probs(output, band, states, vectors, tokens, request)
    return table


def _band_log_probs(
    output: AdaptiveOutput,
    band: int,
    states: Float[Tensor, "sentence target dim"],
    vectors: Sequence[Float[Tensor, "sentence key dim"]],
    tokens: Int[Tensor, "sentence target"],
    request: EmissionRequest | None,
) -> Float[Tensor, "sentence target *keys"] | float:
    """Log-probabilities within a further band; 0 at tokens of other bands."""
    num_keys, in_band = [vector.shape[1] for vector in vectors], output.in_band(tokens, band)
    longest = int(in_band.sum(-1).amax()) if tokens.numel() else 0  # synchronises with a GPU
    if not longest:
        return 0.0
    # the band's tokens of every sentence come first, followed by others as padding
    indices = in_band.int().argsort(dim=-1, descending=True, stable=True)[:, :longest]
    is_real, dim = in_band.gather(-1, indices), states.shape[-1]
    selected = states.gather(1, indices[..., None].expand(-1, -1, dim))
    band_tokens = (tokens.gather(-1, indices) - output.table.ends[band]) * is_real
    rows = [output.project_to_band(vector, band) for vector in (selected, *vectors)]
    # one mask for each sentence: dropout of the sum of a state and its positions' vectors
    dropout_mask = output.apply_dropout(torch.ones_like(rows[0][:, :1]))
    rows = [vector * dropout_mask for vector in rows]
    index = indices.view(*indices.shape, *(1,) * len(num_keys)).expand(-1, -1, *num_keys)
    if request:
        valid = request.valid.gather(1, indices) & is_real
        request = replace(request, log_probs=request.log_probs.gather(1, index), valid=valid)
    log_probs = emission_log_probs(rows[0], rows[1:], output.table.rows(band), band_tokens, request)
    log_probs = log_probs * is_real.view(*is_real.shape, *(1,) * len(num_keys))
    return log_probs.new_zeros(*tokens.shape, *num_keys).scatter(1, index, log_probs)


def _check_adaptive(output: RowOutput) -> AdaptiveOutput:
    """Check that alignments can be summed out under an output layer."""
    if not isinstance(output, AdaptiveOutput):
        raise TypeError(
            "alignments are summed under a LinearOutput or an AdaptiveOutput, "
            f"not under {type(output).__name__}"
        )
    return output


def make_next_token_distribution(
    output: RowOutput, vectors: Sequence[Float[Tensor, "sentence key dim"]]
) -> NextTokenDistribution | BandedNextTokenDistribution:
    """Make the distribution of the next token, with alignments summed out.

    Args:
        output: The output layer: one softmax, or an adaptive one.
        vectors: The vector that each position adds to a state, for each of one or two heads.
    """
    if isinstance(output, LinearOutput):
        return NextTokenDistribution(vectors, output.weight)
    return BandedNextTokenDistribution(vectors, _check_adaptive(output))


class BandedNextTokenDistribution:
    """The distribution of the next token under an adaptive softmax.

    Args:
        vectors: The vector that each position adds to a state, for each of one or two heads.
        output: The output layer.
    """

    def __init__(
        self, vectors: Sequence[Float[Tensor, "sentence key dim"]], output: AdaptiveOutput
    ) -> None:
        self.output = output
        self.first = NextTokenDistribution(vectors, output.head)
        self.bands = {
            band: NextTokenDistribution(self._narrow(vectors, band), output.table.rows(band))
            for band in output.tail_bands
        }

    def _narrow(self, vectors: Sequence[Tensor], band: int) -> list[Tensor]:
        return [self.output.project_to_band(vector, band) for vector in vectors]

    def select(self, sentences: Int[Tensor, " kept"]) -> None:
        """Select, repeat or reorder sentences."""
        for distribution in (self.first, *self.bands.values()):
            distribution.select(sentences)

    def extend(self, vectors: Sequence[Float[Tensor, "sentence new dim"]]) -> None:
        """Append positions."""
        self.first.extend(vectors)
        for band, distribution in self.bands.items():
            distribution.extend(self._narrow(vectors, band))

    def keep_positions(self, positions: Int[Tensor, " kept"]) -> None:
        """Keep some positions of every sentence."""
        for distribution in (self.first, *self.bands.values()):
            distribution.keep_positions(positions)

    def _log_band(
        self, states: Float[Tensor, "sentence row dim"], band: int
    ) -> Float[Tensor, "sentence row *keys"]:
        """Log-probability that the next token is of a further band, for all positions."""
        classes = states.new_full(
            states.shape[:2], self.output.cluster_index(band), dtype=torch.long
        )
        return self.first.word_log_probs(states, classes)

    def log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        log_prior: Float[Tensor, "sentence row *keys"],
    ) -> Float[Tensor, "sentence row vocab"]:
        """Log-probabilities of the vocabulary; see :class:`NextTokenDistribution`."""
        parts = [self.first.log_probs(states, log_prior)[..., : self.output.table.ends[1]]]
        for band, distribution in self.bands.items():
            weights = log_prior + self._log_band(states, band)
            parts.append(distribution.log_probs(self.output.project_to_band(states, band), weights))
        return torch.cat(parts, -1)

    def word_log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        tokens: Int[Tensor, "sentence row"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Log-probability of one token for each state, for all positions."""
        log_probs = self.first.word_log_probs(states, self.output.head_index(tokens))
        for band, distribution in self.bands.items():
            in_band = self.output.in_band(tokens, band)
            band_tokens = (tokens - self.output.table.ends[band]) * in_band
            within = distribution.word_log_probs(
                self.output.project_to_band(states, band), band_tokens
            )
            log_probs = log_probs + within * in_band.view(*in_band.shape, *(1,) * (within.ndim - 2))
        return log_probs

    def word_entropies(
        self, states: Float[Tensor, "sentence row dim"]
    ) -> Float[Tensor, "sentence row *keys"]:
        """Entropy of the next token given the alignments: that of its band plus that within."""
        entropies = self.first.word_entropies(states)
        for band, distribution in self.bands.items():
            within = distribution.word_entropies(self.output.project_to_band(states, band))
            entropies = entropies + exp(self._log_band(states, band)) * within
        return entropies

    def mean_log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        probs: Float[Tensor, "sentence row vocab"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Expected log-probability of tokens under another distribution."""
        ends = self.output.table.ends
        parts = {band: probs[..., ends[band] : ends[band + 1]] for band in self.bands}
        masses = [part.sum(-1, keepdim=True) for part in parts.values()]
        mean_log_probs = self.first.mean_log_probs(
            states, torch.cat([probs[..., : ends[1]], *masses], -1)
        )
        for (band, part), mass in zip(parts.items(), masses, strict=True):
            conditional = part / mass.clamp_min(torch.finfo(mass.dtype).tiny)
            within = self.bands[band].mean_log_probs(
                self.output.project_to_band(states, band), conditional
            )
            mean_log_probs = (
                mean_log_probs + mass.view(*mass.shape[:2], *(1,) * (within.ndim - 2)) * within
            )
        return mean_log_probs
