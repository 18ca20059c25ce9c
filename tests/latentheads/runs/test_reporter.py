"""What a report says and writes of a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from latentheads.corpora import Corpus
from latentheads.corpora.from_grammar import sample_tasks
from latentheads.corpora.tasks import Mixture, Task
from latentheads.data.in_memory import data_of
from latentheads.decoding.options import Decoding
from latentheads.guides import Tied
from latentheads.latents.logits.options import LogitsOptions
from latentheads.latents.selection.options import SelectionOptions
from latentheads.models import LanguageModel, Translation
from latentheads.runs.folder import Folder
from latentheads.runs.reporter import Reporter
from latentheads.runs.settings import Settings
from tests.latentheads.corpora.texts import story


@pytest.mark.parametrize("unit", ["word", "subword"])
@pytest.mark.parametrize("counted", [True, False])
def test_a_perplexity_by_word_needs_words(unit: Any, counted: bool, tmp_path: Path) -> None:
    corpus = story(unit=unit)
    if not counted:
        corpus = replace(corpus, test=corpus.test.first(2))
    model = LanguageModel.of(
        corpus, latents=[LogitsOptions()], width=6, feed_forward=5, heads=2, layers=1
    )
    guide, settings = Tied(model), Settings(data=data_of(corpus), num_samples=2)
    reporter = Reporter(settings, model, guide, corpus, Folder(tmp_path / "run", ""))
    valid, test = reporter.perplexities()
    assert valid["word"].keys() == valid["token"].keys()
    assert (test["word"] == {}) == (unit == "subword" and not counted)
    assert (test["word"] == test["token"]) == (unit == "word")


def test_a_text_with_a_newline_is_one_line_of_a_file(tmp_path: Path) -> None:
    """The highlights of a published corpus of summaries have one between sentences."""
    pairs = [("a b", "b .\na ."), ("b", "a")]
    corpus = Corpus.from_pairs(pairs, pairs, pairs)
    model = Translation.of(corpus, latents=(), width=6, feed_forward=5, heads=2, layers=1)
    settings = Settings(data=data_of(corpus), decode=Decoding(rouge=True, max_new_tokens=2))
    reporter = Reporter(settings, model, Tied(model), corpus, Folder(tmp_path, ""))
    reporter.translations()
    for name in ("references.txt", "alternatives.tsv"):
        assert (tmp_path / f"test.{name}").read_text() == "b . a .\na\n"


def test_the_tasks_of_a_side_are_its_languages(tmp_path: Path) -> None:
    languages = (("en", "velu"), ("velu", "en"), ("tamir", "en"))
    corpus = sample_tasks(Mixture(tuple(Task(*pair) for pair in languages)), [5, 5, 5], 2)
    model = Translation.of(corpus, latents=[SelectionOptions()], width=4, heads=2, layers=1)
    folder = Folder(tmp_path, "")
    reporter = Reporter(Settings(data=data_of(corpus)), model, Tied(model), corpus, folder)
    tasks = {name: entry["tasks"] for name, entry in reporter.selection().items()}
    assert tasks == {"encoder-self": ["en", "velu", "tamir"], "decoder-self": ["velu", "en"]}
