"""One figure for every head, and one for every two heads of a block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from latentheads.analysis.divergence import PAIR_BATCH_TOKENS, Divergence, divergence
from latentheads.analysis.head_report import off_diagonal_mean
from latentheads.analysis.importance import gradient_importance
from latentheads.analysis.measures import measure
from latentheads.analysis.record import Recording
from latentheads.corpora import Part, batches
from latentheads.guide import WithSelection
from latentheads.names import (
    ALIGNMENT,
    ATTENTION_TYPES,
    SELECTION,
    Block,
    attention_type_of,
    block_of,
    latent_of,
    layer_of,
)
from latentheads.runs.run import Run
from latentheads.selection.sharing import selection_probabilities
from latentheads.values import finite

__all__ = ["gather_grid", "gather_pairs", "list_blocks"]

Values = Mapping[str, Tensor]


def list_blocks(run: Run) -> list[Block]:
    """The blocks of a run, chain by chain and bottom to top, those of alignments last."""
    blocks = sorted(
        Recording(run.model).blocks, key=lambda b: (ATTENTION_TYPES.index(b.chain), b.layer)
    )
    aligner = run.model.alignments
    return [*blocks, *([] if aligner is None else aligner.addresses)]


def gather_grid(run: Run, part: Part, apart: Divergence) -> dict[str, Any]:
    """Every quantity of which each head, or each block, has one figure.

    Heads stand at their prior's location, and are those that the guide selects. KL and gap are not
    measured here: they are what the run reported of its whole test part, under its guide.

    Args:
        run: The run.
        part: The sentences that heads are read on.
        apart: How far apart they are on them.
    """
    blocks, model = list_blocks(run), run.model
    attention_blocks = {block.name for block in blocks if block.chain == ALIGNMENT}
    attention_blocks |= {block.name for block in Recording(model).attention_blocks}
    with WithSelection(run.guide):
        measures = measure(model, batches(part, PAIR_BATCH_TOKENS))
        importance = gradient_importance(model, batches(part, PAIR_BATCH_TOKENS))
    distances = {block_of(site): off_diagonal_mean(each) for site, each in apart.normalised.items()}
    of_heads = {
        "entropy": measures.entropy,
        "confidence": measures.confidence,
        "disagreement": distances,
        "importance": importance,
        "speaks": _fit_blocks(selection_probabilities(run.guide), blocks),
    }
    found = {name: _to_lists(values) for name, values in of_heads.items()}
    found = {"kl": _read_sites(run, "kl"), "gap": _read_sites(run, "gap"), **found}
    return {
        "blocks": [_describe_block(block, block.name in attention_blocks) for block in blocks],
        "values": {name: values for name, values in found.items() if _has_number(values)},
    }


def gather_pairs(apart: Divergence) -> dict[str, Any]:
    """How far apart the heads of each block are, in nats a query; null of a silent head.

    Nothing where no head speaks.
    """
    wide = {site: each for site, each in apart.normalised.items() if len(each) > 1}
    if all(each.isnan().all() for each in wide.values()):
        return {}
    order = sorted(
        wide, key=lambda site: (ATTENTION_TYPES.index(attention_type_of(site)), layer_of(site))
    )
    return {block_of(site): [_to_list(row) for row in wide[site]] for site in order}


def measure_distances(run: Run, part: Part) -> Divergence:
    """How far apart the heads of each block that attends are, on some sentences."""
    with WithSelection(run.guide):
        return divergence(run.model, batches(part, PAIR_BATCH_TOKENS), latent=False)


def _describe_block(block: Block, attends: bool) -> dict[str, Any]:
    found = {"name": block.name, "chain": block.chain, "layer": block.layer, "heads": block.heads}
    return {**found, "attends": attends}


def _read_sites(run: Run, name: str) -> dict[str, list[float | None]]:
    """The KL or the gap of every block that draws, one figure for all its heads."""
    results = run.results
    if results is None:
        return {}
    by_site = results.kl_by_site if name == "kl" else results.gap_by_site
    fixed = {site for site, how in results.kl_how.items() if how == "fixed"}
    own = {site: v for site, v in by_site.items() if site not in fixed and _is_of_heads(site)}
    return {block_of(site): [value] for site, value in own.items()}


def _is_of_heads(site: str) -> bool:
    """Whether a site is of heads themselves, and not of which of them speak."""
    return latent_of(site) != SELECTION


def _fit_blocks(chances: Values, blocks: list[Block]) -> dict[str, Tensor]:
    """The probability that a head speaks, where all sentences share it and no head is a choice."""
    sizes = {block.name: block.heads for block in blocks}
    return {name: p[0] for name, p in chances.items() if p.shape == (1, sizes.get(name))}


def _to_lists(values: Values) -> dict[str, list[float | None]]:
    return {name: _to_list(each) for name, each in values.items()}


def _to_list(row: Tensor) -> list[float | None]:
    """Numbers for JSON, which knows no NaN."""
    found: list[float | None] = finite(row.to(torch.float64).tolist())
    return found


def _has_number(values: Mapping[str, list[float | None]]) -> bool:
    return any(value is not None for row in values.values() for value in row)
