"""Summaries: sources cut, several references, ROUGE beside the lead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latentheads.metrics.rouge import first_sentence, rouge
from tests.experiments.programs import SHORT, results_of, succeed
from tests.latentheads.corpora.folders import LANGUAGES, with_references, write_corpus
from tests.latentheads.runs.trained import SMALL, train

pytestmark = pytest.mark.usefixtures("as_the_programs_do")


def test_a_run_scores_against_every_reference_and_the_lead(tmp_path: Path) -> None:
    from latentheads.experiments.cli.tables import result_table
    from latentheads.runs.generation import translate_lines
    from latentheads.runs.loading import load_run

    folder, out = with_references(tmp_path / "corpus"), tmp_path / "run"
    words = ["--data", str(folder), *LANGUAGES, "--data.references=refs", "--decode.rouge=true"]
    words += ["--data.whitespace=keep"]
    run: Any = train(
        out, *words, "--data.max_source=4", "--decode.max_new_tokens=6", "--recipe=transformer"
    )
    results = run.finish()
    test = results_of(out)["test"]
    assert (out / "test.alternatives.tsv").read_bytes() == (folder / "test.refs").read_bytes()
    right = [line.split("\t") for line in (folder / "test.refs").read_text().split("\n")[:-1]]
    written = (out / "test.translations.txt").read_text().split("\n")[:-1]
    rouge_scores = rouge(written, right)
    assert (test["rouge1"], test["rouge2"], test["rouge_l"]) == pytest.approx(
        (rouge_scores.rouge1, rouge_scores.rouge2, rouge_scores.rouge_l)
    )
    sources = run.corpus.test.sources
    first = [first_sentence(run.corpus.source.decode(row.tolist())) for row in sources]
    assert test["lead_rouge1"] == pytest.approx(rouge(first, right).rouge1)
    assert sources.lengths.max() <= 4
    table = result_table(results)
    assert "ROUGE-L" in table
    assert "multi:max" in table
    loaded = load_run(out)
    long, short = "the gap of the gap of the gap", loaded.source.encode("the gap of the gap")[:3]
    head = loaded.source.decode([*short])
    decoding = loaded.settings.decode
    assert translate_lines(loaded, [long], decoding) == translate_lines(loaded, [head], decoding)


def test_rouge_stands_in_a_comparison(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "corpus")
    words = ["--data", str(data), *LANGUAGES, *SMALL, *SHORT, "--decode.rouge=true", "--seeds=0"]
    succeed("compare.py", *words, "--recipes=transformer", "--out", str(tmp_path / "out"))
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "| ROUGE-1 | ROUGE-2 | ROUGE-L |" in table


@pytest.mark.parametrize("preset", ["gigaword", "cnn_dailymail", "scitldr"])
def test_presets_ask_for_rouge_and_cut_their_sources(settings: Any, preset: str) -> None:
    plan = settings("--preset", preset)
    assert plan.decode.rouge
    assert plan.data.max_source
    assert plan.data.has_target_lists == (preset == "scitldr")
