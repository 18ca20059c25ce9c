"""A model translates with its corpus or its vocabularies, without a run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import latentheads as lh
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.logits.options import LogitsOptions
from latentheads.models import LanguageModel, Translation
from latentheads.runs.run import Run
from tests.latentheads.contrib.page.runs import make_run, small_corpus
from tests.typechecking import unchecked

LINES = ["b a", "", "c e f"]
SMALL: dict[str, Any] = {"width": 4, "feed_forward": 2, "heads": 1, "layers": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("run") / "pairs", small_corpus())


def test_translations_are_those_of_the_run(run: Run) -> None:
    expected = run.translate(LINES, num_beams=3, max_new_tokens=6)
    assert any(expected)
    corpus, options = run.corpus, {"num_beams": 3, "max_new_tokens": 6}
    assert lh.translate(run.model, corpus, LINES, **options) == expected
    assert lh.translate(run.model, corpus.processor, LINES, **options) == expected
    assert lh.translate(run.model, corpus, LINES, guide=run.guide, **options) == expected
    sampled = lh.translate(run.model, corpus, LINES, num_return_sequences=3, seed=1, **options)
    assert sampled == run.translate(LINES, num_return_sequences=3, seed=1, **options)


def test_selected_heads_are_those_of_the_guide(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus(), aligned="gates")
    own = lh.translate(run.model, run.corpus, LINES, guide=run.guide, max_new_tokens=6)
    tied = lh.guides.Tied(run.model)
    prior = lh.translate(run.model, run.corpus, LINES, guide=tied, max_new_tokens=6)
    assert own == run.translate(LINES, max_new_tokens=6) != prior


def test_pairs_of_ones_own_are_trained_on_and_translated(tmp_path: Path) -> None:
    pairs = [("eins zwei", "one two"), ("drei", "three")] * 4
    corpus = lh.data.Corpus.from_pairs(pairs, pairs[:2], pairs[:2], vocab_size=300)
    model = Translation.of(corpus, latents=[LogitsOptions()], **SMALL)
    guide = lh.guides.Tied(model)
    lh.Trainer(model, guide, corpus, steps=1, out=tmp_path, quiet=True).fit()
    expected = lh.load_run(tmp_path, corpus=corpus).translate(["eins drei"], max_new_tokens=4)
    assert lh.translate(model, corpus, ["eins drei"], max_new_tokens=4) == expected


def test_a_model_that_was_just_trained_continues_texts_without_dropout() -> None:
    text = lh.data.GrammarText(sentences=20, held_out=2).load()
    model = LanguageModel.of(text, latents=[], dropout=0.5, **SMALL)
    texts = lh.inference.generate(model, text, ["the", "a"], temperature=0, max_new_tokens=6)
    assert all(module.training for module in model.modules())
    assert texts == lh.inference.generate(
        model.eval(), text, ["the", "a"], temperature=0, max_new_tokens=6
    )


def test_what_cannot_be_translated_is_one_line(run: Run) -> None:
    corpus, model = run.corpus, run.model
    other = Translation.of(corpus, latents=[GateOptions()], **SMALL)
    text = replace(corpus.processor, source=None)
    language_model = LanguageModel.of(
        lh.data.GrammarText(sentences=20, held_out=2).load(), latents=[LogitsOptions()], **SMALL
    )
    wrong = lh.data.Grammar(sentences=20, held_out=2).load()
    for arguments, options, message in (
        ((model, corpus, ["b a", 3]), {}, r"sentences must be texts, got 3"),
        ((model, corpus, LINES), {"num_beams": 0}, "num_beams must be at least 1, got 0"),
        ((run, corpus, LINES), {}, r"model must be one that decodes, .* or run\.model, got"),
        ((model, run, LINES), {}, "processor must be a Corpus, or the processor of one, got"),
        ((model, wrong, LINES), {}, "the target vocabulary of the processor has .* tokens"),
        ((other, corpus, LINES), {}, "guide is missing: this model selects its heads by its guide"),
        ((model, corpus, LINES), {"guide": lh.guides.Tied(other)}, "guide must be one of this mo"),
        ((model, text, LINES), {}, "the model is a language model: it has no source"),
        ((language_model, wrong, LINES), {}, "the target vocabulary of the processor has "),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            unchecked(lh.translate)(*arguments, **options)
