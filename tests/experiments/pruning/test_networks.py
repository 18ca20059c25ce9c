"""Points of the curve of a run that loses its heads."""

from __future__ import annotations

import pytest

from latentheads.experiments.pruning.networks import Pruned, curve_point
from latentheads.metrics.scores import Scores
from latentheads.runs.results import Results
from tests.figures import FIGURES


def test_tokens_per_second_and_speed_agree_where_the_load_of_the_machine_changes() -> None:
    results = Results(valid=Scores.of(FIGURES), test=Scores.of(FIGURES))
    whole, network = (
        Pruned({}, 7, results, seconds) for seconds in ([2.0, 3.0, 11.0], [1.0, 5.0, 5.0])
    )
    before, after = (curve_point(pruned, whole, tokens=21) for pruned in (whole, network))
    assert (before["speed"], before["tokens_per_second"]) == (1, 7)
    assert after["speed"] == pytest.approx(2)  # of 2, .6 and 2.2
    assert after["tokens_per_second"] == pytest.approx(14)
