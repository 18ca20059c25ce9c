"""Translation by beam search over batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from latentheads.batch import Batch
from latentheads.console import show_progress
from latentheads.corpora.batches import Indices, batch_indices, collate
from latentheads.corpora.part import Part
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.decoding.beam_search import beam_search
from latentheads.decoding.options import Decoding
from latentheads.errors import UnfinishedError, is_out_of_memory, one_line_message
from latentheads.guide import ModelGuide
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.handlers import WithSelection
from latentheads.model import Decoder, Stepwise

TOKENS = 2048
"""Tokens of a batch for decoding."""

OnSkip = Callable[[int, str], object]
"""A callback for an input that is skipped: its index, and why."""


def translate(
    model: Decoder, guide: ModelGuide, target: Vocabulary, batch: Batch, decoding: Decoding
) -> list[str]:
    """Translates a batch into lines of text, with the heads that the guide selects or samples."""
    with eval_no_grad(model), WithSelection(guide, decoding.num_samples):
        token_ids = search(model, batch.to(model.device), decoding, decoding.num_samples)
    return decode_lines(target, token_ids)


def decode_lines(target: Vocabulary, token_ids: list[list[int]]) -> list[str]:
    """Decodes tokens into lines of text; a newline that a model generates becomes a space."""
    return [target.decode(tokens).replace("\n", " ") for tokens in token_ids]


def search(model: Stepwise, batch: Batch, decoding: Decoding, num_samples: int) -> list[list[int]]:
    """Returns the tokens of the best hypothesis of every sentence, ended by EOS.

    Args:
        model: A decoder, in evaluation mode.
        batch: The sources, on the model's device.
        decoding: Options of the beam search; its ``num_samples`` is ignored.
        num_samples: Samples of the heads whose probabilities are averaged; 0 sets them to their
            location.
    """
    hypotheses = beam_search(
        model,
        batch,
        decoding.num_beams,
        decoding.length_penalty,
        num_samples,
        decoding.max_new_tokens or None,
        decoding.min_new_tokens,
        decoding.no_repeat_ngram_size,
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
    """
    results = [empty] * len(part)
    pending = batch_indices(part, TOKENS)[::-1]

    def iterate_pending() -> Iterator[Indices]:
        while pending:
            yield pending.pop()

    for indices in show_progress(iterate_pending(), "decoding", "batch", len(pending)):
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
