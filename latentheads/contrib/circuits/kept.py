"""The file of a posterior over subsets of heads, and the posterior of prompts of several files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from latentheads.checks import check_instance, check_not_empty
from latentheads.contrib import kept
from latentheads.contrib.circuits.likelihoods import LogitDifference
from latentheads.contrib.circuits.posterior import CircuitPosterior
from latentheads.errors import shown
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.names import Block

FORMAT = "posterior of heads 1"

KINDS = {kind.__name__: kind for kind in (HeadPosterior, CircuitPosterior)}

SAME_SPREAD = 0.01
"""Nats by which the log-density of the whole network's logit difference may vary by rounding."""

ACCEPTED = "what circuit_posterior or lh.head_posterior returns"

P = TypeVar("P", bound=HeadPosterior)


def save_posterior(posterior: HeadPosterior, path: str | Path) -> None:
    """Writes a posterior over subsets of heads, with the log-likelihoods that it is computed from.

    An older file stays until the new one is complete.

    ::

        circuits.save_posterior(posterior, "task.posterior")
        posterior = circuits.load_posterior("task.posterior")

    Args:
        posterior: That of :func:`.circuit_posterior` or :func:`latentheads.head_posterior`.
        path: The file.

    Raises:
        ValueError: It is no posterior.
        OSError: It cannot be written.
    """
    check_instance("posterior", posterior, HeadPosterior, ACCEPTED)
    values = {field.name: getattr(posterior, field.name) for field in fields(posterior)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    facts = {name: value for name, value in values.items() if name not in tensors}
    blocks = [asdict(block) for block in posterior.blocks]
    facts |= {"class": type(posterior).__name__, "blocks": blocks}
    kept.save(path, FORMAT, tensors, facts)


def load_posterior(path: str | Path) -> HeadPosterior:
    """Reads a posterior: a :class:`.CircuitPosterior` or a :class:`.HeadPosterior`, as it was.

    Raises:
        ValueError: The file is missing, damaged, or of no posterior.
    """
    return kept.load(path, FORMAT, "a posterior over heads", _read_posterior)


def _read_posterior(tensors: dict[str, Tensor], facts: dict[str, Any]) -> HeadPosterior:
    kind: Any = KINDS[facts.pop("class")]
    facts["blocks"] = [Block(**block) for block in facts["blocks"]]
    if "chosen" in facts:
        facts["chosen"] = [(name, head) for name, head in facts["chosen"]]
    posterior: HeadPosterior = kind(**facts, **tensors)
    return posterior


def join_posteriors(posteriors: Iterable[P]) -> P:
    """The posterior of all prompts or sentences, of posteriors of some of them each.

    Args:
        posteriors: Posteriors of the same heads with the same options, such as of several machines.
            Prompts that are in two of them count twice. Nothing shows whether they are of one
            network, or means of one intervention.

    Raises:
        ValueError: They differ in their heads or options. By :class:`.LogitDifference` they do,
            unless it has a ``spread``: that of the prompts of each is another.
    """
    listed = list(posteriors)
    check_not_empty("posteriors", listed)
    first = listed[0]
    for other in listed:
        check_instance("posteriors", other, HeadPosterior, ACCEPTED)
        if type(other) is not type(first):
            kinds = f"{type(first).__name__} and {type(other).__name__}"
            raise ValueError(f"posteriors must be of one kind, got {kinds}")
        for field in fields(first):
            own, its = getattr(first, field.name), getattr(other, field.name)
            if not isinstance(own, Tensor) and own != its:
                difference = f"{field.name}, got {shown(own)} and {shown(its)}"
                raise ValueError(f"posteriors must have the same {difference}")
    rows = torch.cat([posterior.log_likelihoods for posterior in listed])
    of_spread = isinstance(first, CircuitPosterior) and first.likelihood == LogitDifference.name
    if of_spread and float(rows[:, -1].max() - rows[:, -1].min()) > SAME_SPREAD:
        raise ValueError(
            "posteriors have logit differences of several spreads: give LogitDifference one spread"
        )
    tokens = torch.cat([posterior.tokens for posterior in listed])
    return replace(first, log_likelihoods=rows, tokens=tokens)
