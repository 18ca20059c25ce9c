"""How text is translated: options, and a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass

from latentheads.batch import Batch
from latentheads.checks import check_least
from latentheads.corpora import Vocabulary
from latentheads.decoding.beam_search import beam_search
from latentheads.guide import ModelGuide, WithSelection
from latentheads.inference.evaluation import evaluating
from latentheads.model import Decoder

__all__ = ["Decoding", "translate"]


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
        rouge: Score by ROUGE too, beside the first sentence of every source.
        min_tokens: Fewest tokens of a translation, its end counted.
        max_tokens: Most tokens of a translation, its end counted; 0: ten and twice the source's.
        no_repeat: No n-gram of so many tokens comes twice in a translation; 0: any may.
    """

    beam: int = 1
    length_penalty: float = 1.0
    draws: int = 0
    paper_bleu: bool = False
    rouge: bool = False
    min_tokens: int = 1
    max_tokens: int = 0
    no_repeat: int = 0

    def __post_init__(self) -> None:
        check_least(vars(self), beam=1, min_tokens=1, max_tokens=0, no_repeat=0)
        check_least(vars(self), length_penalty=0, draws=0)
        if 0 < self.max_tokens < self.min_tokens:
            raise ValueError(
                f"max_tokens must be at least min_tokens, {self.min_tokens}, got {self.max_tokens}"
            )


def translate(
    model: Decoder, guide: ModelGuide, target: Vocabulary, batch: Batch, decoding: Decoding
) -> list[str]:
    """Translates a batch into lines of text, with the heads that the guide selects or draws."""
    with evaluating(model), WithSelection(guide, decoding.draws):
        found = beam_search(
            model,
            batch.to(model.device),
            decoding.beam,
            decoding.length_penalty,
            decoding.draws,
            decoding.max_tokens or None,
            decoding.min_tokens,
            decoding.no_repeat,
        )
    lines = (target.decode(hypotheses[0].tokens) for hypotheses in found)
    return [line.replace("\n", " ") for line in lines]
