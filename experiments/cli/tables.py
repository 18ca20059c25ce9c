"""Tables of results as aligned text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from latentheads.metrics.scores import SCORES
from latentheads.names import (
    ALIGNED_POSITION,
    ALIGNMENT,
    ATTENTION_TYPES,
    SELECTION,
    attention_type_of,
    latent_of,
    layer_of,
)

__all__ = [
    "aligned",
    "figure",
    "markdown",
    "packed",
    "quoted",
    "result_table",
    "site_table",
    "task_table",
]

Row = tuple[str, ...]

COLUMNS = 100
"""Columns of a terminal that a table fits into, where no cell is wider."""


def aligned(rows: list[Row]) -> str:
    """Aligns columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def packed(rows: Sequence[Sequence[str]], names: int) -> str:
    """Aligned tables below each other, none wider than a terminal.

    Args:
        rows: The rows of one wide table, its titles first.
        names: The first columns, which every one of the tables begins with.
    """
    columns = list(zip(*rows, strict=True))
    shared, parts = columns[:names], [columns[names : names + 1]]
    for column in columns[names + 1 :]:
        wide = [*shared, *parts[-1], column]
        if sum(2 + max(map(len, each)) for each in wide) - 2 > COLUMNS:
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


def result_table(results: dict[str, Any]) -> str:
    """The one table a run prints, in nats a target token unless a row says otherwise.

    A figure that is not known, as the truth of a text with an unknown word, leaves its cell empty.
    """
    valid, test = results["valid"], results["test"]
    k = test.get("iwae_k") or valid.get("iwae_k") or "K"
    rows: list[Row] = [("nats per target token", "valid", "test")]
    rows += [
        _row("bound (ELBO)", valid, test, "elbo"),
        _row("  log-likelihood term", valid, test, "log_likelihood"),
        _row("  KL, all sites", valid, test, "kl"),
        *_kl_rows(_not_fixed(results), results.get("gates") is not None),
    ]
    exact = _known("exact", valid, test)
    if not exact:
        rows.append(_row(f"bound (IWAE_{k})", valid, test, "iwae"))
    of = "y" if results.get("perplexity") else "y | x"
    rows += _alignment_rows(valid, test, results.get("gap_by_site") or {}, of)
    rows += _truth_rows(valid, test, of)
    if not exact:  # else the plug-in network is the exact law, and no draw is needed
        rows.append(_row("plug-in network (another model, no bound)", valid, test, "plug_in"))
        rows += _weight_rows(valid, test, k, "blocks" if _in_blocks(results) else "sentences")
    if "bleu" in test:
        rows += _translation_rows(results)
    if "wer" in test:
        rows += _recognition_rows(results)
    rows += _perplexity_rows(results.get("perplexity", []))
    if results["head_divergence"] is not None:
        apart = f"{results['head_divergence']:.2f}"
        rows.append(("head divergence (JSD, plug-in, nats)", apart, ""))
        chains = results["head_divergence_by_chain"].items()
        rows += [(f"    {chain}", f"{value:.2f}", "") for chain, value in chains]
    rows += _gate_rows(results.get("gates"))
    rows.append(_row("target tokens", valid, test, "tokens", "{:,}".format))
    rows.append(("parameters", "", f"{results['parameters']:,}"))
    rows += _weights_rows(results)
    rows.append(
        _row("training, target tokens/s", {}, results, "tokens_per_second", "{:,.0f}".format)
    )
    return aligned(rows)


def _not_fixed(results: dict[str, Any]) -> dict[str, float | None]:
    """The KL of every site that has noise."""
    how = results["kl_how"]
    return {site: kl for site, kl in results["kl_by_site"].items() if how.get(site) != "fixed"}


def _in_blocks(results: dict[str, Any]) -> bool:
    """Whether the text is a running one, cut into blocks."""
    return any(each["mode"].startswith("blocks") for each in results.get("perplexity", ()))


def _weights_rows(results: dict[str, Any]) -> list[Row]:
    """Which of the weights of training the figures are of."""
    step, steps = results.get("reported_step"), results.get("steps")
    if not (step and steps):
        return []
    if (averaged := results.get("averaged") or 0) > 1:
        return [(f"weights, mean of {averaged} checkpoints: up to update", "", f"{step:,}")]
    return [("weights: of update", "", f"{step:,} of {steps:,}")]


def _weight_rows(valid: dict[str, Any], test: dict[str, Any], k: int | str, of: str) -> list[Row]:
    """How good the importance weights of the draws are."""
    label = f"effective draws of {k}"
    rows = [_row(label, valid, test, "effective_sample_size", "{:.1f}".format)]
    if _known("pareto_k", valid, test):
        rows.append(_row(f"{of} with Pareto k > 0.7", valid, test, "pareto_k", _share))
    if valid.get("pareto_unknown") or test.get("pareto_unknown"):
        label = "  with no k to be had: weights tie"
        rows.append(_row(label, valid, test, "pareto_unknown", _share))
    return rows


def _known(name: str, *parts: dict[str, Any]) -> bool:
    """Whether one of the parts has a figure."""
    return any(part.get(name) is not None for part in parts)


def _alignment_rows(
    valid: dict[str, Any], test: dict[str, Any], gaps: dict[str, float], of: str
) -> list[Row]:
    """The exact log p of a model with alignments, and what its guide's bound lacks of it."""
    if not _known("gap", valid, test):
        return []
    if _known("exact", valid, test):
        rows = [
            _row(f"exact log p({of}), all alignments summed", valid, test, "exact"),
            _row("  gap of the guide: exact less bound", valid, test, "gap"),
        ]
    else:
        rows = [_row("gap of the guide at alignments, given the other heads", valid, test, "gap")]
    if len(gaps) > 1:
        rows += [(f"    {site}", "", _decimals(gap)) for site, gap in gaps.items()]
    titles = {
        "prior_entropy": "entropy of alignments, prior",
        "posterior_entropy": "  given the word, exact posterior",
        "information": "  KL(posterior, prior): what a word says of them",
    }
    return [*rows, *(_row(title, valid, test, name) for name, title in titles.items())]


def _truth_rows(valid: dict[str, Any], test: dict[str, Any], of: str) -> list[Row]:
    """The exact log p and what the bound, of the same sentences, lies below it."""
    if not _known("truth", valid, test):
        return []
    parts = (valid, test)
    gaps = map(_gap, parts)
    if all(part.get("truth_sentences") == part.get("sentences") for part in parts):
        rows: list[Row] = [("  truth less bound", *gaps)]
    else:
        counts = map(_known_sentences, parts)
        rows = [
            ("  sentences that it is known of", *counts),
            ("  truth less bound, of these sentences", *gaps),
        ]
    return [_row(f"true log p({of})", valid, test, "truth"), *rows]


def _gap(part: dict[str, Any]) -> str:
    truth, elbo = part.get("truth"), part.get("truth_elbo", part.get("elbo"))
    return "" if truth is None or elbo is None else f"{truth - elbo:.4f}"


def _known_sentences(part: dict[str, Any]) -> str:
    known, every = part.get("truth_sentences"), part.get("sentences")
    return "" if known is None or every is None else f"{known:,} of {every:,}"


PERPLEXITIES = {
    "exact": "perplexity, exact: all alignments summed",
    "plug_in": "perplexity of the plug-in network",
    "elbo": "perplexity from the bound",
    "iwae": "perplexity from IWAE_{k}",
}


def _perplexity_rows(found: list[dict[str, Any]]) -> list[Row]:
    """A row for each kind of perplexity and way to cut the text; by words where these differ."""
    rows: list[Row] = []
    for valid, test in zip(found[::2], found[1::2], strict=True):
        rows.append((f"  by {valid['mode']}", "", ""))
        for name in _perplexities_of(test["token"]):
            title = PERPLEXITIES[name].format(k=test["iwae_k"])
            for unit in ("token",) if test["word"] in ({}, test["token"]) else ("token", "word"):
                label = f"{title}, by {unit}" if unit == "word" else title
                cells = (figure(part[unit][name], "{:.2f}".format) for part in (valid, test))
                rows.append((f"    {label}", *cells))
    return rows


def _perplexities_of(found: Mapping[str, Any]) -> list[str]:
    """The kinds that are shown: beside the exact one neither that of the plug-in nor of draws."""
    left_out = ("plug_in", "iwae") if "exact" in found else ("exact",)
    return [name for name in PERPLEXITIES if name not in left_out]


def _translation_rows(results: dict[str, Any]) -> list[Row]:
    """Accuracy where it is asked for, BLEU, chrF and how they were made."""
    test, search = results["test"], _name_search(results)
    rows: list[Row] = []
    if test.get("accuracy") is not None:
        rows.append((f"accuracy ({search}), %", "", f"{test['accuracy']:.2f}"))
        rows.append(("  edit distance, mean", "", f"{test['edit_distance']:.2f}"))
        rows.append(("  " + test["edit_signature"], "", ""))
    rows += [
        (f"BLEU ({search})", "", figure(test["bleu"], "{:.2f}".format)),
        ("  " + test["bleu_signature"], "", ""),
        (f"chrF ({search})", "", figure(test["chrf"], "{:.2f}".format)),
    ]
    if test["paper_bleu"] is not None:
        rows.append(("BLEU by the papers' protocol", "", f"{test['paper_bleu']:.2f}"))
        rows.append(("  " + test["paper_signature"], "", ""))
    if "rouge1" in test:
        for name, title in (("rouge1", "ROUGE-1"), ("rouge2", "ROUGE-2"), ("rouge_l", "ROUGE-L")):
            rows.append((title, "", f"{test[name]:.2f}"))
            rows.append(("  of the first sentence", "", f"{test[f'lead_{name}']:.2f}"))
        rows.append(("  " + test["signature"], "", ""))
    rows.append(("translation, sentences/s", "", f"{test['sentences_per_second']:,.0f}"))
    return rows


def _recognition_rows(results: dict[str, Any]) -> list[Row]:
    """Error rates with their intervals, what the errors are, and how they were counted."""
    test = results["test"]
    rows: list[Row] = []
    if test.get("elbo") is not None:  # else its part of the report has failed
        per_word = test["elbo"] * test["tokens"] / max(test["words"], 1)
        rows.append(("bound (ELBO), nats per word of the text", "", _decimals(per_word)))
    kinds = ("substitutions", "deletions", "insertions")
    errors = ", ".join(f"{test[kind]:,} {kind}" for kind in kinds)
    rows += [
        (f"WER ({_name_search(results)}), %", "", f"{test['wer']:.2f}"),
        *_interval_rows(test, "wer"),
        (f"  {errors} of {test['words']:,} words", "", ""),
        ("  " + test["wer_signature"], "", ""),
        (f"CER ({_name_search(results)}), %", "", f"{test['cer']:.2f}"),
        *_interval_rows(test, "cer"),
    ]
    if test["paper_wer"] is not None:
        rows.append(("WER by the papers' protocol, %", "", f"{test['paper_wer']:.2f}"))
        rows.append(("  " + test["paper_wer_signature"], "", ""))
    if test.get("ctc_wer") is not None:
        rows.append(("CTC, a head of training alone: WER, %", "", f"{test['ctc_wer']:.2f}"))
        rows.append(("  CER, %", "", f"{test['ctc_cer']:.2f}"))
    rows.append(("recognition, utterances/s", "", f"{test['sentences_per_second']:,.0f}"))
    return rows


def _interval_rows(test: dict[str, Any], name: str) -> list[Row]:
    """The interval of a rate; nothing where it is not known, as of a single utterance."""
    ends = [test[f"{name}_{end}"] for end in ("low", "high")]
    return [] if None in ends else [("  95 % interval", "", "{:.2f} to {:.2f}".format(*ends))]


def _name_search(results: dict[str, Any]) -> str:
    """How the test part was decoded."""
    test, decoding = results["test"], results["decoding"]
    heads = f"{decoding['draws']} draws" if decoding["draws"] else "plug-in"
    heads = "alignments summed" if test.get("exact") is not None else heads
    return f"{heads}, beam {decoding['beam']}" if decoding["beam"] > 1 else f"{heads}, greedy"


def _decimals(value: float) -> str:
    """Four decimals, or two digits of what would not show in them."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 5e-5 else f"{value:.1e}"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def figure(value: float | None, form: Callable[[Any], str] = _decimals) -> str:
    """A figure in the form that is asked for; nothing where it is missing."""
    return "" if value is None else form(value)


def _row(
    label: str,
    valid: dict[str, Any],
    test: dict[str, Any],
    key: str,
    form: Callable[[Any], str] = _decimals,
) -> Row:
    """A figure of both parts."""
    return label, figure(valid.get(key), form), figure(test.get(key), form)


def _kl_rows(kl_by_site: dict[str, float | None], gated: bool) -> list[Row]:
    """KL of each chain, and of what else is drawn in it, with its layers in one cell.

    Nothing is said of a chain where the KL of a block is missing.
    """
    parts: dict[tuple[int, str], list[tuple[int, float | None]]] = defaultdict(list)
    names = {"logits": "", ALIGNED_POSITION: "", SELECTION: " gates" if gated else " selection"}
    for site, kl in kl_by_site.items():
        chain, latent = attention_type_of(site), latent_of(site)
        place = (*ATTENTION_TYPES, ALIGNMENT).index(chain), chain + names.get(latent, f" {latent}")
        parts[place].append((layer_of(site), kl))
    rows: list[Row] = []
    for (_, name), found in sorted(parts.items()):
        known = [kl for _, kl in sorted(found) if kl is not None]
        if len(known) == len(found):
            layers = " + ".join(map(_decimals, known))
            rows.append((f"    {name} = {layers}", "", _decimals(sum(known))))
    return rows


def _gate_rows(gates: dict[str, Any] | None) -> list[Row]:
    """How many gates are open, how many were wanted, and what an open one costs."""
    if gates is None:
        return []
    rows: list[Row] = [
        (f"gates open at test time, of {gates['gated']}", "", str(gates["open"])),
        ("  open on average, under the gates' noise", "", f"{gates['expected']:.1f}"),
        ("  lambda, nats a target token for an open gate", "", figure(gates["lambda"])),
    ]
    if gates["wanted"] is not None:
        missed = abs(gates["open"] - gates["wanted"])
        label = f"  wanted by --gate_heads{f', missed by {missed}' if missed else ''}"
        rows.append((label, "", str(gates["wanted"])))
    return rows


def site_table(results: dict[str, Any]) -> str:
    """The KL of every site and how it was computed."""
    rows: list[Row] = [("site", "KL nats/token", "how")]
    how = results["kl_how"]
    for site, kl in results["kl_by_site"].items():
        rows.append((site, figure(kl, "{:.3e}".format), how[site]))
    return aligned(rows)


TASK_NATS = {
    "elbo": "bound (ELBO)",
    "exact": "exact log p(y | x)",
    "truth": "true log p(y | x)",
    "plug_in": "plug-in (no bound)",
}
TASK_COLUMNS = {"sentences": "sentences", **TASK_NATS, **SCORES}


def task_table(results: dict[str, Any]) -> str:
    """The test part by tasks, and the average that counts each task alike; empty without tasks."""
    tasks = results.get("tasks", {})
    every = [*tasks.items(), ("average", results.get("average", {}))]
    known = {name for _, figures in every for name, value in figures.items() if value is not None}
    if "exact" in known:
        known -= {"plug_in"}
    shown = {name: title for name, title in TASK_COLUMNS.items() if name in known}
    rows = [(name, *(_task_cell(figures, key) for key in shown)) for name, figures in every]
    return aligned([("test part by task", *shown.values()), *rows]) if tasks else ""


def _task_cell(figures: dict[str, Any], name: str) -> str:
    value = figures.get(name)
    if value is None:
        return ""
    if name == "sentences":
        return f"{value:,}"
    return _decimals(value) if name in TASK_NATS else f"{value:.2f}"
