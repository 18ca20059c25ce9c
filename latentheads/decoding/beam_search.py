"""Beam search with cached states of the network.

Samples of the heads, sentences and hypotheses are dimensions of one tensor. The network sees a
sample as one more sentence of the batch.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.batch import BOS, EOS, PAD, Batch
from latentheads.decoding.topk import topk
from latentheads.handlers import PlugIn
from latentheads.layers.numeric import full_precision
from latentheads.model import Stepwise
from latentheads.passes import passes


class Hypothesis(NamedTuple):
    """A finished hypothesis.

    Attributes:
        tokens: Its tokens, ended by EOS.
        score: ``log_prob / len(tokens) ** length_penalty``.
        log_prob: Its log-probability.
    """

    tokens: list[int]
    score: float
    log_prob: float


@torch.no_grad()
@passes()
def beam_search(
    model: Stepwise,
    batch: Batch,
    num_beams: int = 5,
    length_penalty: float = 1.0,
    num_samples: int = 0,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    no_repeat_ngram_size: int = 0,
) -> list[list[Hypothesis]]:
    r"""Searches for the sentences of the highest score, as fairseq does.

    .. math:: \log p(y) / |y|^{\text{length\_penalty}}, \quad \text{EOS counted in } |y|

    At each step the best ``2 * num_beams`` continuations of a sentence are candidates. EOS among
    the first ``num_beams`` finishes a hypothesis; further down it is dropped. The best
    ``num_beams`` others are continued. A sentence is done when ``num_beams`` hypotheses are
    finished, or after ``max_new_tokens``, where EOS is forced and scored. PAD and BOS are excluded
    without renormalising. Unlike fairseq's default, ``--min-len 1``, a sentence may be empty.

    With ``num_samples`` K, log p(y) is that of the mean probability over K samples of the heads
    from their prior,

    .. math:: \log \tfrac1K \sum_k \prod_t p_k(y_t \mid y_{<t}),

    each sampled once and cached: the encoder's heads and all gates once per sentence and sample, a
    row of the decoder's heads when it is computed. Noise comes from torch's global generator. In a
    model that selects its heads, or has gates, ``lh.latents.WithSelection`` with as many samples
    sets which heads are active.

    Args:
        model: A decoder, in evaluation mode.
        batch: The sources; targets are ignored.
        num_beams: Beam size.
        length_penalty: 0 ranks by probability; higher values favour longer sentences.
        num_samples: Samples K of the heads; 0 sets them to their prior's plug-in value.
        max_new_tokens: Most tokens before EOS; by default nine more than twice the length of the
            source, or of the target for a language model; for speech nine more than its positions.
        min_new_tokens: Fewest tokens before EOS, which comes earlier only where there may be no
            more, or where ``no_repeat_ngram_size`` allows no other token.
        no_repeat_ngram_size: No n-gram of this length occurs twice in a sentence; 0: no limit.

    Returns:
        ``num_beams`` hypotheses for every sentence, best first; fewer where ``max_new_tokens``
        allows fewer.
    """
    limits, samples = _limits(batch, max_new_tokens), max(num_samples, 1)
    search = _BeamSearch(
        batch, num_beams, samples, limits, model.density_dtype, min_new_tokens, no_repeat_ngram_size
    )
    with nullcontext() if num_samples else PlugIn():
        state = model.begin(batch.repeated(samples))
        while not search.done:
            logits = model.step(search.last_tokens, state)
            state.select(*search.advance(logits.squeeze(-2)))
    return search.found.ranked(length_penalty)


def _limits(batch: Batch, max_new_tokens: int | None) -> Int[Tensor, " sentence"]:
    """The most tokens of every sentence with EOS, by its own length: independent of its batch."""
    valid = batch.target_valid if batch.source is None else batch.source_valid
    default = 10 + (2 if batch.frames is None else 1) * valid.sum(-1)
    return default if max_new_tokens is None else torch.full_like(default, max_new_tokens + 1)


def _start_tokens(batch: Batch) -> Int[Tensor, " sentence"]:
    """The token before each target: BOS, or a language tag in multilingual speech recognition."""
    if batch.before is None or batch.frames is None:
        return torch.full_like(batch.sentences, BOS)
    return batch.before


def _log_mean(log_probs: Float[Tensor, "draw s h vocab"]) -> Float[Tensor, "s h vocab"]:
    """The log of the mean probability over samples, accumulated in place to save memory."""
    if len(log_probs) == 1:
        return log_probs[0]
    total = log_probs[0].clone()
    for log_prob in log_probs[1:]:
        torch.logaddexp(total, log_prob, out=total)
    return total.sub_(math.log(len(log_probs)))


class _Candidates(NamedTuple):
    """The best continuations of every sentence, best first."""

    log_prob: Float[Tensor, "sentence candidate"]
    parent: Int[Tensor, "sentence candidate"]
    token: Int[Tensor, "sentence candidate"]

    @classmethod
    def of(cls, log_probs: Float[Tensor, "sentence hypothesis vocab"], number: int) -> _Candidates:
        """Selects the best tokens of all hypotheses."""
        vocab, continuations = log_probs.shape[-1], log_probs.flatten(1)
        log_prob, index = topk(continuations, min(number, continuations.shape[-1]))
        return cls(log_prob, index // vocab, index % vocab)

    def unfinished(self, num_beams: int) -> _Candidates:
        """The best candidates without EOS; padded with ones of probability 0."""
        without_eos = self.log_prob.masked_fill(self.token == EOS, -torch.inf)
        log_prob, index = without_eos.topk(min(num_beams, without_eos.shape[-1]), -1)
        return _Candidates(log_prob, self.parent.gather(1, index), self.token.gather(1, index))


class _FinishedHypotheses:
    """Finished hypotheses; the last slot of a sentence collects those that are dropped."""

    def __init__(self, number: int, num_beams: int, longest: int, like: Tensor) -> None:
        self.tokens = torch.full((number, num_beams + 1, longest), PAD, device=like.device)
        self.log_prob = like.new_full((number, num_beams + 1), -torch.inf)

    def put(
        self,
        sentences: Int[Tensor, " sentence"],
        slots: Int[Tensor, "sentence candidate"],
        tokens: Int[Tensor, "sentence candidate token"],
        log_prob: Float[Tensor, "sentence candidate"],
    ) -> None:
        """Stores hypotheses of some sentences in slots."""
        row = sentences[:, None]
        self.tokens[row, slots, : tokens.shape[-1]] = tokens
        self.log_prob[row, slots] = log_prob

    def ranked(self, length_penalty: float) -> list[list[Hypothesis]]:
        """The hypotheses of every sentence, best score first."""
        tokens, log_prob = self.tokens[:, :-1], self.log_prob[:, :-1]
        lengths = (tokens != PAD).sum(-1)
        score = log_prob / lengths.clamp(min=1).to(log_prob) ** length_penalty
        order = score.argsort(dim=-1, descending=True, stable=True)
        columns = (part.gather(1, order).tolist() for part in (lengths, score, log_prob))
        rows = zip(tokens.take_along_dim(order[..., None], 1).tolist(), *columns, strict=True)
        return [
            [
                Hypothesis(token_ids[:length], *numbers)
                for token_ids, length, *numbers in zip(*row, strict=True)
                if length
            ]
            for row in rows
        ]


class _BeamSearch:
    """The sentences that are not done, and their unfinished hypotheses.

    Args:
        batch: All sentences.
        num_beams: Beam size.
        num_samples: Samples of the heads; 1 for the plug-in network.
        limits: Most tokens of each sentence.
        dtype: Dtype of log-probabilities.
        least: Fewest tokens before EOS.
        no_repeat_ngram_size: Length of the n-grams that may not occur twice; 0: no limit.
    """

    def __init__(
        self,
        batch: Batch,
        num_beams: int,
        num_samples: int,
        limits: Int[Tensor, " sentence"],
        dtype: torch.dtype,
        least: int,
        no_repeat_ngram_size: int,
    ) -> None:
        self.num_beams, self.num_samples, self.limits = num_beams, num_samples, limits
        self.least, self.no_repeat_ngram_size = least, no_repeat_ngram_size
        self.shortest, longest = (int(limit) for limit in torch.aminmax(limits))
        number, device = len(batch), limits.device
        self.sentences = torch.arange(number, device=device)
        self.count = torch.zeros_like(self.sentences)
        self.tokens = _start_tokens(batch)[:, None, None]
        self.log_prob = torch.zeros(num_samples, number, 1, dtype=dtype, device=device)
        self.found = _FinishedHypotheses(number, num_beams, longest, self.log_prob)
        self._buffer: Tensor | None = None

    @property
    def done(self) -> bool:
        """Whether no sentence is left."""
        return not len(self.sentences)

    @property
    def last_tokens(self) -> Int[Tensor, "row hypothesis 1"]:
        """The last token of every hypothesis, repeated for every sample of the heads."""
        return self.tokens[..., -1:].repeat(self.num_samples, 1, 1)

    def advance(
        self, logits: Float[Tensor, "row hypothesis vocab"]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Extends every hypothesis by a token; removes finished hypotheses and sentences.

        Returns:
            Indices of the sentences, and of the hypotheses, that the network's state must keep.
        """
        at_limit = self.limits == self.tokens.shape[-1]
        log_probs = self._score_continuations(logits, at_limit)
        # one hypothesis ends or goes on: whether its best token is EOS, no second one is needed
        number = 2 * self.num_beams if self.num_beams > 1 else 1
        candidates = _Candidates.of(_log_mean(log_probs), number)
        self._collect_finished(_Candidates(*(part[:, : self.num_beams] for part in candidates)))
        unfinished = candidates.unfinished(self.num_beams)
        self._continue_with(unfinished, log_probs)
        return self._drop_done(unfinished.parent, (self.count == self.num_beams) | at_limit)

    def _score_continuations(
        self, logits: Tensor, at_limit: Tensor
    ) -> Float[Tensor, "draw sentence hypothesis vocab"]:
        """Computes ``log p_k(y_<t) + log p_k(y_t)`` for every sample k and next token."""
        log_probs = self._log_softmax(full_precision(logits)).unflatten(0, (self.num_samples, -1))
        log_probs += self.log_prob.unsqueeze(-1)
        log_probs[..., PAD] = -torch.inf
        log_probs[..., BOS] = -torch.inf
        if self.no_repeat_ngram_size:
            log_probs.scatter_(
                -1, self._tokens_repeating_ngrams().expand(self.num_samples, -1, -1, -1), -torch.inf
            )
        if self.tokens.shape[-1] <= self.least:  # BOS is among them
            self._forbid_early_eos(log_probs, at_limit)
        if self.tokens.shape[-1] >= self.shortest:
            other = torch.arange(log_probs.shape[-1], device=log_probs.device) != EOS
            log_probs.masked_fill_(at_limit[:, None, None] & other, -torch.inf)
        return log_probs

    def _tokens_repeating_ngrams(self) -> Int[Tensor, "sentence hypothesis place"]:
        """The tokens that would repeat an n-gram; PAD, which is excluded anyway, elsewhere."""
        tokens, n = self.tokens, self.no_repeat_ngram_size
        if tokens.shape[-1] < n:
            return torch.full_like(tokens[..., :1], PAD)
        grams = tokens.unfold(-1, n, 1)
        last = tokens[..., None, tokens.shape[-1] - n + 1 :]
        return grams[..., -1].masked_fill(~(grams[..., :-1] == last).all(-1), PAD)

    def _forbid_early_eos(self, log_probs: Tensor, at_limit: Tensor) -> None:
        """Excludes EOS before the fewest tokens, unless every other token is excluded."""
        forbidden = ~at_limit[:, None]
        if self.no_repeat_ngram_size:
            forbidden = forbidden & (log_probs[..., EOS + 1 :] != -torch.inf).any(-1)
        log_probs[..., EOS].masked_fill_(forbidden, -torch.inf)

    def _log_softmax(self, logits: Tensor) -> Tensor:
        """Log-softmax into a reused buffer: allocating one for every token costs more time."""
        if self._buffer is None:
            self._buffer = logits.new_empty(len(logits) * self.num_beams, logits.shape[-1])
        rows = logits.flatten(0, 1)
        torch.log_softmax(rows, -1, out=self._buffer[: len(rows)])
        return self._buffer[: len(rows)].view_as(logits)

    def _collect_finished(self, best: _Candidates) -> None:
        """Stores the candidates that end with EOS, until a sentence has all its hypotheses."""
        ends = (best.token == EOS) & (best.log_prob != -torch.inf)
        count = self.count[:, None] + ends.cumsum(1)
        slots = torch.where(ends, count - 1, self.num_beams).clamp(max=self.num_beams)
        self.count = count[:, -1].clamp(max=self.num_beams)
        tokens = self._append_token(best)[..., 1:]
        self.found.put(self.sentences, slots, tokens, best.log_prob)

    def _continue_with(self, candidates: _Candidates, log_probs: Tensor) -> None:
        """Makes candidates the current hypotheses."""
        index = candidates.parent * log_probs.shape[-1] + candidates.token
        log_prob = log_probs.flatten(-2).take_along_dim(index[None], -1)
        self.log_prob = log_prob.masked_fill(candidates.log_prob == -torch.inf, -torch.inf)
        self.tokens = self._append_token(candidates)

    def _append_token(self, candidates: _Candidates) -> Int[Tensor, "sentence candidate token"]:
        tokens = self.tokens.take_along_dim(candidates.parent[..., None], 1)
        return torch.cat([tokens, candidates.token[..., None]], -1)

    def _drop_done(self, parents: Tensor, done: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Drops the sentences that are done; returns indices of sentences and hypotheses kept."""
        active = (~done).nonzero().squeeze(1)  # the only synchronisation with the device
        rows = None
        if len(active) < len(done):
            self.sentences, self.limits = self.sentences[active], self.limits[active]
            self.count, self.tokens = self.count[active], self.tokens[active]
            self.log_prob, parents = self.log_prob[:, active], parents[active]
            samples = torch.arange(self.num_samples, device=active.device)
            rows = (samples[:, None] * len(done) + active).flatten()
        return rows, None if self.num_beams == 1 else parents.repeat(self.num_samples, 1)
