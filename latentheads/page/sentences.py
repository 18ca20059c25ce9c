"""The sentences that a page shows: which they are, their text and their bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from latentheads.corpora import Part
from latentheads.decoding.translate import translate_part
from latentheads.inference.sentences import SentenceBounds
from latentheads.noise import fixed_noise
from latentheads.runs.generation import decode_text
from latentheads.runs.run import Run

__all__ = ["choose_sentences", "gather_texts"]

LENGTH = 12
"""Tokens of a sentence that is seen at a glance."""

BOUNDS = ("elbo", "kl", "iwae", "exact", "plug_in")


def choose_sentences(part: Part, number: int) -> Part:
    """The sentences whose longer side is nearest to a length that the eye takes in, in order."""
    nearest = np.argsort(np.abs(part.lengths - LENGTH), kind="stable")[:number]
    return part.take(np.sort(nearest))


def gather_texts(run: Run, part: Part, bounds: SentenceBounds) -> list[dict[str, Any]]:
    """Each sentence beside the run's own translation and its bound.

    Args:
        run: The run.
        part: The sentences.
        bounds: Their bounds.
    """
    written = _translate(run, part)
    return [
        {
            **_read_text(run, part, place),
            "hypothesis": written[place],
            "bounds": _read_bounds(bounds, place),
        }
        for place in range(len(part))
    ]


def _translate(run: Run, part: Part) -> Sequence[str | None]:
    """The run's own translations; None of each sentence of a language model."""
    if run.source is None:
        return [None] * len(part)
    with fixed_noise(run.settings.seed, run.model.device):
        return translate_part(run.model, run.guide, run.target, part, run.settings.decode)


def _read_text(run: Run, part: Part, place: int) -> dict[str, str | None]:
    found: dict[str, str | None] = dict.fromkeys(("source", "task"))
    found["reference"] = decode_text(run.target, part.targets[place].tolist()).strip()
    if part.references:
        found["reference"] = part.references[place]
    if run.source is not None and part.sources is not None:
        found["source"] = run.source.decode(part.sources[place].tolist())
    if part.task is not None and part.mixture is not None:
        found["task"] = part.mixture.names[part.task[place]]
    return found


def _read_bounds(bounds: SentenceBounds, place: int) -> dict[str, float | str | None]:
    """The figures of a sentence in nats a token, k-hat, and in nats what all sentences share."""
    tokens = float(bounds.tokens[place])
    nats = {name: _pick(getattr(bounds, name), place) for name in BOUNDS}
    found = {name: None if value is None else value / tokens for name, value in nats.items()}
    tail, shared = _pick_tail(bounds.pareto_k, place), float(bounds.shared_kl)
    return {**found, "tokens": tokens, "pareto_k": tail, "shared_kl": shared}


def _pick_tail(values: Tensor | None, place: int) -> float | str | None:
    """The shape of a tail; ``none`` where the largest weights are equal."""
    equal = values is not None and float(values[place]) == -math.inf
    return "none" if equal else _pick(values, place)


def _pick(values: Tensor | None, place: int) -> float | None:
    """A number; None where it is not known."""
    value = math.nan if values is None else float(values[place])
    return value if math.isfinite(value) else None
