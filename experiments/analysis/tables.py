"""Tables of runs and of heads, with notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from latentheads.contrib.heads.alignments import UNION
from latentheads.contrib.heads.divergence import Divergence, pair_mean
from latentheads.contrib.heads.head_report import HeadReport, off_diagonal_mean
from latentheads.contrib.heads.roles import role_map
from latentheads.contrib.heads.syntactic import SyntacticHeads
from latentheads.contrib.speech.features import FRAME_SECONDS
from latentheads.contrib.speech.subsampler import FACTOR
from latentheads.experiments.analysis.texts import Text
from latentheads.experiments.cli.parser import Options
from latentheads.experiments.cli.tables import markdown
from latentheads.names import ATTENTION_TYPES, Block

if TYPE_CHECKING:
    import pandas as pd


def summary(text: Text, head_report: HeadReport) -> dict[str, Any]:
    """The row of a run in the table."""
    return {
        "run": text.name,
        "recipe": text.run.settings.recipe,
        "corpus": text.run.corpus.name,
        text.part.unit: len(text.part),
        **_averages("jsd", head_report.divergence, head_report.attention_types),
        **_averages("jsd_per_query", head_report.divergence_per_query, head_report.attention_types),
        "entropy": _mean(head_report.measures.entropy),
        "confidence": _mean(head_report.measures.confidence),
        "cosine": pair_mean(*head_report.measures.cosine.values()),
        "heads": sum(len(head_report.active_heads(block)) for block in head_report.blocks),
        "silent": head_report.inactive_heads,
        "positional": _heads(head_report, "positional"),
        "syntactic": None if head_report.syntactic is None else _heads(head_report, "syntactic"),
        "rare_word": _heads(head_report, "rare-word") if _rare_queries(head_report) else None,
    }


def _averages(
    name: str, divergence: Divergence, attention_types: Sequence[str]
) -> dict[str, float | None]:
    """The average over all attention types, and that of each."""
    averages = {f"{name} {kind}": divergence.average(kind) for kind in attention_types}
    return {name: divergence.average(), **averages}


def _mean(blocks: dict[str, Tensor]) -> float | None:
    """The mean over active heads; None without any."""
    mean = float(torch.cat(list(blocks.values())).nanmean())
    return None if math.isnan(mean) else mean


def _heads(head_report: HeadReport, kind: str) -> int:
    """The number of heads with a role of this kind."""
    roles = role_map(role for role in head_report.roles if role.role == kind)
    return sum(len(heads) for heads in roles.values())


def head_figures(head_report: HeadReport, block: Block) -> dict[str, Tensor]:
    """The measures that each head has."""
    name, rare = block.name, head_report.rare[block.attention_type]
    figures = {
        "entropy": head_report.measures.entropy[name],
        "confidence": head_report.measures.confidence[name],
        "importance": head_report.importance[name],
    }
    if head_report.relevance is not None:
        figures["relevance"] = head_report.relevance.shares[name]
        figures["relevance_logits"] = head_report.relevance.raw[name]
    return figures | {
        "offset": head_report.positional.offset[name],
        "offset_share": head_report.positional.share[name],
        "rarest": rare.rarest[name],
        "two_rarest": rare.two[name],
        "rare_chance": rare.chance[name],
    }


def head_table(texts: Sequence[Text], head_reports: Sequence[HeadReport]) -> pd.DataFrame:
    """One row per head."""
    import pandas as pd  # slow to import

    return pd.DataFrame(
        row
        for text, head_report in zip(texts, head_reports, strict=True)
        for block in head_report.blocks
        for row in _head_rows(text, head_report, block)
    )


def _head_rows(text: Text, head_report: HeadReport, block: Block) -> Iterator[dict[str, Any]]:
    roles = role_map(head_report.roles).get(block.name, {})
    figures = {
        "divergence": off_diagonal_mean(head_report.divergence.summed[block.site()]),
        "divergence_per_query": off_diagonal_mean(head_report.divergence.normalised[block.site()]),
        "cosine": off_diagonal_mean(head_report.measures.cosine[block.name]),
        **head_figures(head_report, block),
    }
    for head in range(block.heads):
        yield {
            "run": text.name,
            "recipe": text.run.settings.recipe,
            "block": block.name,
            "attention_type": block.attention_type,
            "layer": block.layer,
            "head": head,
            **{name: values[head].item() for name, values in figures.items()},
            **_best_relation(head_report.syntactic, block.name, head),
            "roles": "; ".join(f"{role.role} {role.detail}" for role in roles.get(head, [])),
        }


def _best_relation(syntactic: SyntacticHeads | None, block: str, head: int) -> dict[str, Any]:
    """The relation in which a head exceeds the baseline most."""
    if syntactic is None or block not in syntactic.accuracy:
        return {}
    scores, baselines = syntactic.accuracy[block][:, head], syntactic.baseline[block][:, head]
    above = scores - baselines
    if above.isnan().all():
        return {}
    best = int(above.nan_to_num(nan=-torch.inf).argmax())
    return {
        "relation": syntactic.cases[best].name,
        "accuracy": float(scores[best]),
        "accuracy_baseline": float(baselines[best]),
    }


TITLES = {
    "jsd": "JSD",
    **{f"jsd {kind}": kind for kind in ATTENTION_TYPES},
    "jsd_per_query": "JSD per query",
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


def link_rows(head_report: HeadReport) -> list[dict[str, Any]]:
    """One row for each distribution and head whose links are scored."""
    return [
        {
            "run": head_report.name,
            "links": score.distribution,
            "head": score.head,
            **{name: getattr(score.counts, name) for name in RATES},
            **dict(zip(("aer_low", "aer_high"), score.interval(), strict=True)),
            **asdict(score.counts),
            "sentences": len(score.by_sentence),
        }
        for score in head_report.links
    ]


RATES = {"aer": "AER", "precision": "precision", "recall": "recall", "f1": "F1"}


def link_table(head_reports: Sequence[HeadReport], part: str) -> str:
    """The links of all runs against gold links, with notes; empty without gold links."""
    rows = [row for head_report in head_reports for row in link_rows(head_report)]
    lines = [["run", "links of", "head", "AER [95 %]", *list(RATES.values())[1:]]]
    for row in rows:
        aer, *rates = (f"{row[name]:.3f}" for name in RATES)
        if not math.isnan(row["aer_low"]):
            aer += f" [{row['aer_low']:.3f}, {row['aer_high']:.3f}]"
        lines.append([f"`{row['run']}`", row["links"], row["head"], aer, *rates])
    parts = [markdown(lines, left=3), f"{_explain_links(head_reports, part)}\n"] if rows else []
    parts += [
        f"{_describe_fall(report)}\n" for report in head_reports if report.shuffled is not None
    ]
    return "\n".join(parts)


def _describe_fall(head_report: HeadReport) -> str:
    """Describes the decrease of a guide's bound when it is conditioned on other targets."""
    shuffled = head_report.shuffled
    assert shuffled is not None
    return (
        f"Conditioned on another sentence's target, the guide of {head_report.name} has a bound of "
        f"{shuffled.shuffled:.4f} nats per token instead of {shuffled.elbo:.4f}, a decrease of "
        f"{shuffled.fall:z.4f}."
    )


def _explain_links(head_reports: Sequence[HeadReport], part: str) -> str:
    """Explains the table of links."""
    several = any(
        score.head == UNION for head_report in head_reports for score in head_report.links
    )
    union = f" {UNION.capitalize()}: the links of all heads of a word." if several else ""
    chosen = " and scored there, so that its AER is too low" if part == "valid" else ""
    return (
        "Links: each target word's likeliest source word, against those of the grammar, all of "
        "them sure, so that AER is 1 - F1; its interval is over sentences, and too narrow for "
        f"fewer than 30.{union} Attention: the cross-attention head of the lowest AER on "
        f"validation{chosen}; before: at the position that predicts the word, after: one position "
        "later, where the word is the input. Other heads are at their location."
    )


def notes(texts: Sequence[Text], head_reports: Sequence[HeadReport], options: Options) -> list[str]:
    """Notes for the reader of the table."""
    lines = [
        f"{caption(texts, options)}. JSD: nats, average over head pairs of all blocks, summed over "
        f"queries and averaged over {texts[0].part.unit}; per query: averaged over queries. "
        "Entropy (nats), confidence and cosine of outputs: averages over heads or head pairs. "
        f"Roles: heads with the role, of {' / '.join(str(n) for n in _active_heads(head_reports))}."
    ]
    if warning := warn_of_texts(texts):
        corpora = ", ".join(f"{text.name}: {text.run.corpus.name}" for text in texts)
        lines.append(f"**{warning} ({corpora}); rows of different text are not comparable.**")
    parsed = dict.fromkeys(
        f"Syntactic roles: sentences parsed by {text.parses.origin}: {len(text.parses.part):,}."
        for text, head_report in zip(texts, head_reports, strict=True)
        if text.parses is not None and head_report.syntactic is not None
    )
    inactive = [
        f"Inactive heads of {report.name}, which are excluded: {report.inactive_heads}."
        for report in head_reports
        if report.inactive_heads
    ]
    queries = " / ".join(str(number) for number in map(_rare_queries, head_reports) if number)
    rare = [f"Rare-word roles: of at most {queries} queries of a head."] if queries else []
    return [*lines, *inactive, *parsed, *rare, *(f"{note}." for note in gaps(texts, head_reports))]


def _active_heads(head_reports: Sequence[HeadReport]) -> list[int]:
    """The number of active heads of each run; one number if it is the same."""
    sizes = [
        sum(len(head_report.active_heads(block)) for block in head_report.blocks)
        for head_report in head_reports
    ]
    return sizes if len(set(sizes)) > 1 else sizes[:1]


def caption(texts: Sequence[Text], options: Options) -> str:
    """Describes the heads and the text of the analysis."""
    heads = "Plug-in heads"
    if options.num_samples:
        times = f", {options.num_samples} samples of each" if options.num_samples > 1 else ""
        heads = f"Heads sampled from the guide{times} (relevance: plug-in)"
    return f"{heads}, {describe_text(texts, options)}"


def describe_text(texts: Sequence[Text], options: Options) -> str:
    """Describes the text of the analysis."""
    corpora = " / ".join(dict.fromkeys(text.run.corpus.name for text in texts))
    number = " / ".join(dict.fromkeys(f"{len(text.part):,} {text.part.unit}" for text in texts))
    return f"first {number} of {options.part}, {corpora}"


def warn_of_texts(texts: Sequence[Text]) -> str:
    """A warning of runs that are not of the same text; empty for runs of one text."""
    same = all(text.same(texts[0]) for text in texts)
    return "" if same else "Warning: not all runs were analysed on the same tokens"


def gaps(texts: Sequence[Text], head_reports: Sequence[HeadReport]) -> list[str]:
    """Notes what offsets are in sound, and which roles were not detected, and why."""
    lines = []
    if not all(text.run.processor.reads_text for text in texts):
        step = f"{1000 * FACTOR * FRAME_SECONDS:.0f} ms"
        lines.append(
            f"Offsets in sound are in steps of {step}, and from tokens to sound without a unit"
        )
    without_roles = [head_report for head_report in head_reports if head_report.syntactic is None]
    for reason, attend in (("no parses", True), ("no head attends within the source", False)):
        names = [
            head_report.name for head_report in without_roles if _within(head_report) == attend
        ]
        if names:
            lines.append(
                f"Syntactic roles were not detected{_in_runs(names, head_reports)}: {reason}"
            )
    without_rare_words = [
        head_report.name for head_report in head_reports if not _rare_queries(head_report)
    ]
    if without_rare_words:
        reason = "every word is too frequent"
        lines.append(
            f"Rare-word roles were not detected{_in_runs(without_rare_words, head_reports)}: "
            f"{reason}"
        )
    return lines


def _within(head_report: HeadReport) -> bool:
    """Whether heads attend within the parsed text: the source, or a language model's own text."""
    types = head_report.attention_types
    return types == ["decoder-self"] or "encoder-self" in types


def _rare_queries(head_report: HeadReport) -> int:
    """The most queries of a head that have a rare word to attend to."""
    counts = (count for rarity in head_report.rare.values() for count in rarity.count.values())
    return max((number for count in counts for number in count.tolist()), default=0)


def _in_runs(names: Sequence[str], head_reports: Sequence[HeadReport]) -> str:
    return "" if len(names) == len(head_reports) else f" in {', '.join(names)}"
