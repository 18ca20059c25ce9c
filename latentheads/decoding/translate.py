"""Translation: options of decoding, and beam search over batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Le
from pydantic import NonNegativeFloat

from latentheads.batch import Batch
from latentheads.corpora.batches import batch_indices, collate
from latentheads.corpora.part import Part
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.decoding.beam_search import beam_search
from latentheads.errors import UnfinishedError, is_out_of_memory, one_line_message
from latentheads.guide import ModelGuide
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.handlers import WithSelection
from latentheads.model import Decoder, Stepwise
from latentheads.options import (
    Count,
    OptionError,
    Size,
    changed_options,
    from_dict,
    options_class,
)

TOKENS = 2048
"""Tokens of a batch for decoding."""

OnSkip = Callable[[int, str], object]
"""A callback for an input that is skipped: its index, and why."""


MAX_BEAM = 1000
"""Most hypotheses or samples of a sentence: memory grows with them."""


@options_class()
class Decoding:
    """Options of decoding, and of the scores of translations.

    Attributes:
        beam: Beam size: hypotheses kept for each sentence; 1 is greedy decoding.
        length_penalty: Exponent of the length that a hypothesis's log-probability is divided by,
            where there are several to rank: with beam 2 or more.
        draws: Samples of the heads whose probabilities are averaged; 0 sets the heads to their
            prior's location, as the papers do. Selections and gates are sampled too; with 0 they
            are the likeliest.
        paper_bleu: Also compute BLEU by the papers' protocol: tokenised, compounds split, without
            case on iwslt14, multi30k and text that --lowercase says to lower-case.
        paper_wer: Also compute WER by the papers' protocol: lower-cased 13a tokens without
            punctuation.
        rouge: Also compute ROUGE, and that of the first sentence of every source (lead baseline).
        accuracy: Also compute accuracy, the share of exact matches, and the mean edit distance.
        min_tokens: Fewest tokens of a translation, EOS included.
        max_tokens: Most tokens of a translation, EOS included; 0: ten more than twice the source's,
            for speech ten more than its positions.
        no_repeat: No n-gram of this length occurs twice in a translation; 0: no limit.
    """

    beam: Annotated[int, Ge(1), Le(MAX_BEAM)] = 1
    length_penalty: NonNegativeFloat = 1.0
    draws: Annotated[int, Ge(0), Le(MAX_BEAM)] = 0
    paper_bleu: bool = False
    paper_wer: bool = False
    rouge: bool = False
    accuracy: bool = False
    min_tokens: Count = 1
    max_tokens: Size = 0
    no_repeat: Size = 0

    def __post_init__(self) -> None:
        if self.beam == 1 and "length_penalty" in changed_options(self):
            raise OptionError(
                "length_penalty",
                " is for beam 2 or more: greedy decoding has no hypotheses to rank, "
                f"got {self.length_penalty:g} with beam 1",
            )
        if 0 < self.max_tokens < self.min_tokens:
            raise OptionError(
                "max_tokens",
                f" must be at least min_tokens, {self.min_tokens}, got {self.max_tokens}",
            )

    def with_options(self, options: Mapping[str, Any]) -> Decoding:
        """These options with others in place of some; a length penalty goes where the beam does."""
        below = {name: getattr(self, name) for name in changed_options(self)}
        if options.get("beam") == 1:
            below.pop("length_penalty", None)
        return from_dict(Decoding, below | dict(options))


def translate(
    model: Decoder, guide: ModelGuide, target: Vocabulary, batch: Batch, decoding: Decoding
) -> list[str]:
    """Translates a batch into lines of text, with the heads that the guide selects or samples."""
    with eval_no_grad(model), WithSelection(guide, decoding.draws):
        token_ids = search(model, batch.to(model.device), decoding, decoding.draws)
    return decode_lines(target, token_ids)


def decode_lines(target: Vocabulary, token_ids: list[list[int]]) -> list[str]:
    """Decodes tokens into lines of text; a newline that a model generates becomes a space."""
    return [target.decode(tokens).replace("\n", " ") for tokens in token_ids]


def search(model: Stepwise, batch: Batch, decoding: Decoding, draws: int) -> list[list[int]]:
    """Returns the tokens of the best hypothesis of every sentence, ended by EOS.

    Args:
        model: A decoder, in evaluation mode.
        batch: The sources, on the model's device.
        decoding: Options of the beam search; its ``draws`` is ignored.
        draws: Samples of the heads whose probabilities are averaged; 0 sets them to their location.
    """
    hypotheses = beam_search(
        model,
        batch,
        decoding.beam,
        decoding.length_penalty,
        draws,
        decoding.max_tokens or None,
        decoding.min_tokens,
        decoding.no_repeat,
    )
    return [of_sentence[0].tokens for of_sentence in hypotheses]


def translate_part(
    model: Decoder, guide: ModelGuide, target: Vocabulary, part: Part, decoding: Decoding
) -> list[str]:
    """Translates every sentence of a part, in order.

    Args:
        model: The model.
        guide: Selects or samples the heads.
        target: Vocabulary of the translations.
        part: The sentences; targets are ignored.
        decoding: Options of the beam search.

    Raises:
        UnfinishedError: A single sentence does not fit into memory.
    """
    return map_batches(part, lambda batch: translate(model, guide, target, batch, decoding), "")


Result = TypeVar("Result")


def map_batches(
    part: Part, work: Callable[[Batch], list[Result]], empty: Result, on_skip: OnSkip | None = None
) -> list[Result]:
    """Applies a function to every sentence of a part in batches; returns the results in order.

    A batch that does not fit into memory is split in two.

    Args:
        part: The sentences.
        work: Returns a result for each sentence of a batch.
        empty: The result of a sentence that is skipped.
        on_skip: Called if a single sentence does not fit into memory; None raises an error.

    Raises:
        UnfinishedError: A single sentence does not fit into memory.
    """
    results = [empty] * len(part)
    pending = batch_indices(part, TOKENS)[::-1]
    while pending:
        indices = pending.pop()
        try:
            batch_results = work(collate(part, indices))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            message = one_line_message(
                error
            )  # keeping the error itself would keep its tensors alive
        else:
            for index, result in zip(indices.tolist(), batch_results, strict=True):
                results[index] = result
            continue
        if len(indices) > 1:
            pending += [indices[len(indices) // 2 :], indices[: len(indices) // 2]]
        elif on_skip is None:
            raise UnfinishedError(f"sentence {indices[0] + 1}: {message}")
        else:
            on_skip(int(indices[0]), message)
    return results
