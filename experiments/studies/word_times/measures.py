"""How far word times are from the truth, with intervals over utterances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.contrib.heads.dtw_heads import WarpedExample, choose_for_dtw
from latentheads.contrib.heads.head_exports import LIKELY
from latentheads.contrib.heads.word_attention import WHISPER_STEP, Head
from latentheads.contrib.speech.time_errors import TimeErrors, differences, join
from latentheads.experiments.studies.word_times.cache import CachedUtterance
from latentheads.experiments.studies.word_times.rivals import RIVALS, Rival, warped_times

KINDS = ("starts", "ends")


def fit_heads(
    utterances: Sequence[CachedUtterance], labelled: bool, options: FitOptions | None = None
) -> AlignmentHeads:
    """Heads that learn from utterances, with their times or without."""
    attentions = [utterance.attention(labelled) for utterance in utterances]
    return fit_alignment_heads(utterances[0].heads, attentions, options=options)


def measure_alone(
    pool: Sequence[CachedUtterance], utterances: Sequence[CachedUtterance]
) -> dict[str, Any]:
    """The errors of heads of a pool, and of those that each utterance alone shows, all unlabelled.

    Both learn starts.
    """
    kept, alone = fit_heads(pool, labelled=False, options=FitOptions()), TimeErrors()
    for utterance in utterances:
        heads = fit_heads([utterance], labelled=False, options=FitOptions())
        alone.extend(head_errors(heads, [utterance])["starts"])
    of_pool = head_errors(kept, utterances)["starts"]
    rows = {"pool": of_pool.summary(), "alone": alone.summary()}
    return {**rows, "pool_less_alone": differences(of_pool, alone)}


def only_listed(utterance: CachedUtterance) -> CachedUtterance:
    """An utterance with the attention of the heads of OpenAI's list alone."""
    indices = [utterance.heads.index(head) for head in utterance.listed]
    return replace(utterance, weights=utterance.weights[indices], heads=utterance.listed)


def average_listed(utterance: CachedUtterance) -> CachedUtterance:
    """An utterance with one head in place of all: the mean of those of OpenAI's list."""
    mean = only_listed(utterance).weights.float().mean(0, keepdim=True)
    return replace(utterance, weights=mean, heads=utterance.listed[:1])


def head_errors(
    heads: AlignmentHeads, utterances: Sequence[CachedUtterance]
) -> dict[str, TimeErrors]:
    """The errors of alignment heads, by kind of boundary."""
    errors = {kind: TimeErrors() for kind in KINDS[: heads.model.chain.kinds]}
    for utterance in utterances:
        times = heads.times(utterance.attention(labelled=False), bounded=False)
        for index, kind in enumerate(errors):
            predicted = times[kind]
            ends = (predicted.low.tolist(), predicted.high.tolist())
            errors[kind].add(utterance.boundaries(index), predicted.median.tolist(), ends)
    return errors


def measure_heads(
    heads: AlignmentHeads,
    utterances: Sequence[CachedUtterance],
    others: dict[str, TimeErrors] | None = None,
) -> dict[str, Any]:
    """The errors of alignment heads, by kind of boundary and together, and less those of others."""
    errors = head_errors(heads, utterances)
    if others is None:
        return _summaries(errors)
    both = join(list(errors.values())), join(list(others.values()))
    return _summaries(errors) | {"less_all": differences(*both)}


def measure_rivals(
    utterances: Sequence[CachedUtterance], pool: Sequence[CachedUtterance], kinds: int
) -> dict[str, Any]:
    """The errors of dynamic time warping, as it is and without the bias that it has on a pool."""
    results = {}
    for name, rival in RIVALS.items():
        errors, biases = (_warped_errors(part, rival, kinds) for part in (utterances, pool))
        results[name] = _summaries(errors)
        freed = {kind: e.without_bias(biases[kind].bias) for kind, e in errors.items()}
        results[f"{name}, bias removed"] = _summaries(freed)
    return results


def _warped_errors(
    utterances: Sequence[CachedUtterance], rival: Rival, kinds: int
) -> dict[str, TimeErrors]:
    """The errors of dynamic time warping, by kind of boundary."""
    errors = {kind: TimeErrors() for kind in KINDS[:kinds]}
    for utterance in utterances:
        times = warped_times(utterance, rival)
        for index, kind in enumerate(errors):
            errors[kind].add(utterance.boundaries(index), times[index])
    return errors


def list_for_dtw(heads: AlignmentHeads, pool: Sequence[CachedUtterance]) -> list[Head]:
    """The list for programs that warp time, chosen on a pool without its labels."""
    examples = [
        WarpedExample.of(
            utterance.weights[..., : utterance.whole_positions],
            utterance.spans,
            heads.times(utterance.attention(False), bounded=False),
            WHISPER_STEP,
        )
        for utterance in pool
    ]
    return choose_for_dtw(heads.heads, examples)


def measure_lists(
    heads: AlignmentHeads, warped: Sequence[Head], utterances: Sequence[CachedUtterance]
) -> dict[str, Any]:
    """The errors of dynamic time warping by lists of heads, and less those by OpenAI's list.

    Args:
        heads: Heads that were learned without labels.
        warped: The list for programs that warp time, of :func:`list_for_dtw`.
        utterances: On which the lists are tested.
    """
    likely = [head for head, probability in heads.probabilities.items() if probability > LIKELY]
    lists = {
        "openai": utterances[0].listed,
        "likely": likely,
        "chosen": heads.chosen,
        "sufficient": heads.sufficient(),
        "dtw": warped,
    }
    results: dict[str, Any] = {}
    for program in ("openai", "transformers"):
        errors = {}
        for name, listed in lists.items():
            relisted = [replace(utterance, listed=[*listed]) for utterance in utterances]
            kinds = _warped_errors(relisted, RIVALS[program], heads.model.chain.kinds)
            errors[name] = join([*kinds.values()])
        results[program] = {
            name: {
                **error.summary(),
                "heads": len(lists[name]),
                "less_openai": differences(error, errors["openai"]),
            }
            for name, error in errors.items()
        }
    return results


def _summaries(errors: dict[str, TimeErrors]) -> dict[str, Any]:
    summaries = {kind: error.summary() for kind, error in errors.items()}
    if len(errors) > 1:
        summaries["both"] = join(list(errors.values())).summary()
    return summaries
