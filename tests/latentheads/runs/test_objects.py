"""What a run knows of objects that were made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from latentheads.contrib.speech.features import Filterbank
from latentheads.contrib.speech.vocabulary import Positions
from latentheads.corpora import Corpus
from latentheads.data import Grammar, Tasks
from latentheads.data.in_memory import data_of
from latentheads.runs.build import make_model
from latentheads.runs.scoring import score_outputs
from latentheads.runs.settings import Settings
from tests.latentheads.corpora.texts import mixed_pets, pets, story
from tests.latentheads.metrics.systems import score


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenised", [False, True])
def test_its_vocabulary_says_how_text_is_prepared(lowercase: bool, tokenised: bool) -> None:
    how = {"lowercase": lowercase, "tokenised": tokenised, "vocab_size": 300}
    for corpus in (pets(**how), mixed_pets("de,fr", **how), mixed_pets("de-en,fr-en", **how)):
        data_options = data_of(corpus)
        assert (data_options.lowercase, data_options.is_tokenised) == (lowercase, tokenised)
        settings = Settings.from_options(Settings(data=data_options).to_options())
        assert settings.data == data_options


def test_how_tasks_are_mixed_is_known() -> None:
    corpus = mixed_pets("de,fr", vocab_size=300)
    assert corpus.train.mixture is not None
    uneven = replace(corpus.train.mixture, temperature=5.0, one_task=True)
    data_options = data_of(replace(corpus, train=replace(corpus.train, mixture=uneven)))
    assert data_options.tasks is not None
    assert (data_options.tasks.temperature, data_options.tasks.one_task) == (5.0, True)
    plain = data_of(corpus)
    assert plain.tasks is not None
    assert (plain.tasks.temperature, plain.tasks.one_task) == (1.0, False)
    for data in (data_options, plain):
        assert Settings.from_options(Settings(data=data).to_options()).data == data


def test_words_have_spaces_between() -> None:
    tasks = replace(Grammar(tasks=Tasks("velu,tamir"), sentences=20, held_out=3).load(), data=None)
    for corpus in (tasks, story()):
        assert data_of(corpus).is_tokenised
    assert not data_of(story(unit="subword")).is_tokenised


def test_a_perfect_translation_without_case_is_perfect() -> None:
    corpus: Corpus = pets(test=[("Das Haus", "The house of the Old Dog sleeps .")], lowercase=True)
    written = [corpus.target.decode(row.tolist()) for row in corpus.test.targets]
    output_scores = score_outputs(Settings(data=data_of(corpus)), written, corpus.test.references)
    assert output_scores.bleu == pytest.approx(100)
    assert score(written, corpus.test.references)["bleu"] < 90  # type: ignore[operator]


SIZES = {"width": 8, "heads": 2, "layers": 1, "feed_forward": 5}
LOGITS = {"latents": "logits", "guide": "mean-field"}
TASKS = {**LOGITS, "data": {"class": "grammar", "tasks": {"names": "velu,tamir"}}}
SELECTION = {"strategy": {"class": "subset", "candidates": 5}, "blocks": "encoder-self"}
GATES = {"blocks": "decoder-self", "open": 0.3, "start": 2.0, "temperature": 0.5}
APART = {"kinds": "subspace,output", "weight": 0.5, "blocks": "encoder-self", "diagonal": False}


@pytest.mark.parametrize(
    "options",
    [
        {**LOGITS, "logits": {"blocks": "decoder-cross"}, "label_smoothing": 0.1},
        {"guide": "mean-field", "alignments": {"blocks": 2, "prior": "independent"}},
        {**LOGITS, "data": {"class": "speech", "folder": "folder"}, "ctc": 0.3},
        {**TASKS, "latents": "logits+selection", "selection": SELECTION},
        {**TASKS, "adapters": 3},
        {**LOGITS, "latents": "logits+gates", "gates": GATES},
        {**LOGITS, "disagreement": APART},
    ],
    ids=["smoothing", "alignments", "ctc", "select", "adapters", "gates", "disagreement"],
)
def test_what_settings_make_is_described_by_them(options: dict[str, Any]) -> None:
    settings = Settings.from_options({"network": SIZES, **options, "seed": 3, "num_samples": 5})
    pairs, heard = pets(), Positions(Filterbank(7, 3800)) if "ctc" in options else None
    processor = replace(pairs.processor, source=heard or pairs.source)
    corpus = replace(pairs, data=settings.data, processor=processor)
    model = make_model(settings, corpus.target, corpus.source)
    how = {"train": settings.train, "decode": settings.decode, "seed": 3, "num_samples": 5}
    computed_settings = Settings.of(model, settings.pair.make_guide(model), corpus, **how)
    assert computed_settings.to_yaml() == settings.to_yaml()
