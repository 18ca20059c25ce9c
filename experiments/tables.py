"""Tables of results as aligned text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from latentheads.names import chain_of, layer_of

__all__ = [
    "aligned",
    "are_printable",
    "markdown",
    "result_table",
    "site_table",
    "task_table",
]

Row = tuple[str, ...]


def aligned(rows: list[Row]) -> str:
    """Aligns columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Rows as a Markdown table, their titles first; so many columns to the left."""
    titles, *others = ["| " + " | ".join(row) + " |" for row in rows]
    sides = "|" + "---|" * left + "---:|" * (len(rows[0]) - left)
    return "\n".join([titles, sides, *others]) + "\n"


def are_printable(results: Any) -> bool:
    """Whether these are the results of a run: all tables can be made of them."""
    try:
        result_table(results)
        task_table(results)
        site_table(results)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return False
    return True


def result_table(results: dict[str, Any]) -> str:
    """The one table a run prints, in nats a target token unless a row says otherwise.

    A figure that is not known, as the truth of a text with an unknown word, leaves its cell empty.
    """
    valid, test = results["valid"], results["test"]
    k = test["iwae_k"]
    rows: list[Row] = [("nats per target token", "valid", "test")]
    rows += [
        _row("bound (ELBO)", valid, test, "elbo"),
        _row("  log-likelihood term", valid, test, "log_likelihood"),
        _row("  KL, all sites", valid, test, "kl"),
        *_kl_rows(results["kl_by_site"]),
        _row(f"bound (IWAE_{k})", valid, test, "iwae"),
    ]
    if (valid["truth"], test["truth"]) != (None, None):
        name = "true log p(y | x)" if "bleu" in test else "true log p(y)"
        rows.append(_row(name, valid, test, "truth"))
        rows.append(("  truth less bound", *(_gap(part) for part in (valid, test))))
    rows.append(_row("plug-in network (another model, no bound)", valid, test, "plug_in"))
    ess = [_figure(part["effective_sample_size"], ".1f") for part in (valid, test)]
    rows.append((f"effective draws of {k}", *ess))
    if (valid["pareto_k"], test["pareto_k"]) != (None, None):
        tails = [_figure(part["pareto_k"], ".0%").replace("%", " %") for part in (valid, test)]
        rows.append(("sentences with Pareto k > 0.7", *tails))
    if "bleu" in test:
        rows += _translation_rows(results)
    rows += _perplexity_rows(results.get("perplexity", []))
    if results["head_divergence"] is not None:
        apart = f"{results['head_divergence']:.2f}"
        rows.append(("head divergence (JSD, plug-in, nats)", apart, ""))
        chains = results["head_divergence_by_chain"].items()
        rows += [(f"    {chain}", f"{value:.2f}", "") for chain, value in chains]
    rows.append(("target tokens", f"{valid['tokens']:,}", f"{test['tokens']:,}"))
    rows.append(("parameters", "", f"{results['parameters']:,}"))
    rows.append(("training, target tokens/s", "", f"{results['tokens_per_second']:,.0f}"))
    return aligned(rows)


PERPLEXITIES = {
    "plug_in": "perplexity of the plug-in network",
    "elbo": "perplexity from the bound",
    "iwae": "perplexity from IWAE_{k}",
}


def _perplexity_rows(found: list[dict[str, Any]]) -> list[Row]:
    """A row for each kind of perplexity and way to cut the text; by words where these differ."""
    rows: list[Row] = []
    for valid, test in zip(found[::2], found[1::2], strict=True):
        rows.append((f"  by {valid['mode']}", "", ""))
        for name, title in PERPLEXITIES.items():
            title = title.format(k=test["iwae_k"])
            for unit in ("token", "word") if test["word"] != test["token"] else ("token",):
                label = f"{title}, by {unit}" if unit == "word" else title
                cells = (_figure(part[unit][name], ".2f") for part in (valid, test))
                rows.append((f"    {label}", *cells))
    return rows


def _translation_rows(results: dict[str, Any]) -> list[Row]:
    """BLEU, chrF and how they were made."""
    test, decoding = results["test"], results["decoding"]
    heads = f"{decoding['draws']} draws" if decoding["draws"] else "plug-in"
    search = f"beam {decoding['beam']}" if decoding["beam"] > 1 else "greedy"
    rows: list[Row] = [
        (f"BLEU ({heads}, {search})", "", _figure(test["bleu"], ".2f")),
        ("  " + test["bleu_signature"], "", ""),
        (f"chrF ({heads}, {search})", "", _figure(test["chrf"], ".2f")),
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


def _row(label: str, valid: dict[str, Any], test: dict[str, Any], key: str) -> Row:
    return label, _figure(valid[key]), _figure(test[key])


def _gap(part: dict[str, Any]) -> str:
    """The truth less the bound; nothing where one is not known."""
    truth, bound = part["truth"], part["elbo"]
    return "" if truth is None or bound is None else _figure(truth - bound, ".4f")


def _figure(value: float | None, form: str = "") -> str:
    """In a form, or four decimals, or two digits of what would not show in them."""
    if value is None:
        return ""
    small = 0 < abs(value) < 5e-5
    return format(value, form or (".1e" if small else ".4f"))


def _kl_rows(kl_by_site: dict[str, float]) -> list[Row]:
    """KL of each chain, with its layers in one cell."""
    chains: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for site, kl in kl_by_site.items():
        chains[chain_of(site)].append((layer_of(site), kl))
    rows: list[Row] = []
    for chain, parts in chains.items():
        layers = " + ".join(_figure(kl) for _, kl in sorted(parts))
        rows.append((f"    {chain} = {layers}", "", _figure(sum(kl for _, kl in parts))))
    return rows


def site_table(results: dict[str, Any]) -> str:
    """The KL of every site and how it was computed."""
    rows: list[Row] = [("site", "KL nats/token", "how")]
    how = results["kl_how"]
    rows += [(site, f"{kl:.3e}", how[site]) for site, kl in results["kl_by_site"].items()]
    return aligned(rows)


TASK_COLUMNS = {
    "sentences": "sentences",
    "elbo": "bound (ELBO)",
    "truth": "true log p(y | x)",
    "plug_in": "plug-in (no bound)",
    "bleu": "BLEU",
    "chrf": "chrF",
    "paper_bleu": "papers' BLEU",
}


def task_table(results: dict[str, Any]) -> str:
    """The test part by tasks, and the average that counts each task alike; empty without tasks."""
    tasks = results.get("tasks", {})
    every = [*tasks.items(), ("average", results.get("average", {}))]
    known = {name for _, figures in every for name, value in figures.items() if value is not None}
    shown = {name: title for name, title in TASK_COLUMNS.items() if name in known}
    rows = [(name, *(_task_cell(figures, key) for key in shown)) for name, figures in every]
    return aligned([("test part by task", *shown.values()), *rows]) if tasks else ""


def _task_cell(figures: dict[str, Any], name: str) -> str:
    value = figures.get(name)
    if value is None:
        return ""
    if name == "sentences":
        return f"{value:,}"
    return _figure(value) if name in ("elbo", "truth", "plug_in") else f"{value:.2f}"
