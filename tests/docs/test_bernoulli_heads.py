"""The tables of the page on Bernoulli heads are those of its results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from statistics import mean
from typing import Any

import pytest

from latentheads.metrics.seeds import spread
from tests.docs.pages import ROOT

RESULTS = ROOT / "experiments" / "results" / "bernoulli-heads"
MANUAL, STUDY = ROOT / "docs" / "bernoulli-heads.md", RESULTS / "README.md"

NONE = "\N{EN DASH}"
LADDERS = ("ladder-3000", "ladder")
STRUCTURES = ("mean-field", "autoregressive", "cascaded")


@cache
def read(name: str) -> list[dict[str, Any]]:
    """The results of every network."""
    return list(json.loads((RESULTS / f"{name}.json").read_text("utf-8"))["networks"])


def text_of(page: Any) -> str:
    return str(page.read_text("utf-8")).replace("\N{MINUS SIGN}", "-")


def lines(text: str) -> list[str]:
    """Its lines, without the spaces that pad cells."""
    return [" ".join(line.split()) for line in text.splitlines()]


def format_range(values: Sequence[float], places: int = 3) -> str:
    low, high = min(values), max(values)
    return f"{mean(values):.{places}f} [{low:.{places}f}, {high:.{places}f}]"


def rows_by(networks: Sequence[Any], table: str, *names: str) -> dict[Any, list[Any]]:
    """The rows of all networks with the same values of some columns."""
    rows = [row for network in networks for row in network[table]]
    keys = list(dict.fromkeys(tuple(str(row[name]) for name in names) for row in rows))
    return {key: [r for r in rows if tuple(str(r[name]) for name in names) == key] for key in keys}


def removal_lines() -> list[str]:
    """A line for each ranking: nats lost and overlaps by number of heads removed."""
    groups = rows_by(read("ranking"), "rows", "method", "removed")
    made = []
    for method in dict.fromkeys(method for method, _ in groups):
        cells = [groups[key] for key in groups if key[0] == method]
        nats = [format_range([x for row in rows for x in row["nats_lost"]]) for rows in cells]
        overlaps = [f"{mean(row['jaccard'] for row in rows):.2f}" for rows in cells]
        made.append(f"| {method} | {' | '.join([*nats, *overlaps])} |")
    return made


def difference_lines() -> list[str]:
    """A line for each ranking: nats lost beyond the posterior's, paired by network."""
    groups = rows_by(read("ranking"), "rows", "method", "removed")
    made = []
    for method in dict.fromkeys(method for method, _ in groups):
        cells = []
        for removed in [removed for name, removed in groups if name == method]:
            pairs = zip(groups[method, removed], groups["posterior", removed], strict=True)
            gains = [mean(one["nats_lost"]) - mean(other["nats_lost"]) for one, other in pairs]
            is_equal = max(gains) - min(gains) < 1e-12  # networks do not differ, yet others may
            form = "{:.3f} in each" if is_equal else "{:.3f} [{:.3f}, {:.3f}]"
            cells.append(form.format(*spread(gains)))
        made.append(f"| {method} | {' | '.join(cells)} |")
    return made[1:]


def guide_lines() -> list[str]:
    """A line for each guide of one block."""
    made = []
    for (guide, text), rows in rows_by(read("ladder"), "rows", "guide", "condition_on").items():
        steps = NONE if "steps" not in rows[0] else ", ".join(str(row["steps"]) for row in rows)
        bound, kl = (f"{mean(row[name] for row in rows):.4f}" for name in ("bound", "kl"))
        gap = format_range([abs(row["gap"]) for row in rows], 4)
        made.append(f"| `{guide}` | {text or NONE} | {steps} | {bound} | {kl} | {gap} |")
    return made


def sentence_lines() -> list[str]:
    """A line for each inference network: its gap by number of training sentences."""
    few, many = (rows_by(read(name), "rows", "guide", "condition_on") for name in LADDERS)
    made = []
    for (guide, text), rows in many.items():
        if "steps" in rows[0]:
            gaps = [format_range([r["gap"] for r in part], 4) for part in (few[guide, text], rows)]
            made.append(f"| `{guide}` | {text} | {' | '.join(gaps)} |")
    return made


def paired_gain() -> str:
    """The gap of mean-field less that of autoregressive, given the target, paired by network."""
    groups = rows_by(read("ladder"), "rows", "guide", "condition_on")
    pairs = zip(groups["mean-field", "target"], groups["autoregressive", "target"], strict=True)
    differences = [one["gap"] - other["gap"] for one, other in pairs]
    return "{:.4f} [{:.4f}, {:.4f}]".format(*spread(differences))


STEPS, SECONDS = (100, 800), (10.0, 15.0, 25.0)
"""After how many steps, and CPU seconds, losses of a guide are compared."""


def gaps_by_loss() -> dict[str, list[list[float]]]:
    """The gaps of every loss, by seed, after each of the steps and then of the seconds."""
    gaps = {}
    for (loss,), rows in rows_by(read("objectives"), "rows", "loss").items():
        histories = [{entry["step"]: entry for entry in row["history"]} for row in rows]
        columns = [[history[steps]["gap"] for history in histories] for steps in STEPS]
        for limit in SECONDS:
            early = [[e for e in h.values() if e["seconds"] <= limit] for h in histories]
            columns.append([entries[-1]["gap"] for entries in early])
        gaps[loss] = columns
    return gaps


def name_of_loss(loss: str) -> str:
    name, _, rest = loss.partition(",")
    return f"`{name}`{rest and ','}{rest}"


def loss_lines() -> list[str]:
    """A line for each loss: bound after the last steps, and the gaps."""
    made = []
    for (loss,), rows in rows_by(read("objectives"), "rows", "loss").items():
        ends = [next(e for e in row["history"] if e["step"] == STEPS[-1]) for row in rows]
        cost = mean(end["seconds"] for end in ends) / STEPS[-1]
        bound = mean(end["bound"] for end in ends)
        gaps = [format_range(column, 4) for column in gaps_by_loss()[loss]]
        made.append(f"| {name_of_loss(loss)} | {cost:.3f} | {bound:.4f} | {' | '.join(gaps)} |")
    return made


def loss_difference_lines() -> list[str]:
    """A line for each other loss: its gaps less those of the sum, paired by seed."""
    gaps = gaps_by_loss()
    summed = gaps.pop("Head_ELBO")
    made = []
    for loss, columns in gaps.items():
        cells = []
        for column, base in zip(columns, summed, strict=True):
            differences = [one - other for one, other in zip(column, base, strict=True)]
            cells.append("{:.4f} [{:.4f}, {:.4f}]".format(*spread(differences)))
        made.append(f"| {name_of_loss(loss)} | {' | '.join(cells)} |")
    return made


def set_lines() -> list[str]:
    """A line for each choice of heads: nats lost by number of heads kept, mean over blocks."""
    groups = rows_by(read("sets"), "rows", "choice", "kept")
    choices = dict.fromkeys(choice for choice, _ in groups)
    made = []
    for choice in choices:
        rows = [groups[key] for key in groups if key[0] == choice]
        cells = [f"{mean(mean(row['nats_lost']) for row in cell):.4f}" for cell in rows]
        made.append(f"| {choice} | {' | '.join(cells)} |")
    return made


def structure_lines() -> list[str]:
    """A line for each pair of blocks: the gaps of structures, of each sentence."""
    made = []
    for (blocks,), entries in rows_by(read("sets"), "structures", "blocks").items():
        gaps = {
            key: f"{mean(row['gap'] for row in rows):.4f}"
            for key, rows in rows_by(entries, "sentences", "guide", "condition_on").items()
        }
        optima = [gaps[name, "optimum of each sentence"] for name in STRUCTURES]
        cells = [gaps["tied", ""], gaps["mean-field", "nothing"], *optima]
        made.append(f"| `{blocks}` | {' | '.join(cells)} |")
    return made


def corpus_lines() -> list[str]:
    """A line for each pair of blocks and temperature: the gaps of structures, of a corpus."""
    made = []
    for (blocks,), entries in rows_by(read("sets"), "structures", "blocks").items():
        for (tau,), rows in rows_by(entries, "corpus", "tau").items():
            gaps = [f"{mean(r['gap'][name] for r in rows):.4f}" for name in ("tied", *STRUCTURES)]
            entropy = f"{mean(row['entropy'] for row in rows):.2f}"
            made.append(f"| `{blocks}` | {float(tau):g} | {entropy} | {' | '.join(gaps)} |")
    return made


def correlation_lines() -> list[str]:
    """A line for each predictor of interactions: Spearman's correlation in every network."""
    names = list(read("sets")[0]["spearman"])
    values = {n: [f"{network['spearman'][n]:.2f}" for network in read("sets")] for n in names}
    return [f"| {name.replace('_', ' ')} | {' | '.join(values[name])} |" for name in names]


def inclusion_lines(name: str, tau: float) -> list[str]:
    """A line for each block: inclusion probabilities with their intervals at a temperature."""
    made = []
    for row in read(name)[0]["rows"]:
        if row["tau"] == tau:
            (block,) = row["blocks"]
            questions = read(name)[0].get("questions")
            start = f"| `{block}` | {questions} |" if questions else f"| `{block}` |"
            ends = zip(row["inclusion"], row["low"], row["high"], strict=True)
            cells = [f"{middle:.2f} [{low:.2f}, {high:.2f}]" for middle, low, high in ends]
            made.append(f"{start} {' | '.join(cells)} |")
    return made


@pytest.mark.parametrize("page", [MANUAL, STUDY], ids=lambda path: path.name)
def test_gaps_of_guides(page: Any) -> None:
    assert set(guide_lines()) <= set(lines(text_of(page)))


def test_all_other_tables_of_the_results() -> None:
    others = [*removal_lines(), *set_lines(), *correlation_lines()]
    others += [*difference_lines(), *structure_lines(), *corpus_lines(), *loss_lines()]
    others += loss_difference_lines()
    others += (
        sentence_lines()
        + inclusion_lines("language-model", 100.0)
        + inclusion_lines("encoder", 1.0)
        + inclusion_lines("encoder-last", 1.0)
    )
    assert set(others) <= set(lines(text_of(STUDY)))
    assert paired_gain() in text_of(STUDY)
    assert len(others) == 9 + 6 + 4 + 8 + 3 + 12 + 4 + 3 + 4 + 3 + 3 + 1
