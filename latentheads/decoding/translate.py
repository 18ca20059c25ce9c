"""How text is translated: options, and a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from latentheads.batch import Batch
from latentheads.checks import check_least
from latentheads.corpora import Part, Vocabulary
from latentheads.corpora.batches import batch_indices, collate
from latentheads.decoding.beam_search import beam_search
from latentheads.errors import UnfinishedError, in_a_line, lacks_memory
from latentheads.guide import ModelGuide, WithSelection
from latentheads.inference.evaluation import eval_no_grad
from latentheads.model import Decoder, Stepwise
from latentheads.values import convert_fields

__all__ = [
    "TOKENS",
    "Decoding",
    "Lose",
    "search",
    "texts_of",
    "translate",
    "translate_part",
    "work_through",
]

TOKENS = 2048
"""Tokens of a batch that is decoded."""

Lose = Callable[[int, str], object]
"""Takes note of a text that is lost, by its place, and why."""


WIDEST = 1000
"""Hypotheses at most of a sentence: memory grows with them, and a hundred is wide."""


@dataclass(frozen=True)
class Decoding:
    """How the test part is translated.

    Attributes:
        beam: Hypotheses kept of a sentence; 1 takes the likeliest token each time.
        length_penalty: Exponent of the length that a hypothesis's log-probability is divided by.
        draws: Draws of the heads whose probabilities are averaged; 0 keeps them at their prior's
            location, as the papers do. Selections and gates are drawn too, else the likeliest.
        paper_bleu: Score by the papers' protocol too: tokenised, compounds split, without case on
            iwslt14, multi30k and text that --lowercase says to lower-case.
        paper_wer: Score recognition by the papers' protocol too: 13a tokens without case, those of
            punctuation alone left out.
        rouge: Score by ROUGE too, beside the first sentence of every source.
        accuracy: Score by accuracy too, the share of translations that are right to the letter, and
            by the number of edits to the right one.
        min_tokens: Fewest tokens of a translation, its end counted.
        max_tokens: Most tokens of a translation, its end counted; 0: ten and twice the source's, of
            speech ten and as many as it has positions.
        no_repeat: No n-gram of this length comes twice in a translation; 0: any may.
    """

    beam: int = 1
    length_penalty: float = 1.0
    draws: int = 0
    paper_bleu: bool = False
    paper_wer: bool = False
    rouge: bool = False
    accuracy: bool = False
    min_tokens: int = 1
    max_tokens: int = 0
    no_repeat: int = 0

    def __post_init__(self) -> None:
        convert_fields(self)
        check_least(vars(self), beam=1, min_tokens=1, max_tokens=0, no_repeat=0)
        check_least(vars(self), length_penalty=0.0, draws=0)
        if self.beam > WIDEST:
            raise ValueError(f"beam must be at most {WIDEST:,}, got {self.beam:,}")
        if 0 < self.max_tokens < self.min_tokens:
            raise ValueError(
                f"max_tokens must be at least min_tokens, {self.min_tokens}, got {self.max_tokens}"
            )


def translate(
    model: Decoder, guide: ModelGuide, target: Vocabulary, batch: Batch, decoding: Decoding
) -> list[str]:
    """Translates a batch into lines of text, with the heads that the guide selects or draws."""
    with eval_no_grad(model), WithSelection(guide, decoding.draws):
        found = search(model, batch.to(model.device), decoding, decoding.draws)
    return texts_of(target, found)


def texts_of(target: Vocabulary, found: list[list[int]]) -> list[str]:
    """Lines of text; a newline that a model writes, as a byte like any other, becomes a space."""
    return [target.decode(tokens).replace("\n", " ") for tokens in found]


def search(model: Stepwise, batch: Batch, decoding: Decoding, draws: int) -> list[list[int]]:
    """The tokens of the best hypothesis of every sentence, its end the last.

    Args:
        model: A decoder, in evaluation mode.
        batch: The sources, where the model is.
        decoding: How to search; its draws are not looked at.
        draws: Draws of the heads whose probabilities are averaged; 0 sets them to their location.
    """
    found = beam_search(
        model,
        batch,
        decoding.beam,
        decoding.length_penalty,
        draws,
        decoding.max_tokens or None,
        decoding.min_tokens,
        decoding.no_repeat,
    )
    return [hypotheses[0].tokens for hypotheses in found]


def translate_part(
    model: Decoder, guide: ModelGuide, target: Vocabulary, part: Part, decoding: Decoding
) -> list[str]:
    """Translates every sentence of a part, in their order.

    Args:
        model: The model.
        guide: Selects or draws the heads.
        target: Vocabulary of the translations.
        part: The sentences; targets are not looked at.
        decoding: How to search.

    Raises:
        UnfinishedError: There is too little memory for a single sentence.
    """
    return work_through(part, lambda batch: translate(model, guide, target, batch, decoding), "")


Found = TypeVar("Found")


def work_through(
    part: Part, work: Callable[[Batch], list[Found]], empty: Found, lose: Lose | None = None
) -> list[Found]:
    """The results of some work on every sentence of a part, a batch at a time, in their order.

    A batch for which there is too little memory is cut in two.

    Args:
        part: The sentences.
        work: Gives a result for each sentence of a batch.
        empty: The result of a sentence that is lost.
        lose: Called where there is too little memory for a single sentence; None ends the work.

    Raises:
        UnfinishedError: There is too little memory for a single sentence.
    """
    found = [empty] * len(part)
    waiting = batch_indices(part, TOKENS)[::-1]
    while waiting:
        places = waiting.pop()
        try:
            done = work(collate(part, places))
        except (MemoryError, RuntimeError) as reason:
            if not lacks_memory(reason):
                raise
            why = in_a_line(reason)  # the error itself would hold on to what was computed
        else:
            for place, each in zip(places.tolist(), done, strict=True):
                found[place] = each
            continue
        if len(places) > 1:
            waiting += [places[len(places) // 2 :], places[: len(places) // 2]]
        elif lose is None:
            raise UnfinishedError(f"sentence {places[0] + 1}: {why}")
        else:
            lose(int(places[0]), why)
    return found
