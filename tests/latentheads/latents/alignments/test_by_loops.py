"""A whole translation model against sums over all alignments, in numpy from its raw weights."""

from __future__ import annotations

import numpy as np
import pytest

from latentheads.batch import Batch
from latentheads.inference.evaluation import Report, evaluate
from tests.docs.pages import RESULTS, rows_of
from tests.guides.attached import SUMMED, attach
from tests.latentheads.latents.alignments import by_loops
from tests.latentheads.latents.alignments.by_loops import ALL, computed, go_through
from tests.latentheads.latents.alignments.models import aligned

SLACK = 1e-11
every_shape = pytest.mark.parametrize("shape", ALL)


def reported(report: Report) -> dict[str, float]:
    """Its figures by the names that sums by hand have; a mean over words."""
    actual = {name: value for name, value in vars(report).items() if isinstance(value, float)}
    for what, sites in (("kl", report.kl_by_site), ("gap", report.gap_by_site)):
        actual |= {f"{what} of block {n}": value for n, value in enumerate(sites.values())}
    return actual


@every_shape
@pytest.mark.parametrize("name", SUMMED)
def test_every_figure_is_a_sum_over_all_alignments(shape: str, name: str, batch: Batch) -> None:
    model = aligned(ALL[shape])
    guide = attach(name, model)
    actual, item = go_through(model, guide, batch)
    sentences = [sums.figures() for sums in item]
    for index, wanted in enumerate(sentences):
        assert computed(actual, index) == pytest.approx(wanted, rel=0, abs=SLACK)
    words, figures = int(batch.target_valid.sum()), reported(evaluate(model, guide, [batch]))
    for figure in sentences[0]:
        mean = sum(wanted[figure] for wanted in sentences) / words
        assert figures[figure] == pytest.approx(mean, rel=0, abs=SLACK), figure


@every_shape
def test_the_exact_guide_is_bayes_rule_at_every_alignment(shape: str, batch: Batch) -> None:
    model = aligned(ALL[shape])
    _, item = go_through(model, attach("exact", model), batch)
    for sums in item:
        np.testing.assert_allclose(sums.guide, sums.posterior, rtol=0, atol=SLACK)


def test_the_table_is_that_of_the_study(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the differences, which are those of a machine's rounding."""
    monkeypatch.setattr(by_loops, "SUMMED", ["exact"])
    by_loops.main()
    printed = rows_of(capsys.readouterr().out)
    assert len(printed) == len(ALL)
    assert all(float(row[-1]) < SLACK for row in printed)
    study = (RESULTS / "alignments" / "README.md").read_text(encoding="utf-8")
    listed = [row[:-1] for row in rows_of(study)]
    assert [row[:-1] for row in printed if row[:-1] not in listed] == []
