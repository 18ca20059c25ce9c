"""Options of decoding, and of the scores of what is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from annotated_types import Ge, Le

from latentheads.options import OptionError, Size, changed_options, from_dict, options_class

MAX_BEAM = 1000
"""Most hypotheses or samples of a sentence: memory grows with them."""

MAX_PENALTY = 10
"""Largest length penalty: with more the power of a length overflows."""


@options_class()
class Decoding:
    """Options of decoding, and of the scores of translations.

    Attributes:
        num_beams: Beam size: hypotheses kept for each sentence; 1 is greedy decoding.
        length_penalty: Exponent of the length that a hypothesis's log-probability is divided by,
            where there are several to rank: with 2 beams or more.
        num_samples: Samples of the heads whose probabilities are averaged; 0 sets the heads to
            their prior's location, as the papers do. Selections and gates are sampled too; with 0
            they are the likeliest.
        paper_bleu: Also compute BLEU by the papers' protocol: tokenised, compounds split, without
            case on iwslt14, multi30k and text that --data.lowercase makes lower-case.
        paper_wer: Also compute WER by the papers' protocol: lower-cased 13a tokens without
            punctuation.
        rouge: Also compute ROUGE, and that of the first sentence of every source (lead baseline).
        accuracy: Also compute accuracy, the share of exact matches, and the mean edit distance.
        min_new_tokens: Fewest tokens of a translation before EOS.
        max_new_tokens: Most tokens of a translation before EOS; 0: nine more than twice the
            source's, for speech nine more than its positions.
        no_repeat_ngram_size: No n-gram of this length occurs twice in a translation; 0: no limit.
    """

    num_beams: Annotated[int, Ge(1), Le(MAX_BEAM)] = 1
    length_penalty: Annotated[float, Ge(0), Le(MAX_PENALTY)] = 1.0
    num_samples: Annotated[int, Ge(0), Le(MAX_BEAM)] = 0
    paper_bleu: bool = False
    paper_wer: bool = False
    rouge: bool = False
    accuracy: bool = False
    min_new_tokens: Size = 0
    max_new_tokens: Size = 0
    no_repeat_ngram_size: Size = 0

    def __post_init__(self) -> None:
        if self.num_beams == 1 and "length_penalty" in changed_options(self):
            raise OptionError(
                "length_penalty",
                " is for num_beams 2 or more: greedy decoding has no hypotheses to rank, "
                f"got {self.length_penalty:g} with num_beams 1",
            )
        if 0 < self.max_new_tokens < self.min_new_tokens:
            raise OptionError(
                "max_new_tokens",
                f" must be at least min_new_tokens, {self.min_new_tokens}, "
                f"got {self.max_new_tokens}",
            )

    def with_options(self, options: Mapping[str, Any]) -> Decoding:
        """These options with some replaced; with 1 beam the length penalty is its default again."""
        below = {name: getattr(self, name) for name in changed_options(self)}
        if options.get("num_beams") == 1:
            below.pop("length_penalty", None)
        return from_dict(Decoding, below | dict(options))


class DecodingKwargs(TypedDict, total=False):
    """The options of :class:`Decoding`."""

    num_beams: int
    length_penalty: float
    num_samples: int
    paper_bleu: bool
    paper_wer: bool
    rouge: bool
    accuracy: bool
    min_new_tokens: int
    max_new_tokens: int
    no_repeat_ngram_size: int
