"""All results about runs and their heads, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from latentheads.contrib.heads.divergence import pair_mean
from latentheads.contrib.heads.head_report import HeadReport
from latentheads.corpora.rows import Rows
from latentheads.experiments.analysis.tables import head_figures, link_rows, summary
from latentheads.experiments.analysis.texts import Text
from latentheads.experiments.cli.parser import Options
from latentheads.files import format_json
from latentheads.names import Block
from latentheads.packages import package_versions


def to_json(texts: Sequence[Text], head_reports: Sequence[HeadReport], options: Options) -> str:
    """All results of all runs, with options and versions; NaN becomes null."""
    record = {
        "options": vars(options),
        "versions": package_versions(),
        "same_text": all(text.same(texts[0]) for text in texts),
        "runs": [_record(*pair) for pair in zip(texts, head_reports, strict=True)],
    }
    return format_json(record)


def _record(text: Text, head_report: HeadReport) -> dict[str, Any]:
    """All results of a run."""
    settings, syntactic, relevance = text.run.settings, head_report.syntactic, head_report.relevance
    shuffled = head_report.shuffled
    return {
        "path": str(text.run.path),
        "prior": settings.pair.prior_name,
        "guide": settings.pair.guide_name,
        "seed": settings.seed,
        "step": text.run.step,
        "tokens": {
            "source": None if text.part.sources is None else _length(text.part.sources),
            "target": _length(text.part.targets),
        },
        "summary": summary(text, head_report),
        "blocks": [_block(head_report, block) for block in head_report.blocks],
        "ngrams": [_ngram(head_report, block) for block in head_report.ngrams],
        "relevance": relevance
        and {
            "logit": relevance.logit,
            "inputs": relevance.inputs,
            "predictions": relevance.predictions,
        },
        "syntactic": syntactic
        and text.parses
        and {
            "origin": text.parses.origin,
            "sentences": len(text.parses.part),
            "cases": [
                {**asdict(case), "name": case.name, "needed": syntactic.needed(case.baseline)}
                for case in syntactic.cases
            ],
            "accuracy": {block: values.tolist() for block, values in syntactic.accuracy.items()},
            "baseline": {block: values.tolist() for block, values in syntactic.baseline.items()},
        },
        "roles": [asdict(role) for role in head_report.roles],
        "links": link_rows(head_report),
        "shuffled_target": shuffled and {**asdict(shuffled), "fall": shuffled.fall},
    }


def _length(rows: Rows) -> int:
    return int(rows.lengths.sum())


def _block(head_report: HeadReport, block: Block) -> dict[str, Any]:
    """All results of an attention block; lists are by head."""
    name, site = block.name, block.site()
    rare = head_report.rare[block.attention_type]
    cosine = head_report.measures.cosine[name]
    return {
        "block": name,
        "attention_type": block.attention_type,
        "layer": block.layer,
        "heads": block.heads,
        "divergence": head_report.divergence.summed[site].tolist(),
        "divergence_per_query": head_report.divergence.normalised[site].tolist(),
        "divergence_average": pair_mean(head_report.divergence.summed[site]),
        "cosine": cosine.tolist(),
        "cosine_average": pair_mean(cosine),
        **{key: values.tolist() for key, values in head_figures(head_report, block).items()},
        "rare_queries": rare.count[name].tolist(),
    }


def _ngram(head_report: HeadReport, block: Block) -> dict[str, Any]:
    """The results of n-gram heads, which have no attention weights; lists are by head."""
    cosine, relevance = head_report.measures.cosine[block.name], head_report.relevance
    return {
        "block": block.name,
        "attention_type": block.attention_type,
        "layer": block.layer,
        "heads": block.heads,
        "cosine": cosine.tolist(),
        "cosine_average": pair_mean(cosine),
        "importance": head_report.importance[block.name].tolist(),
        **({} if relevance is None else {"relevance": relevance.shares[block.name].tolist()}),
    }
