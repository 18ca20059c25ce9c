"""The pruning curve of a run: the order of heads, the numbers of heads, the pruned networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from latentheads.checks import check_within
from latentheads.contrib.heads.importance import gradient_importance
from latentheads.corpora.batches import batches
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Part
from latentheads.decoding.translate import TOKENS
from latentheads.experiments.pruning.networks import Pruned, pruned_folder, write_run
from latentheads.latents.active_heads import Selection
from latentheads.latents.bernoulli_heads.corpus import posterior_of_blocks
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES, attention_type_of
from latentheads.pruning import all_heads, most_important, random_importance
from latentheads.runs.run import Run

GateDistributions = Mapping[str, Selection]
By = Literal["gradient", "posterior", "gates", "random"]


def rank_heads(
    run: Run,
    part: Part,
    by: By = "gradient",
    gate_distributions: GateDistributions | None = None,
    normalise: bool = True,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Computes the importance of every head of a run, by block."""
    blocks = all_heads(run.model)
    if by == "gates":
        importance = {name: torch.ones(len(heads)) for name, heads in blocks.items()}
        return importance | {
            name: distribution.open[0] for name, distribution in (gate_distributions or {}).items()
        }
    if by == "random":
        return random_importance(blocks, seed)
    if by == "posterior":
        sentences = list(batches(part, TOKENS, shuffle=False))
        return {
            name: posterior_of_blocks(run.model, sentences, name, tau=1.0).log_odds
            if heads
            else torch.zeros(0)
            for name, heads in blocks.items()
        }
    gradients = gradient_importance(
        run.model, batches(part, TOKENS, shuffle=False), normalise=normalise
    )
    return {name: gradients.get(name, torch.zeros(0)) for name in blocks}


def count_closed(gate_distributions: GateDistributions, attention_types: Sequence[str]) -> int:
    """Counts the gates of some attention types that are closed at test time."""
    distributions = (
        distribution
        for name, distribution in gate_distributions.items()
        if attention_type_of(name) in attention_types
    )
    return sum(int((distribution.mode == 0).sum()) for distribution in distributions)


def select_stops(
    model: HeadModel,
    keep_heads: Sequence[int] = (),
    attention_types: Sequence[str] = ATTENTION_TYPES,
) -> list[int]:
    """Selects the numbers of remaining heads, in decreasing order, with all heads first.

    Args:
        model: The unpruned network.
        keep_heads: Numbers of remaining heads; by default from 90 % to 0 of the prunable heads.
        attention_types: The attention types to prune.

    Raises:
        ValueError: A number exceeds all heads, or is less than those that are not pruned.
    """
    blocks = all_heads(model)
    total = sum(map(len, blocks.values()))
    fixed = sum(
        len(heads)
        for name, heads in blocks.items()
        if attention_type_of(name) not in attention_types
    )
    for number in keep_heads:
        check_within("keep_heads", number, fixed, total)
    tenths = [fixed + (total - fixed) * tenth // 10 for tenth in range(10)]
    return sorted({total, *(keep_heads or tenths)}, reverse=True)


def prune_to(
    run: Run,
    corpus: Corpus,
    importance: Mapping[str, Tensor],
    stops: Sequence[int],
    out: Path,
    attention_types: Sequence[str] = ATTENTION_TYPES,
    by: By = "gradient",
) -> Iterator[Pruned]:
    """Prunes the network to each number of heads; writes a run folder with a report for each."""
    for heads in stops:
        kept = most_important(importance, heads, attention_types)
        yield write_run(kept, run, corpus, pruned_folder(out, heads), by)
