"""The sentences that a page shows, with their text and bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from latentheads.corpora.part import Part
from latentheads.decoding.translate import translate_part
from latentheads.inference.sentences import SentenceBounds
from latentheads.noise import fixed_noise
from latentheads.runs.generation import decode_text
from latentheads.runs.run import Run

PREFERRED_LENGTH = 12
"""Tokens of a sentence whose maps are easy to read."""

BOUNDS = ("elbo", "kl", "iwae", "exact", "plug_in")


def choose_sentences(part: Part, number: int) -> Part:
    """Selects the sentences whose longer side is closest to the preferred length, in order."""
    nearest = np.argsort(np.abs(part.lengths - PREFERRED_LENGTH), kind="stable")[:number]
    return part.take(np.sort(nearest))


def gather_texts(
    run: Run, part: Part, bounds: SentenceBounds, translations: Sequence[str | None]
) -> list[dict[str, Any]]:
    """Gathers each sentence with the run's own translation and its bounds."""
    return [
        {
            **_read_text(run, part, index),
            "hypothesis": translations[index],
            "bounds": _read_bounds(bounds, index),
        }
        for index in range(len(part))
    ]


def translate_shown(run: Run, part: Part) -> Sequence[str | None]:
    """The run's own translations; None for each sentence of a language model."""
    if run.source is None:
        return [None] * len(part)
    with fixed_noise(run.settings.seed, run.model.device):
        return translate_part(run.model, run.guide, run.target, part, run.settings.decode)


def _read_text(run: Run, part: Part, index: int) -> dict[str, str | None]:
    texts: dict[str, str | None] = dict.fromkeys(("source", "task"))
    texts["reference"] = decode_text(run.target, part.targets[index].tolist()).strip()
    if part.references:
        texts["reference"] = part.references[index]
    if run.source is not None and part.sources is not None:
        texts["source"] = run.source.decode(part.sources[index].tolist())
    if part.task is not None and part.mixture is not None:
        texts["task"] = part.mixture.names[part.task[index]]
    return texts


def _read_bounds(bounds: SentenceBounds, index: int) -> dict[str, float | str | None]:
    """The bounds of a sentence in nats per token, the Pareto k-hat, and the shared KL in nats."""
    tokens = float(bounds.tokens[index])
    nats = {name: _finite_or_none(getattr(bounds, name), index) for name in BOUNDS}
    per_token = {name: None if v is None else v / tokens for name, v in nats.items()}
    tail, shared = _pareto_k(bounds.pareto_k, index), float(bounds.shared_kl)
    return {**per_token, "tokens": tokens, "pareto_k": tail, "shared_kl": shared}


def _pareto_k(values: Tensor | None, index: int) -> float | str | None:
    """The shape of the tail; ``none`` if the largest weights are equal."""
    is_equal = values is not None and float(values[index]) == -math.inf
    return "none" if is_equal else _finite_or_none(values, index)


def _finite_or_none(values: Tensor | None, index: int) -> float | None:
    """A number; None if it is unknown or not finite."""
    value = math.nan if values is None else float(values[index])
    return value if math.isfinite(value) else None
