"""What heads are like in numbers: a row a run, a row a head, and what a reader has to know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jsonargparse import Namespace
from torch import Tensor

from latentheads.experiments.analysis.portraits import Portrait, others, pair_mean
from latentheads.experiments.analysis.texts import Text
from latentheads.experiments.cli.tables import markdown
from latentheads.names import CHAINS, Block
from latentheads.reading import Syntactic, role_map
from latentheads.reading.divergence import Divergence

__all__ = ["caption", "gaps", "head_figures", "head_table", "notes", "summary", "table"]


def summary(text: Text, portrait: Portrait) -> dict[str, Any]:
    """The row of a run in the table."""
    found = map(pair_mean, portrait.measures.cosine.values())
    cosines = [value for value in found if value is not None]
    return {
        "run": text.name,
        "recipe": text.run.settings.recipe,
        "corpus": text.corpus.name,
        text.part.unit: len(text.part),
        **_averages("jsd", portrait.divergence, portrait.chains),
        **_averages("jsd_per_query", portrait.normalised, portrait.chains),
        "entropy": _mean(portrait.measures.entropy),
        "confidence": _mean(portrait.measures.confidence),
        "cosine": float(np.mean(cosines)) if cosines else None,
        "heads": sum(len(portrait.speaking(block)) for block in portrait.blocks),
        "silent": portrait.silent,
        "positional": _heads(portrait, "positional"),
        "syntactic": None if portrait.syntactic is None else _heads(portrait, "syntactic"),
        "rare_word": _heads(portrait, "rare-word") if _asked(portrait) else None,
    }


def _averages(name: str, found: Divergence, chains: Sequence[str]) -> dict[str, float | None]:
    """The one number, and that of every chain."""
    by_chain = {f"{name} {chain}": found.average(chain) for chain in chains}
    return {name: found.average(), **by_chain}


def _mean(blocks: dict[str, Tensor]) -> float | None:
    """The mean over heads that speak; None where none does."""
    mean = float(torch.cat(list(blocks.values())).nanmean())
    return None if math.isnan(mean) else mean


def _heads(portrait: Portrait, kind: str) -> int:
    """So many heads play a role of a kind."""
    found = role_map(role for role in portrait.roles if role.role == kind)
    return sum(len(heads) for heads in found.values())


def head_figures(portrait: Portrait, block: Block) -> dict[str, Tensor]:
    """The quantities of which there is one a head."""
    name, rare = block.name, portrait.rare[block.chain]
    found = {
        "entropy": portrait.measures.entropy[name],
        "confidence": portrait.measures.confidence[name],
        "importance": portrait.importance[name],
    }
    if portrait.relevance is not None:
        found["relevance"] = portrait.relevance.shares[name]
        found["relevance_logits"] = portrait.relevance.raw[name]
    return found | {
        "offset": portrait.positional.offset[name],
        "offset_share": portrait.positional.share[name],
        "rarest": rare.rarest[name],
        "two_rarest": rare.two[name],
        "rare_chance": rare.chance[name],
    }


def head_table(texts: Sequence[Text], portraits: Sequence[Portrait]) -> pd.DataFrame:
    """One row a head."""
    return pd.DataFrame(
        row
        for text, portrait in zip(texts, portraits, strict=True)
        for block in portrait.blocks
        for row in _head_rows(text, portrait, block)
    )


def _head_rows(text: Text, portrait: Portrait, block: Block) -> Iterator[dict[str, Any]]:
    played = role_map(portrait.roles).get(block.name, {})
    figures = {
        "divergence": others(portrait.divergence.summed[block.site()]),
        "divergence_per_query": others(portrait.divergence.normalised[block.site()]),
        "cosine": others(portrait.measures.cosine[block.name]),
        **head_figures(portrait, block),
    }
    for head in range(block.heads):
        yield {
            "run": text.name,
            "recipe": text.run.settings.recipe,
            "block": block.name,
            "chain": block.chain,
            "layer": block.layer,
            "head": head,
            **{name: values[head].item() for name, values in figures.items()},
            **_best_relation(portrait.syntactic, block.name, head),
            "roles": "; ".join(f"{role.role} {role.detail}" for role in played.get(head, [])),
        }


def _best_relation(found: Syntactic | None, block: str, head: int) -> dict[str, Any]:
    """The relation in which a head is furthest above the baseline."""
    if found is None or block not in found.accuracy:
        return {}
    scores, baselines = found.accuracy[block][:, head], found.baseline[block][:, head]
    above = scores - baselines
    if above.isnan().all():
        return {}
    best = int(above.nan_to_num(nan=-torch.inf).argmax())
    return {
        "relation": found.cases[best].name,
        "accuracy": float(scores[best]),
        "accuracy_baseline": float(baselines[best]),
    }


TITLES = {
    "jsd": "JSD",
    **{f"jsd {chain}": chain for chain in CHAINS},
    "jsd_per_query": "JSD a query",
    "entropy": "entropy",
    "confidence": "confidence",
    "cosine": "cosine",
    "positional": "positional",
    "syntactic": "syntactic",
    "rare_word": "rare-word",
}


def table(rows: Sequence[dict[str, Any]], notes: Sequence[str]) -> str:
    """The rows of all runs as a Markdown table, and notes below it."""
    shown = {name: title for name, title in TITLES.items() if any(name in row for row in rows)}
    lines = [["run", "recipe", *shown.values()]]
    for row in rows:
        cells = [_cell(name, row.get(name)) for name in shown]
        lines.append([f"`{row['run']}`", f"`{row['recipe']}`", *cells])
    return "\n".join([markdown(lines, left=2), *(f"{note}\n" for note in notes)])


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.{2 if name.startswith('jsd') and 'query' not in name else 3}f}"


def notes(texts: Sequence[Text], portraits: Sequence[Portrait], options: Namespace) -> list[str]:
    """What a reader of the table has to know."""
    found = [
        f"{caption(texts, options)}. JSD: nats, average over head pairs of all blocks, summed over "
        "queries and averaged over sentences; a query: averaged over queries. Entropy (nats), "
        "confidence and cosine of outputs: averages over heads or head pairs. Roles: heads that "
        f"play one, of {' / '.join(str(n) for n in _sizes(portraits))}."
    ]
    if not all(text.same(texts[0]) for text in texts):
        corpora = ", ".join(f"{text.name}: {text.corpus.name}" for text in texts)
        found.append(
            f"**Warning: not all runs were read on the same tokens ({corpora}); rows of different "
            "text are no comparison.**"
        )
    parsed = dict.fromkeys(
        f"Syntactic roles: {len(text.parses.part):,} sentences parsed by {text.parses.origin}."
        for text, portrait in zip(texts, portraits, strict=True)
        if text.parses is not None and portrait.syntactic is not None
    )
    silent = [
        f"Heads of {each.name} that are silent, and left out: {each.silent}."
        for each in portraits
        if each.silent
    ]
    return [*found, *silent, *parsed, *(f"{note}." for note in gaps(portraits))]


def _sizes(portraits: Sequence[Portrait]) -> list[int]:
    """So many heads of each run speak; once if it is the same number."""
    sizes = [sum(len(each.speaking(block)) for block in each.blocks) for each in portraits]
    return sizes if len(set(sizes)) > 1 else sizes[:1]


def caption(texts: Sequence[Text], options: Namespace) -> str:
    """Says what was read."""
    heads = "Heads drawn from the guide (relevance: plug-in)" if options.draws else "Plug-in heads"
    corpora = " / ".join(dict.fromkeys(text.corpus.name for text in texts))
    number = " / ".join(dict.fromkeys(f"{len(text.part):,} {text.part.unit}" for text in texts))
    return f"{heads}, first {number} of {options.part}, {corpora}"


def gaps(portraits: Sequence[Portrait]) -> list[str]:
    """Says which roles were not looked for, and why."""
    found = []
    deaf = [each for each in portraits if each.syntactic is None]
    for why, attend in (("no parses", True), ("no head attends within the source", False)):
        names = [each.name for each in deaf if _within(each) == attend]
        if names:
            found.append(f"Syntactic roles were not looked for{_of(names, portraits)}: {why}")
    common = [each.name for each in portraits if not _asked(each)]
    if common:
        why = "every word is too frequent"
        found.append(f"Rare-word roles were not looked for{_of(common, portraits)}: {why}")
    return found


def _within(portrait: Portrait) -> bool:
    """Whether heads attend within what is parsed: the source, or a language model's own text."""
    return portrait.chains == ["decoder-self"] or "encoder-self" in portrait.chains


def _asked(portrait: Portrait) -> bool:
    """Whether there was a rare word to point to."""
    return any(bool(n.any()) for found in portrait.rare.values() for n in found.count.values())


def _of(names: Sequence[str], portraits: Sequence[Portrait]) -> str:
    return "" if len(names) == len(portraits) else f" in {', '.join(names)}"
