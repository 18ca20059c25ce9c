"""Recordings longer than Whisper takes: sentences joined to one sound, and cut at its pauses."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentheads.contrib.heads.alignment_heads import fit_alignment_heads
from latentheads.contrib.heads.word_attention import get_cross_heads, record_word_attention
from latentheads.contrib.speech.forced import make_forced_example, transcribe_words
from latentheads.contrib.speech.windows import divide_words, split_at_pauses
from latentheads.experiments.studies.word_times.cache import Recorder
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.measures import Errors, differences
from latentheads.experiments.studies.word_times.speech import Utterance

PAUSES = (0, 4, 9)
"""Seconds of silence after each sentence, besides its own."""

LONGEST = 30


def measure_long(recorder: Recorder, sentences: Sequence[Utterance]) -> dict[str, Any]:
    """Errors in recordings of all sentences, and less those of sentence after sentence."""
    words = [sentence.words for sentence in sentences]
    sounds = [sentence.samples for sentence in sentences]
    alone = _measure(recorder, sentences, sounds, words, np.zeros(len(sentences)))
    results: dict[str, Any] = {"sentence by sentence": alone.summary()}
    for pause in PAUSES:
        padded = [np.pad(sound, (0, pause * RATE)) for sound in sounds]
        offsets = np.cumsum([0, *map(len, padded)])[:-1] / RATE
        whole = np.concatenate(padded)
        windows = split_at_pauses(whole, RATE, LONGEST)
        parts = [whole[first:last] for first, last in windows]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            heard = [transcribe_words(recorder.whisper, recorder.processor, p) for p in parts]
        divided = divide_words(heard, [word for line in words for word in line])
        starts = np.array([first / RATE for first, _ in windows])
        errors = _measure(recorder, sentences, parts, divided, starts, offsets)
        firsts, others = (_select(errors, sentences, is_first) for is_first in (True, False))
        results[f"{pause} s"] = {
            "seconds": round(len(whole) / RATE, 1),
            "windows": len(windows),
            "words_in_another_window": _count_misplaced(sentences, offsets, divided, starts),
            "warnings": len(caught),
            **errors.summary(),
            "less_alone": differences(errors, alone),
            "first_words": firsts.summary(),
            "other_words": others.summary(),
        }
    return results


def _measure(
    recorder: Recorder,
    sentences: Sequence[Utterance],
    sounds: Sequence[NDArray[np.float32]],
    words: Sequence[Sequence[str]],
    starts: NDArray[np.float64],
    offsets: NDArray[np.float64] | None = None,
) -> Errors:
    """Errors of heads that learn from the same sounds without labels, an array a sentence.

    Args:
        recorder: Whisper.
        sentences: What is spoken.
        sounds: The sounds that Whisper is given.
        words: The words of each.
        starts: Seconds at which each starts.
        offsets: Seconds at which each sentence starts; None: the sounds are the sentences.
    """
    filled = [(sound, part, at) for sound, part, at in zip(sounds, words, starts) if part]
    attentions = [
        record_word_attention(
            recorder.whisper, make_forced_example(recorder.processor, sound, part)
        )
        for sound, part, _ in filled
    ]
    heads = fit_alignment_heads(get_cross_heads(recorder.whisper), attentions)
    times = [heads.times(attention, bounded=False)["starts"] for attention in attentions]
    found = np.concatenate(
        [
            np.stack([t.median, t.low, t.high]) + at
            for t, (_, _, at) in zip(times, filled, strict=True)
        ],
        1,
    )
    errors, first = Errors(), 0
    shifts = np.zeros(len(sentences)) if offsets is None else offsets
    for sentence, shift in zip(sentences, shifts, strict=True):
        median, low, high = found[:, first : first + len(sentence.words)] - shift
        errors.add(sentence.starts, median.tolist(), (low.tolist(), high.tolist()))
        first += len(sentence.words)
    return errors


def _select(errors: Errors, sentences: Sequence[Utterance], is_first: bool) -> Errors:
    """The errors of the first words of sentences that have a known start, or of all others."""
    selected = Errors()
    for index, sentence in enumerate(sentences):
        known = np.flatnonzero(np.isfinite(sentence.starts))
        chosen = (known == 0) == is_first
        for name, parts in vars(errors).items():
            getattr(selected, name).append(parts[index][chosen])
    return selected


def _count_misplaced(
    sentences: Sequence[Utterance],
    offsets: NDArray[np.float64],
    divided: Sequence[Sequence[str]],
    starts: NDArray[np.float64],
) -> int:
    """Words whose start is not in the window that they were given to; known starts alone."""
    truth = np.concatenate([np.array(s.starts) + at for s, at in zip(sentences, offsets)])
    given = np.repeat(np.arange(len(divided)), [*map(len, divided)])
    right = np.searchsorted(starts, truth, "right") - 1
    return int((given != right)[np.isfinite(truth)].sum())
