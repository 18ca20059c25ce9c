"""Sampling: a language model continues texts, token by token, with what is computed once kept.

All texts are at the same position at any time: a prompt that is longer than another is still read
while the other is already continued. So texts of all lengths share one pass, without padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import BOS, EOS, PAD, UNK, Batch, pad
from latentheads.handlers import PlugIn
from latentheads.model import DecodingState
from latentheads.passes import passes

__all__ = ["sample_text"]

CHUNK = 256
"""Tokens fed in one pass at most: a pass scores the whole vocabulary after every one."""


@runtime_checkable
class Sampled(Protocol):
    """A model as sampling uses it: it begins, and goes on token by token."""

    @property
    def training(self) -> bool:
        """Whether it is in training mode, where dropout acts."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    def begin(self, batch: Batch) -> DecodingState:
        """Prepares to decode a batch."""

    def step(self, tokens: Tensor, state: DecodingState) -> Tensor:
        """Feeds further tokens and scores the vocabulary after each."""


@torch.no_grad()
@passes()
def sample_text(
    model: Sampled,
    prompts: Sequence[Sequence[int]],
    length: int,
    temperature: float = 1.0,
    top_k: int = 0,
    block: int = 0,
    context: int = 0,
    drawn: bool = False,
    stop: bool = True,
    begin: int = BOS,
    unknown: bool = True,
) -> list[list[int]]:
    r"""Continues texts with tokens drawn one after another, among the ``top_k`` likeliest.

    .. math:: y_t \sim \mathrm{softmax}(\text{logits}(y_{<t}) / \text{temperature})

    PAD and BOS never come: their probability is taken out. Noise comes from torch's global
    generator, for the tokens and for the heads.

    A model of running text knows no position past its block. Once ``block`` tokens are held, the
    last ``context`` of them are read anew from position 0 on, and what follows is read behind
    them. With heads drawn, these rows are drawn anew too.

    Args:
        model: A language model, in evaluation mode.
        prompts: What each text begins with, as token ids, behind ``begin``.
        length: Tokens that a text is continued by, at most.
        temperature: Below 1 the likely tokens become likelier, above 1 the unlikely ones; 0 always
            takes the likeliest.
        top_k: How many of the likeliest tokens are chosen among; 0: all.
        block: Tokens that are held at a time; 0: any number.
        context: Tokens that are kept when a block is full.
        drawn: Draw each head from its prior when its row is computed, instead of setting it to the
            prior's plug-in value.
        stop: Whether EOS ends a text, as for a model of sentences; in running text it ends a line.
        begin: The token before each text: BOS for a sentence, EOS where running text goes on.
        unknown: Whether UNK may come; if not, its probability is taken out.

    Returns:
        What comes behind each prompt, EOS the last where it ended the text.
    """
    _check(model, prompts, length, temperature, top_k)
    _check_block(block, context)
    if not prompts:
        return []
    texts = _Texts([[begin, *prompt] for prompt in prompts], length, stop, model.device)
    never = [PAD, BOS] if unknown else [PAD, BOS, UNK]
    reader = _Reader(model, block, context)
    with nullcontext() if drawn else PlugIn():
        while not texts.done:
            logits = reader.read(texts.known)
            reader.keep(texts.advance(_draw(logits, never, temperature, top_k)))
    return texts.found


def _check(
    model: Sampled, prompts: Sequence[Sequence[int]], length: int, temperature: float, top_k: int
) -> None:
    if model.training:
        raise ValueError("model must be in evaluation mode: call model.eval() first")
    if any(token in (PAD, BOS) or token < 0 for prompt in prompts for token in prompt):
        raise ValueError("prompts must be token ids without PAD and BOS, which no text holds")
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be finite and not negative, got {temperature}")
    if top_k < 0:
        raise ValueError(f"top_k must be 0, for all tokens, or more, got {top_k}")


def _check_block(block: int, context: int) -> None:
    if block < 0:
        raise ValueError(f"block must be 0, for none, or more, got {block}")
    if not 0 <= context < max(block, 1):
        limit = f"less than the block of {block}" if block else "0 without a block"
        raise ValueError(f"context must be not negative and {limit}, got {context}")


def _draw(
    logits: Float[Tensor, "text vocab"], never: list[int], temperature: float, top_k: int
) -> Int[Tensor, " text"]:
    r"""Draws a token by the largest of :math:`\text{logits} + \text{temperature} \cdot g`.

    With independent Gumbel noise g that is a draw from softmax(logits / temperature).
    """
    scores, tokens = logits.to(torch.float64, copy=True), None
    for each in never:  # one by one: a list of places would be waited for
        scores[..., each] = -torch.inf
    if 0 < top_k < scores.shape[-1]:
        scores, tokens = scores.topk(top_k, -1)
    if temperature:
        noise = torch.empty_like(scores).exponential_().log_().neg_()
        scores = scores / max(temperature, 1) + noise * min(temperature, 1)
    place = scores.argmax(-1, keepdim=True)
    return (place if tokens is None else tokens.gather(-1, place)).squeeze(-1)


class _Reader:
    """Feeds what is new of growing texts to a model, and begins anew where a block is full.

    Args:
        model: The model.
        block: Tokens that its state may hold; 0: any number.
        context: Tokens kept of a full block.
    """

    def __init__(self, model: Sampled, block: int, context: int) -> None:
        self.model, self.block, self.context = model, block, context
        self.state: Any = None
        self.start = self.fed = 0

    def read(self, tokens: Int[Tensor, "text known"]) -> Float[Tensor, "text vocab"]:
        """Scores the vocabulary after all tokens of every text."""
        start = self._window(tokens.shape[-1])
        if self.state is None or start > self.start:
            self.state = self.model.begin(Batch(tokens))
            self.start = self.fed = start
        *parts, last = tokens[:, self.fed :].split(max(1, CHUNK // len(tokens)), 1)
        for part in parts:
            self.model.step(part, self.state)
        self.fed = tokens.shape[-1]
        logits: Tensor = self.model.step(last, self.state)
        return logits[:, -1]

    def _window(self, known: int) -> int:
        """Where the block begins that holds the last of the tokens known so far."""
        if not self.block:
            return 0
        fresh = self.block - self.context
        return max(0, known - self.context - 1) // fresh * fresh

    def keep(self, texts: Int[Tensor, " kept"] | None) -> None:
        """Drops all texts but some; None keeps all."""
        self.state.select(texts)


class _Texts:
    """Texts that grow by one token at a time, behind their prompts.

    Args:
        prompts: Their beginnings, of a token or more.
        length: Most tokens behind each.
        stop: Whether EOS ends a text.
        device: Where tokens are kept.
    """

    def __init__(
        self, prompts: Sequence[Sequence[int]], length: int, stop: bool, device: torch.device
    ) -> None:
        given = torch.tensor([len(prompt) for prompt in prompts]).to(device)
        self.given, self.limits = given, given + length
        self.stop = stop
        self.width = min(len(prompt) for prompt in prompts)
        self.tokens = F.pad(pad(prompts), (0, length), value=PAD).to(device)
        self.places = torch.arange(len(prompts), device=device)
        self.found: list[list[int]] = [[] for _ in prompts]

    @property
    def done(self) -> bool:
        """Whether no text is left."""
        return not len(self.places)

    @property
    def known(self) -> Int[Tensor, "text known"]:
        """The tokens of the texts that still grow."""
        return self.tokens[:, : self.width]

    def advance(self, drawn: Int[Tensor, " text"]) -> Int[Tensor, " kept"] | None:
        """Gives every text its next token, the prompt's where that goes on; some texts end.

        Returns:
            Which of the texts still grow; None where all do.
        """
        behind = self.given <= self.width
        token = torch.where(behind, drawn, self.tokens[:, self.width])
        self.tokens[:, self.width] = token
        self.width += 1
        ended = self.limits == self.width
        if self.stop:
            ended |= behind & (token == EOS)
        return self._leave(ended)

    def _leave(self, ended: Bool[Tensor, " text"]) -> Int[Tensor, " kept"] | None:
        stay = (~ended).nonzero().squeeze(1)  # the one wait for the device
        if len(stay) == len(ended):
            return None
        for place, given, row in zip(
            self.places[ended].tolist(),
            self.given[ended].tolist(),
            self.known[ended].tolist(),
            strict=True,
        ):
            self.found[place] = row[given:]
        self.places, self.tokens = self.places[stay], self.tokens[stay]
        self.given, self.limits = self.given[stay], self.limits[stay]
        return stay
