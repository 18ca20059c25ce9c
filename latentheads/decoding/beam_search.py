"""Decoding: the likeliest sentences, token by token, with what is computed once kept.

Draws of the heads, sentences and their hypotheses are dimensions of one tensor. To the network a
draw is one more sentence, so it knows nothing of the search.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.batch import BOS, EOS, PAD, Batch
from latentheads.handlers import PlugIn
from latentheads.layers.numeric import full_precision
from latentheads.model import Stepwise
from latentheads.passes import passes

__all__ = ["Hypothesis", "beam_search"]


class Hypothesis(NamedTuple):
    """A sentence that was found.

    Attributes:
        tokens: Its tokens, EOS the last.
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
    beam: int = 5,
    length_penalty: float = 1.0,
    draws: int = 0,
    limit: int | None = None,
    least: int = 1,
    no_repeat: int = 0,
) -> list[list[Hypothesis]]:
    r"""Searches for the sentences of the highest score, by the rules of fairseq.

    .. math:: \log p(y) / |y|^{\text{length\_penalty}}, \quad \text{EOS counted in } |y|

    At each token the best ``2 * beam`` continuations of a sentence are looked at. Where EOS is
    among the first ``beam`` it ends a hypothesis, further down it is dropped; of the others the
    first ``beam`` go on. A sentence is done when ``beam`` hypotheses have ended, or at the limit,
    where EOS is forced and scored. PAD and BOS cannot come, but keep their probability. Unlike
    fairseq's default, ``--min-len 1``, a sentence may be empty.

    With ``draws`` K, log p(y) is that of the mean probability over K draws of the heads from
    their prior,

    .. math:: \log \tfrac1K \sum_k \prod_t p_k(y_t \mid y_{<t}),

    each drawn once and then kept: the encoder's heads and all gates once a sentence and draw, a row
    of the decoder's when it is computed. Noise comes from torch's global generator. A model that
    selects its heads, or has gates for all sentences, is told which speak by
    :class:`~latentheads.guide.WithSelection` with as many draws.

    Args:
        model: A decoder, in evaluation mode.
        batch: The sources; targets are not looked at.
        beam: Hypotheses of a sentence.
        length_penalty: 0 ranks by probability; the higher, the longer the sentences.
        draws: Draws K of the heads; 0 sets them to their prior's plug-in value.
        limit: Most tokens, EOS counted; when not given, ten and twice the length of the sentence's
            source, or of its target for a language model; of speech ten and as many as there are
            positions.
        least: Fewest tokens, EOS counted; EOS comes earlier at the limit, or where nothing else
            may.
        no_repeat: No n-gram of this many tokens comes twice in a sentence; 0: any may.

    Returns:
        For every sentence ``beam`` hypotheses, best first; fewer where the limit leaves no more.
    """
    _check(beam, length_penalty, draws)
    _check_length(limit, least, no_repeat)
    limits, times = _limits(batch, limit), max(draws, 1)
    search = _Search(batch, beam, times, limits, model.density_dtype, least, no_repeat)
    with nullcontext() if draws else PlugIn():
        state = model.begin(batch.repeated(times))
        while not search.done:
            logits = model.step(search.fed, state)
            state.select(*search.advance(logits.squeeze(-2)))
    return search.found.best_first(length_penalty)


def _check(beam: int, length_penalty: float, draws: int) -> None:
    if beam < 1:
        raise ValueError(f"beam must be at least 1, got {beam}")
    if not 0 <= length_penalty < math.inf:
        raise ValueError(f"length_penalty must be finite and not negative, got {length_penalty}")
    if draws < 0:
        raise ValueError(f"draws must be 0, for none, or more, got {draws}")


def _check_length(limit: int | None, least: int, no_repeat: int) -> None:
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    if not 1 <= least <= (least if limit is None else limit):
        most = "" if limit is None else f" and at most the limit of {limit}"
        raise ValueError(f"least must be at least 1{most}, got {least}")
    if no_repeat < 0:
        raise ValueError(f"no_repeat must be 0, for any, or more, got {no_repeat}")


def _limits(batch: Batch, limit: int | None) -> Int[Tensor, " sentence"]:
    """The most tokens of every sentence; its own, so that its batch does not matter."""
    valid = batch.target_valid if batch.source is None else batch.source_valid
    own = 10 + (2 if batch.frames is None else 1) * valid.sum(-1)
    return own if limit is None else torch.full_like(own, limit)


def _begin(batch: Batch) -> Int[Tensor, " sentence"]:
    """The token before each target: a language where speech is written in several, or BOS."""
    if batch.before is None or batch.frames is None:
        return torch.full_like(batch.sentences, BOS)
    return batch.before


def _mean(each: Float[Tensor, "draw s h vocab"]) -> Float[Tensor, "s h vocab"]:
    """The log of the mean probability over draws, one after the other to spare memory."""
    if len(each) == 1:
        return each[0]
    joint = each[0].clone()
    for one in each[1:]:
        torch.logaddexp(joint, one, out=joint)
    return joint.sub_(math.log(len(each)))


class _Candidates(NamedTuple):
    """The best continuations of every sentence, best first."""

    log_prob: Float[Tensor, "sentence candidate"]
    parent: Int[Tensor, "sentence candidate"]
    token: Int[Tensor, "sentence candidate"]

    @classmethod
    def of(cls, joint: Float[Tensor, "sentence hypothesis vocab"], number: int) -> _Candidates:
        """Takes the best of each hypothesis, and the best of these."""
        each, tokens = joint.topk(min(number, joint.shape[-1]), -1)
        log_prob, place = each.flatten(1).topk(min(number, each[0].numel()), -1)
        return cls(log_prob, place // each.shape[-1], tokens.flatten(1).gather(1, place))

    def going_on(self, beam: int) -> _Candidates:
        """The best without EOS; where there are too few, some of probability 0."""
        alive = self.log_prob.masked_fill(self.token == EOS, -torch.inf)
        log_prob, place = alive.topk(min(beam, alive.shape[-1]), -1)
        return _Candidates(log_prob, self.parent.gather(1, place), self.token.gather(1, place))


class _Found:
    """The hypotheses that ended; one slot beyond those of a sentence takes what is dropped.

    Args:
        number: Sentences.
        beam: Hypotheses that a sentence may have.
        longest: Most tokens.
        like: Tells the type and the device of log-probabilities.
    """

    def __init__(self, number: int, beam: int, longest: int, like: Tensor) -> None:
        self.tokens = torch.full((number, beam + 1, longest), PAD, device=like.device)
        self.log_prob = like.new_full((number, beam + 1), -torch.inf)

    def put(
        self,
        sentences: Int[Tensor, " sentence"],
        slots: Int[Tensor, "sentence candidate"],
        tokens: Int[Tensor, "sentence candidate token"],
        log_prob: Float[Tensor, "sentence candidate"],
    ) -> None:
        """Puts hypotheses of some sentences into slots."""
        row = sentences[:, None]
        self.tokens[row, slots, : tokens.shape[-1]] = tokens
        self.log_prob[row, slots] = log_prob

    def best_first(self, length_penalty: float) -> list[list[Hypothesis]]:
        """Sorts the hypotheses of every sentence by their score."""
        tokens, log_prob = self.tokens[:, :-1], self.log_prob[:, :-1]
        lengths = (tokens != PAD).sum(-1)
        score = log_prob / lengths.clamp(min=1).to(log_prob) ** length_penalty
        order = score.argsort(dim=-1, descending=True, stable=True)
        columns = (part.gather(1, order).tolist() for part in (lengths, score, log_prob))
        rows = zip(tokens.take_along_dim(order[..., None], 1).tolist(), *columns, strict=True)
        return [
            [Hypothesis(y[:n], *numbers) for y, n, *numbers in zip(*row, strict=True) if n]
            for row in rows
        ]


class _Search:
    """The sentences that are not done, and their hypotheses.

    Args:
        batch: All sentences.
        beam: Hypotheses of a sentence.
        draws: Draws of the heads; 1 for the plug-in network.
        limits: Most tokens of each sentence.
        dtype: Of log-probabilities.
        least: Fewest tokens.
        no_repeat: Length of the n-grams that may not come twice; 0: any may.
    """

    def __init__(
        self,
        batch: Batch,
        beam: int,
        draws: int,
        limits: Int[Tensor, " sentence"],
        dtype: torch.dtype,
        least: int,
        no_repeat: int,
    ) -> None:
        self.beam, self.draws, self.limits = beam, draws, limits
        self.least, self.no_repeat = least, no_repeat
        self.shortest, longest = (int(limit) for limit in torch.aminmax(limits))
        number, device = len(batch), limits.device
        self.sentences = torch.arange(number, device=device)
        self.count = torch.zeros_like(self.sentences)
        self.tokens = _begin(batch)[:, None, None]
        self.log_prob = torch.zeros(draws, number, 1, dtype=dtype, device=device)
        self.found = _Found(number, beam, longest, self.log_prob)
        self._space: Tensor | None = None

    @property
    def done(self) -> bool:
        """Whether no sentence is left."""
        return not len(self.sentences)

    @property
    def fed(self) -> Int[Tensor, "row hypothesis 1"]:
        """The last token of every hypothesis, once for every draw."""
        return self.tokens[..., -1:].repeat(self.draws, 1, 1)

    def advance(
        self, logits: Float[Tensor, "row hypothesis vocab"]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Gives every hypothesis its next token; those that end leave, and sentences that are done.

        Returns:
            The sentences and the hypotheses of each that the network's state has to keep.
        """
        at_limit = self.limits == self.tokens.shape[-1]
        each = self._extend(logits, at_limit)
        candidates = _Candidates.of(_mean(each), 2 * self.beam)
        self._end(_Candidates(*(part[:, : self.beam] for part in candidates)))
        going = candidates.going_on(self.beam)
        self._go_on(going, each)
        return self._leave(going.parent, (self.count == self.beam) | at_limit)

    def _extend(
        self, logits: Tensor, at_limit: Tensor
    ) -> Float[Tensor, "draw sentence hypothesis vocab"]:
        """Computes ``log p_k(y_<t) + log p_k(y_t)`` for every draw k and next token."""
        each = self._log_softmax(full_precision(logits)).unflatten(0, (self.draws, -1))
        each += self.log_prob.unsqueeze(-1)
        each[..., PAD] = -torch.inf
        each[..., BOS] = -torch.inf
        if self.no_repeat:
            each.scatter_(-1, self._repeating().expand(self.draws, -1, -1, -1), -torch.inf)
        if self.tokens.shape[-1] < self.least:
            self._hold(each, at_limit)
        if self.tokens.shape[-1] >= self.shortest:
            other = torch.arange(each.shape[-1], device=each.device) != EOS
            each.masked_fill_(at_limit[:, None, None] & other, -torch.inf)
        return each

    def _repeating(self) -> Int[Tensor, "sentence hypothesis place"]:
        """The tokens that would end an n-gram a second time; PAD, which never comes, elsewhere."""
        known, n = self.tokens, self.no_repeat
        if known.shape[-1] < n:
            return torch.full_like(known[..., :1], PAD)
        grams = known.unfold(-1, n, 1)
        last = known[..., None, known.shape[-1] - n + 1 :]
        return grams[..., -1].masked_fill(~(grams[..., :-1] == last).all(-1), PAD)

    def _hold(self, each: Tensor, at_limit: Tensor) -> None:
        """Keeps EOS from coming too early, unless nothing else can come."""
        end = each[..., EOS].clone()
        each[..., EOS] = -torch.inf
        nothing = (each == -torch.inf).all(-1) if self.no_repeat else at_limit[:, None]
        each[..., EOS] = end.masked_fill(~(nothing | at_limit[:, None]), -torch.inf)

    def _log_softmax(self, logits: Tensor) -> Tensor:
        """Writes to memory of its own: as much afresh for every token costs more than the sum."""
        if self._space is None:
            self._space = logits.new_empty(len(logits) * self.beam, logits.shape[-1])
        rows = logits.flatten(0, 1)
        torch.log_softmax(rows, -1, out=self._space[: len(rows)])
        return self._space[: len(rows)].view_as(logits)

    def _end(self, best: _Candidates) -> None:
        """Takes out the candidates that are EOS, as long as there is room."""
        ends = (best.token == EOS) & (best.log_prob != -torch.inf)
        reached = self.count[:, None] + ends.cumsum(1)
        slots = torch.where(ends, reached - 1, self.beam).clamp(max=self.beam)
        self.count = reached[:, -1].clamp(max=self.beam)
        tokens = self._grown(best)[..., 1:]
        self.found.put(self.sentences, slots, tokens, best.log_prob)

    def _go_on(self, going: _Candidates, each: Tensor) -> None:
        """Makes candidates the present hypotheses."""
        place = going.parent * each.shape[-1] + going.token
        log_prob = each.flatten(-2).take_along_dim(place[None], -1)
        self.log_prob = log_prob.masked_fill(going.log_prob == -torch.inf, -torch.inf)
        self.tokens = self._grown(going)

    def _grown(self, candidates: _Candidates) -> Int[Tensor, "sentence candidate token"]:
        before = self.tokens.take_along_dim(candidates.parent[..., None], 1)
        return torch.cat([before, candidates.token[..., None]], -1)

    def _leave(self, parents: Tensor, done: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Drops the sentences that are done; gives the sentences and hypotheses that stay."""
        stay = (~done).nonzero().squeeze(1)  # the one wait for the device
        rows = None
        if len(stay) < len(done):
            self.sentences, self.limits = self.sentences[stay], self.limits[stay]
            self.count, self.tokens = self.count[stay], self.tokens[stay]
            self.log_prob, parents = self.log_prob[:, stay], parents[stay]
            draws = torch.arange(self.draws, device=stay.device)
            rows = (draws[:, None] * len(done) + stay).flatten()
        return rows, None if self.beam == 1 else parents.repeat(self.draws, 1)
