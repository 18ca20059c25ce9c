"""Tables of results as aligned text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from latentheads.inference.display import name_row
from latentheads.latents.options import LatentOptions
from latentheads.latents.registry import LATENTS
from latentheads.metrics.compared import METRICS
from latentheads.metrics.scores import (
    SCORES,
    Scores,
    describe,
    format_perplexity,
    format_value,
    is_below_prior,
    is_uninformed,
    shown_names,
    truth_coverage,
)
from latentheads.names import (
    ALIGNED_POSITION,
    ALIGNMENT,
    ATTENTION_TYPES,
    SELECTION,
    attention_type_of,
    latent_of,
)
from latentheads.runs.results import Perplexity, Results

Row = tuple[str, ...]

COLUMNS = 100
"""Columns of a terminal that a table fits into, where no cell is wider."""

PLUG_IN = "plug-in: {how}, which is another model; its log p is not a bound"

HEAD_DIVERGENCE = "divergence of heads (Jensen-Shannon)"
"""The title of the row of how far apart heads are."""

BELOW_PRIOR = "the guide's bound is below that of its model's prior: guide tied would lose less"

UNINFORMED = "the target reveals little about the latents: their posterior is near the prior"


def aligned(rows: list[Row]) -> str:
    """Aligns columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def packed(rows: Sequence[Sequence[str]], names: int) -> str:
    """Aligned tables of at most ``COLUMNS``, each beginning with the first ``names`` columns."""
    columns = list(zip(*rows, strict=True))
    shared, parts = columns[:names], [columns[names : names + 1]]
    for column in columns[names + 1 :]:
        wide = [*shared, *parts[-1], column]
        if sum(2 + max(map(len, cells)) for cells in wide) - 2 > COLUMNS:
            parts.append([])
        parts[-1].append(column)
    tables = [aligned(list(zip(*shared, *part, strict=True))) for part in parts]
    return "\n\n".join(tables) + "\n"


def quoted(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows of a table with the name of each, which comes first, as code; titles stay."""
    titles, *others = map(list, rows)
    return [titles, *([f"`{name}`", *cells] for name, *cells in others)]


def markdown(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Rows as a Markdown table, their titles first; the first columns are aligned to the left."""
    titles, *others = ["| " + " | ".join(row) + " |" for row in rows]
    sides = "|" + "---|" * left + "---:|" * (len(rows[0]) - left)
    return "\n".join([titles, sides, *others]) + "\n"


def result_table(results: Results, verbose: bool = False) -> str:
    """The one table a run prints, in nats per token unless a row names another unit.

    A score that is not known, as the truth of a text with an unknown word, leaves its cell empty.
    """
    rows: list[Row] = [("nats per token", "valid", "test")]
    for name in shown_names([*results.parts.values()]):
        rows += _rows_before(name, results)
        rows.append(name_row(name, results.parts))
        rows += _rows_behind(name, results)
    rows += _perplexity_rows(results.perplexity)
    rows += _divergence_rows(results) if verbose else []
    for name, facts in results.latents.items():
        rows += LATENTS[name].rows(facts)
    rows.append(("parameters", "", f"{results.parameters:,}"))
    rows += _weights_rows(results)
    speed = results.tokens_per_second
    rows.append(("training, tokens/s", "", "" if speed is None else f"{speed:,.0f}"))
    return "\n".join([aligned(rows), *_notes(results)])


def explanations(results: Results) -> str:
    """What each row of the table means."""
    infos = [describe(name) for name in shown_names([*results.parts.values()])]
    lines = [f"{info.title}: {info.meaning}" for info in infos if info.meaning]
    if results.head_divergence is not None:
        lines.append(
            f"{HEAD_DIVERGENCE}: of the plug-in heads of a block, in nats; a mean over pairs and "
            "sentences of what is summed over the queries of a sentence, 0: equal"
        )
    return "\n".join(lines).format(k=results.test.iwae_k)


def _is_deterministic(results: Results) -> bool:
    """Whether no latent has noise."""
    return {*results.kl_how.values()} <= {"fixed"}


def _rows_before(name: str, results: Results) -> list[Row]:
    """How the lines were written, before the first of their metrics."""
    if name != next(
        (score_name for score_name in results.test if describe(score_name).kind == "metric"), None
    ):
        return []
    return [(f"decoding: {_name_search(results)}", "", "")]


def _rows_behind(name: str, results: Results) -> list[Row]:
    """What belongs to a score: the KL of each attention type, how it was computed."""
    if name == "kl":
        return _kl_rows(_not_fixed(results), _name_selecting(results))
    if name == "truth":
        return _true_log_prob_rows(results.parts)
    if name == "wer" and results.test.elbo is not None:  # else its part of the report has failed
        tokens, words = results.test.tokens or 0, results.test.words or 0
        nats = format_value(results.test.elbo * tokens / max(words, 1))
        return [*_signature(name, results), ("  bound (ELBO), nats per word", "", nats)]
    return _signature(name, results)


def _signature(name: str, results: Results) -> list[Row]:
    row = results.test.row(name)
    return [(f"  {row.signature}", "", "")] if row is not None and row.signature else []


def _true_log_prob_rows(parts: Mapping[str, Scores]) -> list[Row]:
    """The number of sentences with a true log p, unless all have one."""
    if not any(map(truth_coverage, parts.values())):
        return []
    counts = [(scores.truth_sentences, scores.sentences) for scores in parts.values()]
    cells = ["" if None in count else "{:,} of {:,}".format(*count) for count in counts]
    return [("  sentences that it is known of", *cells)]


def _notes(results: Results) -> list[str]:
    """What a word of the table means."""
    shown = shown_names([*results.parts.values()])
    plug_in = "plug_in" in shown or "plug-in" in _name_search(results)
    note = PLUG_IN.format(how=_name_plug_in(results))
    untranslated = [f"no translations: {why}"] if (why := results.not_translated) else []
    notes = [note] * plug_in + [BELOW_PRIOR] * is_below_prior(results.test)
    return notes + [UNINFORMED] * is_uninformed(results.test) + untranslated


def _name_plug_in(results: Results) -> str:
    """What the plug-in network does with the latents that have noise."""
    selects = {latent_of(site) == SELECTION for site in _not_fixed(results)}
    kinds = [LatentOptions] * (False in selects or not selects)
    kinds += [LATENTS[_name_selecting(results)]] * (True in selects)
    return " and ".join(kind.plug_in for kind in kinds)


def _divergence_rows(results: Results) -> list[Row]:
    """How far apart the heads of a block are."""
    if results.head_divergence is None:
        return []
    by_type = results.head_divergence_by_attention_type.items()
    return [
        (
            HEAD_DIVERGENCE,
            f"{results.head_divergence:.2f}",
            "",
        ),
        *((f"    {name}", f"{value:.2f}", "") for name, value in by_type if value is not None),
    ]


def _not_fixed(results: Results) -> dict[str, float | None]:
    """The KL of every site that has noise."""
    how = results.kl_how
    return {site: kl for site, kl in results.kl_by_site.items() if how.get(site) != "fixed"}


def _weights_rows(results: Results) -> list[Row]:
    """Which of the weights of training the scores are of."""
    step, steps = results.reported_step, results.steps
    if not (step and steps):
        return []
    if results.averaged > 1:
        label = f"weights, mean of {results.averaged} checkpoints: up to step"
        return [(label, "", f"{step:,}")]
    return [("weights of step", "", f"{step:,} of {steps:,}")]


PERPLEXITIES = {
    "exact": "perplexity, exact",
    "plug_in": "perplexity, plug-in",
    "elbo": "perplexity from the bound",
    "iwae": "perplexity from IWAE_{k}",
}


def _perplexity_rows(perplexities: Sequence[Perplexity]) -> list[Row]:
    """A row for each kind of perplexity and way to cut the text; by words where these differ."""
    rows: list[Row] = []
    for valid, test in zip(perplexities[::2], perplexities[1::2], strict=True):
        rows.append((f"  by {valid.mode}", "", ""))
        for name in _perplexities_of(test.token):
            title = PERPLEXITIES[name].format(k=test.iwae_k)
            by_token = valid.token[name], test.token[name]
            rows.append((f"    {title}", *map(format_perplexity, by_token)))
            if test.word and test.word != test.token:
                by_word = valid.word[name], test.word[name]
                rows.append((f"    {title}, by word", *map(format_perplexity, by_word)))
    return rows


def _perplexities_of(perplexities: Mapping[str, Any]) -> list[str]:
    """The kinds that are shown: beside the exact one neither that of the plug-in nor of samples."""
    left_out = ("plug_in", "iwae") if "exact" in perplexities else ("exact",)
    return [name for name in PERPLEXITIES if name not in left_out]


def _name_search(results: Results) -> str:
    """How the test part was decoded."""
    decoding = results.decoding
    if not decoding:
        return ""
    heads = f"{decoding['num_samples']} samples" if decoding["num_samples"] else "plug-in heads"
    if results.test.exact is not None:
        heads = "no latents" if _is_deterministic(results) else "latents summed out"
    beams = decoding["num_beams"]
    return f"{heads}, beam {beams}" if beams > 1 else f"{heads}, greedy"


def _name_selecting(results: Results) -> str:
    """The name of the latent that decides which heads are active."""
    return next((name for name in results.latents if LATENTS[name].kind.selects_heads), SELECTION)


def _kl_rows(kl_by_site: dict[str, float | None], selecting: str) -> list[Row]:
    """KL of the logits and other latents of each attention type, where there are several.

    An attention type with a missing KL of a block is left out.
    """
    parts: dict[tuple[int, str], list[float | None]] = defaultdict(list)
    names = {"logits": "", ALIGNED_POSITION: "", SELECTION: f" {selecting}"}
    for site, kl in kl_by_site.items():
        attention_type, latent = attention_type_of(site), latent_of(site)
        is_named = attention_type != ALIGNMENT or latent == ALIGNED_POSITION
        label = attention_type + names.get(latent, f" {latent}") if is_named else latent
        key = ((*ATTENTION_TYPES, ALIGNMENT).index(attention_type), label)
        parts[key].append(kl)
    rows: list[Row] = []
    for (_, name), kls in sorted(parts.items()):
        values = [kl for kl in kls if kl is not None]
        if len(values) == len(kls):
            rows.append((f"    {name}", "", format_value(sum(values))))
    return rows if len(parts) > 1 else []


def site_table(results: Results) -> str:
    """The KL of every site, its gap where it is known, and how they were computed."""
    titles = ("nats per token on test, by site", "KL(guide, prior)")
    gaps = results.gap_by_site
    rows: list[Row] = [(*titles, *["gap of the guide"] * bool(gaps), "how")]
    for site, kl in results.kl_by_site.items():
        values = [kl, *[gaps.get(site)] * bool(gaps)]
        cells = ("" if value is None else f"{value:.3e}" for value in values)
        rows.append((site, *cells, results.kl_how[site]))
    return aligned(rows)


OF_TASKS = ("sentences", "elbo", "exact", "truth", "plug_in", *METRICS)


def task_table(results: Results) -> str:
    """The test part by tasks, and the average that counts each task alike; empty without tasks."""
    tasks = {**results.tasks, "average": results.average}
    names = {name for scores in tasks.values() for name, x in scores.items() if x is not None}
    shown = [n for n in OF_TASKS if n in names and SCORES[n].estimates not in names]
    titles = (SCORES[name].heading for name in shown)
    rows = [
        (task, *(format_value(scores.get(name), SCORES[name].unit) for name in shown))
        for task, scores in tasks.items()
    ]
    return aligned([("test part by task", *titles), *rows]) if results.tasks else ""


def heads_table(results: Results) -> str:
    """The heads that each task selects in each block; empty where there is one task alone."""
    heads = results.heads_by_task
    blocks = dict.fromkeys(block for task in heads.values() for block in task)
    rows = [
        (block, *(" ".join(map(str, task.get(block, ()))) for task in heads.values()))
        for block in blocks
    ]
    return packed([("heads by task", *heads), *rows], 1).rstrip() if any(heads) else ""
