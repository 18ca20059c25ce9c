"""The curve of a run that loses its heads: which go first, how many stay, and what is then left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from latentheads.analysis import gradient_importance
from latentheads.corpora import Corpus, Part, batches
from latentheads.decoding.translate import TOKENS
from latentheads.experiments.pruning.networks import Pruned, folder_of, smaller, write_run
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES, attention_type_of
from latentheads.pruning import all_heads, most_important, random_importance
from latentheads.runs.run import Run
from latentheads.selection.hard_concrete import HardConcrete

__all__ = ["By", "Laws", "count_closed", "find_stops", "prune_to", "rank_heads"]

Laws = Mapping[str, HardConcrete]
By = Literal["gradient", "gates", "random"]


def rank_heads(
    run: Run,
    part: Part,
    by: By = "gradient",
    laws: Laws | None = None,
    normalise: bool = True,
    seed: int = 0,
) -> dict[str, Tensor]:
    """The importance of every head of a run, by block.

    Args:
        run: The run.
        part: What gradients are taken on.
        by: What makes a head important; see ``prune.py``.
        laws: Those of the gates, as :func:`latentheads.pruning.fold_gates` returns them.
        normalise: Divide importance by its norm over the heads of a block.
        seed: Of chance.
    """
    everything = all_heads(run.model)
    if by == "gates":
        ones = {name: torch.ones(len(heads)) for name, heads in everything.items()}
        return ones | {name: law.open_logit[0].sigmoid() for name, law in (laws or {}).items()}
    if by == "random":
        return random_importance(everything, seed)
    found = gradient_importance(run.model, batches(part, TOKENS), normalise=normalise)
    return {name: found.get(name, torch.zeros(0)) for name in everything}


def count_closed(laws: Laws, chains: Sequence[str]) -> int:
    """How many gates of some chains are closed at test time."""
    own = (law for name, law in laws.items() if attention_type_of(name) in chains)
    return sum(int((law.mode == 0).sum()) for law in own)


def find_stops(
    model: HeadModel, keep_heads: Sequence[int] = (), chains: Sequence[str] = ATTENTION_TYPES
) -> list[int]:
    """The numbers of heads to stop at, largest first, the whole network before them.

    Args:
        model: The whole network.
        keep_heads: How many stay, each in its turn; none: from nine tenths down to none of those
            that may go.
        chains: Those whose heads may go.

    Raises:
        ValueError: A number is more than there are, or less than those that may not go.
    """
    there = all_heads(model)
    total = sum(map(len, there.values()))
    fixed = sum(
        len(heads) for name, heads in there.items() if attention_type_of(name) not in chains
    )
    for number in keep_heads:
        if not fixed <= number <= total:
            raise ValueError(f"keep_heads must lie between {fixed} and {total}, got {number}")
    tenths = [fixed + (total - fixed) * tenth // 10 for tenth in range(10)]
    return sorted({total, *(keep_heads or tenths)}, reverse=True)


def prune_to(
    run: Run,
    corpus: Corpus,
    importance: Mapping[str, Tensor],
    stops: Sequence[int],
    out: Path,
    chains: Sequence[str] = ATTENTION_TYPES,
    by: By = "gradient",
) -> Iterator[Pruned]:
    """The network with each number of its heads, reported on in a run folder of its own.

    Args:
        run: The run; it stays as it is.
        corpus: What is reported on.
        importance: Of every head; the least go.
        stops: Heads that stay.
        out: Where the folders go.
        chains: Those whose heads may go.
        by: What made a head important, for the record.
    """
    for heads in stops:
        found = smaller(run, most_important(importance, heads, chains))
        write_run(found, run, corpus, folder_of(out, heads), by)
        yield found
