"""The report: what each table holds, and in which unit."""

from __future__ import annotations

import json
from pathlib import Path

from latentheads.experiments.studies.machine.jobs import Journal
from latentheads.experiments.studies.machine.report import TRAINING_FIGURES, write_report
from latentheads.metrics.scores import Scores


def test_figures_of_training_have_their_units(tmp_path: Path) -> None:
    run = tmp_path / "runs/mine"
    run.mkdir(parents=True)
    actual = {
        "steps": 3,
        "tokens_per_second": 5.0,
        "test": Scores.of({"elbo": -2.5, "bleu": 41.0}).to_json(),
    }
    (run / "results.json").write_text(json.dumps(actual))
    text = write_report(Journal.open(tmp_path), "cpu").read_text()
    section = text.partition("\n## Training, test part\n\n")[2]
    message, head, _, row = (line for line in section.split("\n") if line)
    assert message.startswith(
        "BLEU and chrF count from 0 to 100, and `tokens_per_second` is the speed"
    )
    assert message.endswith("what stands between `steps` and `bleu` is in nats a token.")
    columns = [word.strip() for word in head.strip("|").split("|")]
    assert columns == ["run", "steps", *TRAINING_FIGURES, "tokens_per_second"]
    assert TRAINING_FIGURES[-2:] == ("bleu", "chrf")
    figures = [word.strip() for word in row.strip("|").split("|")]
    assert [figure for figure in figures if figure] == ["mine", "3", "-2.5", "41", "5"]
