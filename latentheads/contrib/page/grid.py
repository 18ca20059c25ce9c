"""Measures with one value per head, and the divergence of every pair of heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from latentheads.contrib.heads.divergence import PAIR_BATCH_TOKENS, Divergence, divergence
from latentheads.contrib.heads.head_report import off_diagonal_mean
from latentheads.contrib.heads.importance import gradient_importance
from latentheads.contrib.heads.measures import measure
from latentheads.contrib.heads.record import Recording
from latentheads.corpora.batches import batches
from latentheads.corpora.part import Part
from latentheads.files import finite
from latentheads.latents.handlers import WithSelection
from latentheads.latents.selection.sharing import selection_probabilities
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

Values = Mapping[str, Tensor]


def list_blocks(run: Run) -> list[Block]:
    """The blocks of a run by attention type, bottom to top, those above the decoder last."""
    blocks = sorted(
        Recording(run.model).blocks,
        key=lambda b: (ATTENTION_TYPES.index(b.attention_type), b.layer),
    )
    heads = run.model.output_heads
    return [*blocks, *([] if heads is None else heads.addresses)]


def gather_grid(run: Run, part: Part, divergences: Divergence) -> dict[str, Any]:
    """Gathers all measures with one value per head or per block.

    Heads are set to their prior's location, and are those that the guide selects. KL and gap are
    read from the report of the whole test part, under the run's guide.
    """
    blocks, model = list_blocks(run), run.model
    attention_names = {block.name for block in blocks if block.attention_type == ALIGNMENT}
    attention_names |= {block.name for block in Recording(model).attention_blocks}
    with WithSelection(run.guide):
        measures = measure(model, batches(part, PAIR_BATCH_TOKENS, shuffle=False))
        importance = gradient_importance(model, batches(part, PAIR_BATCH_TOKENS, shuffle=False))
    disagreement = {
        block_of(site): off_diagonal_mean(matrix) for site, matrix in divergences.normalised.items()
    }
    values_of_heads = {
        "entropy": measures.entropy,
        "confidence": measures.confidence,
        "disagreement": disagreement,
        "importance": importance,
        "active": _shared_probabilities(selection_probabilities(run.guide), blocks),
    }
    grid = {"kl": _read_sites(run, "kl"), "gap": _read_sites(run, "gap")}
    for name, values in values_of_heads.items():
        grid[name] = {block: _to_list(tensor) for block, tensor in values.items()}
    return {
        "blocks": [
            {
                "name": block.name,
                "chain": block.attention_type,
                "layer": block.layer,
                "heads": block.heads,
                "attends": block.name in attention_names,
            }
            for block in blocks
        ],
        "values": {name: values for name, values in grid.items() if _has_number(values)},
    }


def gather_pairs(divergences: Divergence) -> dict[str, Any]:
    """Gathers the divergence of head pairs in nats per query; null for inactive heads.

    Empty if no head is active.
    """
    matrices = {site: matrix for site, matrix in divergences.normalised.items() if len(matrix) > 1}
    if all(matrix.isnan().all() for matrix in matrices.values()):
        return {}
    order = sorted(
        matrices, key=lambda site: (ATTENTION_TYPES.index(attention_type_of(site)), layer_of(site))
    )
    return {block_of(site): [_to_list(row) for row in matrices[site]] for site in order}


def measure_distances(run: Run, part: Part) -> Divergence:
    """Computes the divergence between the heads of all attention blocks on some sentences."""
    with WithSelection(run.guide):
        return divergence(run.model, batches(part, PAIR_BATCH_TOKENS, shuffle=False), latent=False)


def _read_sites(run: Run, name: str) -> dict[str, list[float | None]]:
    """The KL or the gap of every latent block, one value for all its heads."""
    results = run.results
    if results is None:
        return {}
    by_site = results.kl_by_site if name == "kl" else results.gap_by_site
    fixed = {site for site, how in results.kl_how.items() if how == "fixed"}
    return {
        block_of(site): [value]
        for site, value in by_site.items()
        if site not in fixed and latent_of(site) != SELECTION
    }


def _shared_probabilities(probabilities: Values, blocks: list[Block]) -> dict[str, Tensor]:
    """The probability that a head is active, if sentences share it and heads are not candidates."""
    sizes = {block.name: block.heads for block in blocks}
    return {name: p[0] for name, p in probabilities.items() if p.shape == (1, sizes.get(name))}


def _to_list(row: Tensor) -> list[float | None]:
    """Numbers for JSON, which has no NaN."""
    numbers: list[float | None] = finite(row.to(torch.float64).tolist())
    return numbers


def _has_number(values: Mapping[str, list[float | None]]) -> bool:
    return any(value is not None for row in values.values() for value in row)
