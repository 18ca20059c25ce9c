"""The tables of the page on Bernoulli heads are those of its results."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest

from tests.docs.pages import ROOT

RESULTS = ROOT / "experiments" / "results" / "bernoulli-heads"
PAGES = [ROOT / "docs" / "bernoulli-heads.md", RESULTS / "README.md"]
METHODS = ("posterior", "gradient", "random")


def read(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / name).read_text("utf-8")))


def format_losses(nats: list[float]) -> str:
    return f"{mean(nats):.3f} [{min(nats):.3f}, {max(nats):.3f}]"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_nats_lost_and_overlaps(page: Any) -> None:
    text = page.read_text("utf-8")
    rows = read("ranking.json")["rows"]
    for number in sorted({row["removed"] for row in rows}):
        of_number = {row["method"]: row for row in rows if row["removed"] == number}
        losses = [format_losses(of_number[name]["nats_lost"]) for name in METHODS]
        overlaps = [f"{of_number[name]['jaccard']:.2f}" for name in METHODS]
        assert f"| {number} | {' | '.join([*losses, *overlaps])} |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_gaps(page: Any) -> None:
    text = page.read_text("utf-8").replace("\N{MINUS SIGN}", "-")
    for row in read("ladder.json")["rows"]:
        figures = " | ".join(f"{row[name]:.4f}" for name in ("elbo", "kl", "gap"))
        condition_on = row["condition_on"] or "\N{EN DASH}"
        assert f"| `{row['guide']}` | {condition_on} | {figures} |" in text


def test_correlations() -> None:
    text = (RESULTS / "README.md").read_text("utf-8").replace("\N{MINUS SIGN}", "-")
    for value in read("ranking.json")["pairs"]["spearman"].values():
        assert f"{value:.2f}" in text
