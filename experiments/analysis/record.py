"""Everything about runs and their heads, as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from jsonargparse import Namespace

from latentheads.corpora import Rows
from latentheads.experiments.analysis.portraits import Portrait, pair_mean
from latentheads.experiments.analysis.tables import head_figures, summary
from latentheads.experiments.analysis.texts import Text
from latentheads.names import Block
from latentheads.runs.report import finite

__all__ = ["to_json"]


def to_json(texts: Sequence[Text], portraits: Sequence[Portrait], options: Namespace) -> str:
    """Everything about all runs, and how it was made; null for what is no number."""
    said = {
        "options": {name: options[name] for name in vars(options)},
        "versions": _versions(),
        "same_text": all(text.same(texts[0]) for text in texts),
        "runs": [_record(*pair) for pair in zip(texts, portraits, strict=True)],
    }
    return json.dumps(finite(said), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _record(text: Text, portrait: Portrait) -> dict[str, Any]:
    """Everything about a run."""
    settings, syntactic, found = text.run.settings, portrait.syntactic, portrait.relevance
    return {
        "path": str(text.run.path),
        "prior": settings.prior_name,
        "guide": settings.guide_name,
        "seed": settings.seed,
        "step": text.run.step,
        "tokens": {
            "source": None if text.part.sources is None else _length(text.part.sources),
            "target": _length(text.part.targets),
        },
        "summary": summary(text, portrait),
        "blocks": [_block(portrait, block) for block in portrait.blocks],
        "ngrams": [_ngram(portrait, block) for block in portrait.ngrams],
        "relevance": found
        and {"logit": found.logit, "inputs": found.inputs, "predictions": found.predictions},
        "syntactic": syntactic
        and text.parses
        and {
            "origin": text.parses.origin,
            "sentences": len(text.parses.part),
            "cases": [
                {**asdict(case), "name": case.name, "needed": syntactic.needed(case.baseline)}
                for case in syntactic.cases
            ],
            "accuracy": {block: each.tolist() for block, each in syntactic.accuracy.items()},
            "baseline": {block: each.tolist() for block, each in syntactic.baseline.items()},
        },
        "roles": [asdict(role) for role in portrait.roles],
    }


def _length(rows: Rows) -> int:
    return int(rows.lengths.sum())


def _block(portrait: Portrait, block: Block) -> dict[str, Any]:
    """Everything about a block; lists are by head."""
    name, site = block.name, block.site()
    rare = portrait.rare[block.chain]
    cosine = portrait.measures.cosine[name]
    return {
        "block": name,
        "chain": block.chain,
        "layer": block.layer,
        "heads": block.heads,
        "divergence": portrait.divergence.summed[site].tolist(),
        "divergence_per_query": portrait.divergence.normalised[site].tolist(),
        "divergence_average": pair_mean(portrait.divergence.summed[site]),
        "cosine": cosine.tolist(),
        "cosine_average": pair_mean(cosine),
        **{key: values.tolist() for key, values in head_figures(portrait, block).items()},
        "rare_queries": rare.count[name].tolist(),
    }


def _ngram(portrait: Portrait, block: Block) -> dict[str, Any]:
    """What there is of n-gram heads, which have no weights; lists are by head."""
    cosine, found = portrait.measures.cosine[block.name], portrait.relevance
    return {
        "block": block.name,
        "chain": block.chain,
        "layer": block.layer,
        "heads": block.heads,
        "cosine": cosine.tolist(),
        "cosine_average": pair_mean(cosine),
        "importance": portrait.importance[block.name].tolist(),
        **({} if found is None else {"relevance": found.shares[block.name].tolist()}),
    }


def _versions() -> dict[str, str]:
    packages = ("latentheads", "torch", "pyro-ppl", "numpy", "matplotlib")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
