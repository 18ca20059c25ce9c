r"""Adaptive input and softmax: wide embeddings of frequent tokens, narrower ones of rare tokens.

Grave et al. 2017, https://arxiv.org/abs/1609.04309; Baevski and Auli 2019,
https://arxiv.org/abs/1809.10853.

With bands :math:`B_0, B_1, \dots` of the vocabulary, ordered by frequency, the probability of a
token is exact:

.. math:: p(y \mid s) = \begin{cases} p_0(y \mid s) & y \in B_0 \\
          p_0(\text{band } i \mid s)\, p_i(y \mid s) & y \in B_i \end{cases}

where :math:`p_0` is a softmax over the tokens of :math:`B_0`, the head, and one class for each
further band, the tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import PAD
from latentheads.layers.linear_log_prob import linear_log_mixture, linear_log_prob
from latentheads.layers.numeric import dropout, full_precision
from latentheads.layers.output import ExpectedGradient, RowOutput


class AdaptiveTable(nn.Module):
    """Embeddings whose width decreases by a factor from band to band, projected to one width.

    Args:
        vocab_size: Vocabulary size, including special tokens.
        width: Model width d.
        cutoffs: First token id of each band after the first; low ids are the most frequent.
        div_value: Ratio of the widths of successive bands.

    Attributes:
        synchronises: Whether a step waits for a GPU.
    """

    synchronises: ClassVar[bool] = True

    def __init__(
        self, vocab_size: int, width: int, cutoffs: Sequence[int], div_value: int = 4
    ) -> None:
        super().__init__()
        ends = [0, *cutoffs, vocab_size]
        if any(low >= high for low, high in pairwise(ends)):
            raise ValueError(
                f"cutoffs must rise between 0 and the vocabulary size {vocab_size:,}, "
                f"got {list(cutoffs)}"
            )
        if div_value < 1 or width < div_value ** len(cutoffs):
            raise ValueError(
                f"div_value must be at least 1 and its power {len(cutoffs)} within the width "
                f"{width}, got {div_value}"
            )
        self.ends = ends
        self.embedding_dim = width
        widths = [width // div_value**band for band in range(len(ends) - 1)]
        self.bands = nn.ModuleList(
            nn.Embedding(high - low, band_width, padding_idx=PAD if low == 0 else None)
            for (low, high), band_width in zip(pairwise(ends), widths, strict=True)
        )
        self.projections = nn.ModuleList(
            nn.Linear(band_width, width, bias=False) for band_width in widths
        )
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        for band in range(len(self.bands)):
            nn.init.normal_(self.rows(band), std=self.rows(band).shape[1] ** -0.5)
            nn.init.xavier_uniform_(self.projection(band))
        self.rows(0)[PAD].zero_()

    def rows(self, band: int) -> Float[Tensor, "token narrow"]:
        """The embeddings of a band's tokens."""
        return cast(nn.Embedding, self.bands[band]).weight

    def projection(self, band: int) -> Float[Tensor, "dim narrow"]:
        """The matrix that projects a band's embeddings to the model width."""
        return cast(nn.Linear, self.projections[band]).weight

    def forward(self, tokens: Int[Tensor, "*batch token"]) -> Float[Tensor, "*batch token dim"]:
        """Embeds tokens."""
        flat = tokens.flatten()
        embeddings = self.projection(0).new_zeros(len(flat), self.embedding_dim)
        for band, (low, high) in enumerate(pairwise(self.ends)):
            # nonzero synchronises with a GPU: the number of tokens of a band depends on the data
            (rows,) = ((flat >= low) & (flat < high)).nonzero(as_tuple=True)
            x = self.projections[band](self.bands[band](flat[rows] - low))
            embeddings = embeddings.index_add(0, rows, x.to(embeddings.dtype))
        return embeddings.view(*tokens.shape, self.embedding_dim)


class AdaptiveOutput(RowOutput):
    """Softmax over the first band and one class for each tail, and a softmax within each tail.

    Bands and projections are those of the input; only the classes have weights of their own.
    """

    def __init__(self, table: AdaptiveTable, dropout_rate: float = 0.0) -> None:
        super().__init__()
        self.table = table
        self.dropout_rate = dropout_rate
        num_tails = len(table.bands) - 1
        self.classes = nn.Linear(table.embedding_dim, num_tails, bias=False) if num_tails else None

    @property
    def tail_bands(self) -> range:
        """The bands after the first, each with its own softmax."""
        return range(1, len(self.table.bands))

    @property
    def head(self) -> Float[Tensor, "first dim"]:
        """The rows of the head softmax: its tokens, then one class for each tail."""
        first = self.table.rows(0)
        return first if self.classes is None else torch.cat([first, self.classes.weight])

    def cluster_index(self, band: int) -> int:
        """The index of a tail's class in the head softmax."""
        return self.table.ends[1] + band - 1

    def head_index(self, tokens: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        """The index of each token, or of its tail's class, in the head softmax."""
        index = tokens
        for band in self.tail_bands:
            index = torch.where(tokens >= self.table.ends[band], self.cluster_index(band), index)
        return index

    def in_band(self, tokens: Int[Tensor, "*batch"], band: int) -> Bool[Tensor, "*batch"]:
        """True at the tokens of a band."""
        return (tokens >= self.table.ends[band]) & (tokens < self.table.ends[band + 1])

    def project_to_band(
        self, states: Float[Tensor, "*batch dim"], band: int
    ) -> Float[Tensor, "*batch narrow"]:
        """Projects states to the width of a tail, by the transposed projection of the input."""
        return F.linear(states, self.table.projection(band).T)

    def apply_dropout(
        self, narrow: Float[Tensor, "*batch narrow"]
    ) -> Float[Tensor, "*batch narrow"]:
        """Applies dropout to states that are projected to a tail."""
        return dropout(narrow, self.dropout_rate, self.training)

    def check_smoothing(self, smoothing: float) -> None:
        """Raises an error for label smoothing, which needs a full softmax."""
        if smoothing:
            raise ValueError("label_smoothing needs a full softmax: use 0 with an adaptive one")

    @property
    def width(self) -> int:
        return self.table.embedding_dim

    def rows_of(self, tokens: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch dim"]:
        """The rows of the head softmax, plus for tokens of a tail their own rows."""
        flat = tokens.flatten()
        vectors = self.head[self.head_index(flat)]
        for band in self.tail_bands:
            (rows,) = self.in_band(flat, band).nonzero(as_tuple=True)
            band_rows = self.table.rows(band)[flat[rows] - self.table.ends[band]]
            projected = F.linear(band_rows, self.table.projection(band))
            vectors = vectors.index_add(0, rows, projected.to(vectors.dtype))
        return vectors.view(*tokens.shape, self.width)

    def forward(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch vocab"]:
        """Computes the log-probability of every token of the vocabulary."""
        head = full_precision(F.linear(states, self.head)).log_softmax(-1)
        log_probs = [head[..., : self.table.ends[1]]]
        for band in self.tail_bands:
            logits = F.linear(
                self.apply_dropout(self.project_to_band(states, band)), self.table.rows(band)
            )
            band_log_prob = head[..., self.cluster_index(band)].unsqueeze(-1)
            log_probs.append(band_log_prob + full_precision(logits).log_softmax(-1))
        return torch.cat(log_probs, -1)

    def log_prob(
        self,
        states: Float[Tensor, "*batch dim"],
        tokens: Int[Tensor, "*batch"],
        smoothing: float = 0.0,
        expected_gradient: ExpectedGradient = 1.0,
    ) -> Float[Tensor, "*batch"]:
        """Computes the log-probability of each token; only bands that occur are computed."""
        self.check_smoothing(smoothing)
        x, y = states.flatten(0, -2), tokens.flatten()
        log_probs = linear_log_prob(
            x, self.head, self.head_index(y), expected_gradient=expected_gradient
        )
        within = self._log_prob_within_bands(x, y, expected_gradient)
        return (log_probs + within).view(tokens.shape)

    def log_mixture(
        self,
        states: Float[Tensor, "*batch dim"],
        tokens: Int[Tensor, "*batch"],
        log_constant: Float[Tensor, "*batch"],
        smoothing: float = 0.0,
    ) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """The log of p(y) + c for each token y, and log p(y).

        For a token of a tail p is the product of two softmaxes. The gradient of each is weighted by
        the value of the other too, so that those of the tails are computed in the backward pass.
        """
        self.check_smoothing(smoothing)
        x, y = states.flatten(0, -2), tokens.flatten()
        within = self._log_prob_within_bands(x, y, expected_gradient=None)
        inputs = x, self.head, self.head_index(y), log_constant.flatten() - within
        mixture_and_log_prob = linear_log_mixture(*inputs)
        log_mixture, log_probs = (within + value for value in mixture_and_log_prob)
        return log_mixture.view(tokens.shape), log_probs.view(tokens.shape)

    def _log_prob_within_bands(
        self,
        states: Float[Tensor, "position dim"],
        tokens: Int[Tensor, " position"],
        expected_gradient: ExpectedGradient,
    ) -> Float[Tensor, " position"]:
        """Log-probability of each token given its band, 0 in the first."""
        log_probs = full_precision(states.new_zeros(len(states)))
        for band in self.tail_bands:
            (rows,) = self.in_band(tokens, band).nonzero(as_tuple=True)
            if len(rows):
                expected = expected_gradient
                if isinstance(expected, Tensor):
                    expected = expected.flatten()[rows]
                band_states = self.apply_dropout(self.project_to_band(states[rows], band))
                band_tokens = tokens[rows] - self.table.ends[band]
                inputs = band_states, self.table.rows(band), band_tokens
                within_band = linear_log_prob(*inputs, expected_gradient=expected)
                log_probs = log_probs.index_add(0, rows, within_band.to(log_probs.dtype))
        return log_probs
