"""Sampling of text from a language model, token by token, with cached states.

All texts are at the same position at any time: a long prompt is still consumed while a shorter one
is already continued. So texts of all lengths share one pass without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import BOS, EOS, PAD, UNK, Batch, pad
from latentheads.decoding.topk import topk
from latentheads.handlers import PlugIn
from latentheads.model import Decoder
from latentheads.options import OptionError
from latentheads.passes import passes

CHUNK = 256
"""Most tokens fed in one pass: a pass computes logits of the whole vocabulary after each."""


@torch.no_grad()
@passes()
def sample_text(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    length: int,
    temperature: float = 1.0,
    top_k: int = 0,
    block_size: int = 0,
    context: int = 0,
    sample_heads: bool = False,
    stop_at_eos: bool = True,
    start_token: int = BOS,
    unknown: bool = True,
) -> list[list[int]]:
    r"""Samples continuations of prompts token by token, among the ``top_k`` likeliest tokens.

    .. math:: y_t \sim \mathrm{softmax}(\text{logits}(y_{<t}) / \text{temperature})

    PAD and BOS are excluded before the softmax. Noise comes from torch's global generator, for the
    tokens and for the heads.

    A model of running text has no positions beyond its block size. Once ``block_size`` tokens are
    cached, the last ``context`` of them are fed again from position 0. Sampled heads of these rows
    are then sampled again.

    Args:
        model: A language model, in evaluation mode.
        prompts: The token ids of each prompt, without ``start_token``.
        length: Most tokens that a prompt is continued by.
        temperature: Softmax temperature; 0 always takes the likeliest token.
        top_k: Sample among this many likeliest tokens; 0: all.
        block_size: Most tokens in the cache; 0: no limit.
        context: Tokens that are fed again when the block is full.
        sample_heads: Sample each head from its prior when its row is computed, instead of setting
            it to the prior's plug-in value.
        stop_at_eos: Whether EOS ends a text, as in a model of sentences; in running text it ends a
            line.
        start_token: The token before each text: BOS for a sentence, EOS for running text.
        unknown: Whether UNK may be sampled.

    Returns:
        The continuation of each prompt, with EOS if it ended the text.
    """
    if context and context >= block_size:
        limit = f"less than the block of {block_size}" if block_size else "0 without a block"
        raise OptionError("context", f" must be {limit}, got {context}")
    if not prompts or not length:
        return [[] for _ in prompts]
    texts = _GrowingTexts(
        [[start_token, *prompt] for prompt in prompts], length, stop_at_eos, model.device
    )
    excluded = [PAD, BOS] if unknown else [PAD, BOS, UNK]
    window = _Window(model, block_size, context)
    with nullcontext() if sample_heads else PlugIn():
        while not texts.done:
            logits = window.next_logits(texts.tokens_so_far)
            window.select(texts.append(_sample_tokens(logits, excluded, temperature, top_k)))
    return texts.continuations


def _sample_tokens(
    logits: Float[Tensor, "text vocab"], excluded: list[int], temperature: float, top_k: int
) -> Int[Tensor, " text"]:
    r"""Samples a token as the argmax of :math:`\text{logits} + \text{temperature} \cdot g`.

    With independent Gumbel noise g this samples from softmax(logits / temperature).
    """
    scores, tokens = logits.to(torch.float64, copy=True), None
    for token in excluded:  # one by one: indexing with a list would synchronise with the device
        scores[..., token] = -torch.inf
    if 0 < top_k < scores.shape[-1]:
        scores, tokens = topk(scores, top_k)
    if temperature:
        noise = torch.empty_like(scores).exponential_().log_().neg_()
        scores = scores / max(temperature, 1) + noise * min(temperature, 1)
    index = scores.argmax(-1, keepdim=True)
    return (index if tokens is None else tokens.gather(-1, index)).squeeze(-1)


class _Window:
    """Feeds the new tokens of growing texts to a model; starts a new window when a block is full.

    Args:
        model: The model.
        block_size: Most tokens in its state; 0: no limit.
        context: Tokens of a full block that the next window starts with.
    """

    def __init__(self, model: Decoder, block_size: int, context: int) -> None:
        self.model, self.block_size, self.context = model, block_size, context
        self.state: Any = None
        self.start = self.fed = 0

    def next_logits(self, tokens: Int[Tensor, "text position"]) -> Float[Tensor, "text vocab"]:
        """Computes the logits after the last token of every text."""
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

    def _window(self, length: int) -> int:
        """The start of the window that contains the last of the tokens so far."""
        if not self.block_size:
            return 0
        stride = self.block_size - self.context
        return max(0, length - self.context - 1) // stride * stride

    def select(self, indices: Int[Tensor, " active"] | None) -> None:
        """Keeps only the texts of these indices; None keeps all."""
        self.state.select(indices)


class _GrowingTexts:
    """Texts that grow by one token at a time after their prompts."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        length: int,
        stop_at_eos: bool,
        device: torch.device,
    ) -> None:
        prompt_lengths = torch.tensor([len(prompt) for prompt in prompts]).to(device)
        self.prompt_lengths, self.max_lengths = prompt_lengths, prompt_lengths + length
        self.stop_at_eos = stop_at_eos
        self.width = min(len(prompt) for prompt in prompts)
        self.tokens = F.pad(pad(prompts), (0, length), value=PAD).to(device)
        self.indices = torch.arange(len(prompts), device=device)
        self.continuations: list[list[int]] = [[] for _ in prompts]

    @property
    def done(self) -> bool:
        """Whether no text is left."""
        return not len(self.indices)

    @property
    def tokens_so_far(self) -> Int[Tensor, "text position"]:
        """The tokens of the unfinished texts."""
        return self.tokens[:, : self.width]

    def append(self, sampled: Int[Tensor, " text"]) -> Int[Tensor, " active"] | None:
        """Appends the sampled token to every text, or the prompt's next one; drops finished texts.

        Returns:
            Indices of the unfinished texts; None if all are.
        """
        after_prompt = self.prompt_lengths <= self.width
        token = torch.where(after_prompt, sampled, self.tokens[:, self.width])
        self.tokens[:, self.width] = token
        self.width += 1
        ended = self.max_lengths == self.width
        if self.stop_at_eos:
            ended |= after_prompt & (token == EOS)
        return self._drop_done(ended)

    def _drop_done(self, ended: Bool[Tensor, " text"]) -> Int[Tensor, " active"] | None:
        active = (~ended).nonzero().squeeze(1)  # the only synchronisation with the device
        if len(active) == len(ended):
            return None
        for index, prompt_length, row in zip(
            self.indices[ended].tolist(),
            self.prompt_lengths[ended].tolist(),
            self.tokens_so_far[ended].tolist(),
            strict=True,
        ):
            self.continuations[index] = row[prompt_length:]
        self.indices, self.tokens = self.indices[active], self.tokens[active]
        self.prompt_lengths = self.prompt_lengths[active]
        self.max_lengths = self.max_lengths[active]
        return active
