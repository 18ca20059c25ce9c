"""What a run knows of a corpus that was put together by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from latentheads.corpora import Corpus
from latentheads.corpora.data import Data
from latentheads.corpora.from_options import make_corpus
from latentheads.metrics.translation import score
from latentheads.runs.describe import describe_data
from latentheads.runs.scoring import score_written
from latentheads.runs.settings import Settings
from tests.latentheads.corpora.texts import mixed_pets, pets, story


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenised", [False, True])
def test_its_vocabulary_says_how_text_is_prepared(lowercase: bool, tokenised: bool) -> None:
    how = {"lowercase": lowercase, "tokenised": tokenised, "types": 300}
    for corpus in (pets(**how), mixed_pets("de,fr", **how), mixed_pets("de-en,fr-en", **how)):
        found = describe_data(corpus)
        assert (found.lowercase, found.tokenised) == (lowercase, tokenised)
        settings = Settings.from_options(Settings(data=found).to_options())
        assert settings.data == found


def test_words_have_spaces_between() -> None:
    tasks = replace(make_corpus(Data(tasks="velu,tamir", sentences=20, held_out=3)), data=None)
    for corpus in (tasks, story()):
        assert describe_data(corpus).tokenised
    assert not describe_data(story(unit="subword")).tokenised


def test_a_perfect_translation_without_case_is_perfect() -> None:
    corpus: Corpus = pets(test=[("Das Haus", "The house of the Old Dog sleeps .")], lowercase=True)
    written = [corpus.target.decode(row.tolist()) for row in corpus.test.targets]
    found: dict[str, Any] = score_written(
        Settings(data=describe_data(corpus)), written, corpus.test.references
    )
    assert found["bleu"] == pytest.approx(100)
    assert score(written, corpus.test.references).bleu < 90
