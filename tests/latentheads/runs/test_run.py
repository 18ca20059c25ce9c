"""What a run writes with heads that are drawn, and what it reports of a part."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from latentheads.contrib.heads.word_alignment import align_lines
from latentheads.contrib.speech.transcription import transcribe_files
from latentheads.contrib.uncertainty import DeepEnsemble
from latentheads.corpora import Processor, Words
from latentheads.corpora.batches import collate
from latentheads.data import Tasks
from latentheads.decoding.options import Decoding
from latentheads.errors import UnfinishedError
from latentheads.inference.evaluation import evaluate
from latentheads.runs.generation import (
    check_ensemble,
    encode_sources,
    raise_on_skip,
    translate_lines,
    translate_texts,
)
from latentheads.runs.run import Run, share_corpora
from latentheads.runs.trained_model import TrainedModel
from tests.latentheads.contrib.page.runs import make_run, small_corpus
from tests.tiny import jiggle
from tests.typechecking import unchecked

CUT = small_corpus()
LINES = ["b a", "c e f"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("run") / "pairs", small_corpus())


def test_translations_of_a_number_differ_by_their_heads(run: Run) -> None:
    drawn = run.translate(LINES, num_return_sequences=5)
    assert [len(item) for item in drawn] == [5, 5]
    assert all(len(set(item)) > 1 for item in drawn)
    assert drawn == run.translate(LINES, num_return_sequences=5)
    assert drawn != run.translate(LINES, num_return_sequences=5, seed=1)
    assert run.translate(LINES) == run.translate(LINES, seed=1)


def test_draws_are_what_a_translation_averages_over(run: Run) -> None:
    averaged = run.translate(LINES, num_samples=5)
    assert all(isinstance(item, str) for item in averaged)
    assert run.translate(LINES, num_return_sequences=1, num_samples=5) == [
        [item] for item in averaged
    ]
    assert run.translate(LINES, num_return_sequences=1) != [[item] for item in averaged]


def test_what_draws_nothing_is_refused(run: Run, tmp_path: Path) -> None:
    plain = make_run(tmp_path / "plain", small_corpus(), "delta")
    text = make_run(tmp_path / "text", small_corpus(text=True), "delta")
    assert text.generate("a", max_new_tokens=3)
    nothing = "has no effect here: it needs"
    a_draw = f"{nothing} a run that samples"
    for draw, message in (
        (lambda: plain.translate(LINES, num_return_sequences=2), f"^num_return_sequences {a_draw}"),
        (
            lambda: run.translate(LINES, num_return_sequences=2, num_samples=0),
            f"^num_return_sequences {nothing} num_samples 1 or more, got 0$",
        ),
        (lambda: plain.translate(LINES, num_samples=2), f"^num_samples {a_draw}"),
        (lambda: text.generate("a", sample_heads=True), f"^sample_heads {a_draw}"),
    ):
        with pytest.raises(ValueError, match=message):
            draw()


def another(run: Run, seed: int) -> Run:
    """A run of the same corpus with other weights."""
    torch.manual_seed(seed)
    return replace(run, model=jiggle(deepcopy(run.model), 0.7))


def test_runs_write_together_by_their_mean_law(run: Run) -> None:
    others = [another(run, seed) for seed in (1, 2)]
    together = DeepEnsemble([one_run.model for one_run in (run, *others)])
    part = encode_sources(run, LINES, None, raise_on_skip).part
    for beam in (1, 3):
        decoding = replace(run.settings.decode, num_beams=beam)
        written = together.translate(collate(part, [0, 1]), decoding)
        expected = [run.target.decode(tokens) for tokens in written]
        assert run.translate(LINES, num_beams=beam, others=others) == expected
        assert expected != run.translate(LINES, num_beams=beam)
        assert run.translate(LINES, num_beams=beam, others=[run]) == run.translate(
            LINES, num_beams=beam
        )


def test_runs_of_one_corpus_alone_write_together(run: Run, text: Run) -> None:
    tasks = "a:de-en,b:de-en"
    mixed, data = (
        with_data(run, tasks=Tasks(tasks, distinguish_by=key)) for key in ("language", "domain")
    )
    for options, message in (
        (
            {"num_samples": 3, "others": [run]},
            r"^num_samples must be 0 for an ensemble of runs, got 3:",
        ),
        ({"others": [text]}, r"text has another source vocabulary than .*pairs: the"),
        (
            {"others": [replace(run, processor=replace(run.processor, target=Words([*"ab"])))]},
            "another target vocabulary",
        ),
        (
            {"num_return_sequences": 2, "others": [run]},
            r"^num_return_sequences is not for an ensemble of runs: drop it$",
        ),
        ({"others": [mixed]}, "another order of tasks"),
    ):
        with pytest.raises(ValueError, match=message):
            run.translate(LINES, **options)
    with pytest.raises(ValueError, match=r"another distinguish_by than .*pairs: the"):
        mixed.translate(LINES, direction="b:de-en", others=[data])


def with_data(run: Run, **changed: Any) -> Run:
    """A run that says something else of its corpus."""
    data = replace(run.settings.data, **changed)
    settings = replace(run.settings, data=data)
    return replace(run, settings=settings, processor=data.processor(run.target, run.source))


def test_a_corpus_that_a_reader_gave_to_one_run_is_not_that_of_others(run: Run) -> None:
    cut, first, second = (replace(run, user_corpus=given) for given in (CUT, None, None))
    share_corpora([cut, first, second])
    assert (cut.reads_with, first.reads_with, second.reads_with) == (None, None, first)


def test_vocabularies_are_compared_once_whatever_is_written(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of ten thousand subwords takes a twentieth of a second to write down."""
    decoding = run.settings.decode
    check_ensemble(run, [run], decoding)
    monkeypatch.setattr(type(run.target), "to_json", mock.Mock(side_effect=AssertionError))
    assert translate_lines(run, LINES, decoding, others=[run]) == run.translate(LINES)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("run") / "text", small_corpus(text=True))


def test_texts_with_drawn_heads_differ_by_them(text: Run) -> None:
    likeliest = {"max_new_tokens": 8, "temperature": 0}
    several = {"num_return_sequences": 9, "sample_heads": True, **likeliest}
    drawn = text.generate("a", **several)
    assert len(set(drawn)) > 1
    assert drawn == text.generate("a", **several)
    assert drawn != text.generate("a", **several, seed=1)
    once = text.generate("a", **likeliest, seed=1)
    assert text.generate("a", num_return_sequences=2, **likeliest) == [once, once]


def test_a_list_is_continued_and_translated_as_its_texts_are(run: Run, text: Run) -> None:
    likeliest = {"max_new_tokens": 4, "temperature": 0}
    continued = text.generate(["a", "b a"], **likeliest)
    assert continued == [text.generate(prompt, **likeliest) for prompt in ("a", "b a")]
    assert text.generate(["a"], num_return_sequences=2, **likeliest) == [2 * continued[:1]]
    translated = run.translate(LINES)
    assert isinstance(translated, list)
    assert [run.translate(line) for line in LINES] == translated
    with pytest.raises(ValueError, match=r"^num_return_sequences must be at least 1, got 0$"):
        text.generate("a", num_return_sequences=0)
    several = run.translate(LINES[0], num_return_sequences=2)
    assert several == run.translate(LINES[:1], num_return_sequences=2)[0]


def test_a_report_is_of_its_part_by_the_seed_and_draws_of_the_run(run: Run) -> None:
    other = replace(run, settings=replace(run.settings, seed=3, num_samples=2))
    expected = evaluate(run.model, run.guide, run.corpus.valid, num_samples=2, seed=3)
    assert other.evaluate("valid") == expected


def test_a_trained_model_translates_without_a_folder(run: Run) -> None:
    trained = TrainedModel(run.model, run.guide, Processor(run.target, run.source))
    decoding = run.settings.decode
    assert translate_texts(trained, LINES, decoding) == run.translate(LINES)
    with pytest.raises(ValueError, match=r"^the model has no speech input: use"):
        transcribe_files(trained, ["some.wav"], decoding)
    with pytest.raises(ValueError, match=r"^the model has no "):
        align_lines(trained, LINES, LINES)


SENTENCE = "b a c d e f g"


def with_options(run: Run, **changes: Any) -> Run:
    return replace(run, settings=replace(run.settings, **changes))


def with_limits(run: Run, **limits: int) -> Run:
    return replace(run, processor=replace(run.processor, **limits))


def test_a_source_is_cut_where_the_run_cuts_it(run: Run) -> None:
    batch = with_limits(run, max_source=5).read_sentence(SENTENCE, "a b")
    assert batch.source is not None
    assert batch.source.tolist() == [[*CUT.target.encode(SENTENCE)[:4], 2]]
    assert batch.target.tolist() == [CUT.target.encode("a b")]
    cut = with_limits(run, max_source=5, max_line=6).read_sentence(f"{SENTENCE} " * 9999, "a b")
    assert cut.source is not None
    assert torch.equal(cut.source, batch.source)


def test_a_translation_is_that_of_the_seed_and_moves_no_other_noise(run: Run) -> None:
    drawing = with_options(run, decode=Decoding(num_samples=1, max_new_tokens=5))
    before, names = torch.get_rng_state(), set()
    for seed in range(5):
        batch = drawing.read_sentence(SENTENCE, seed=seed)
        (expected,) = drawing.translate([SENTENCE], seed=seed)
        assert batch.target.tolist() == [CUT.target.encode(expected)]
        names.add(expected)
    assert len(names) > 1
    assert torch.equal(before, torch.get_rng_state())


def test_what_cannot_be_read_is_refused(run: Run, text: Run) -> None:
    for trained in (run, text):
        with pytest.raises(ValueError, match=r"^sentence must contain a word, got ' '$"):
            trained.read_sentence(" ")
    with pytest.raises(ValueError, match=r"^sentence must be one text, got \['a', 'b'\]$"):
        unchecked(Run.read_sentence)(run, ["a", "b"])
    with pytest.raises(ValueError, match=r"^target must be one text, got \['a'\]$"):
        unchecked(Run.read_sentence)(run, SENTENCE, ["a"])
    limited = with_limits(run, max_line=7)
    for read in (limited.read_sentence, limited.translate):
        with pytest.raises(UnfinishedError, match=r"^line 1: 8 tokens, more than max_line 7$"):
            read(SENTENCE)
    with pytest.raises(ValueError, match="has a single direction: drop direction"):
        run.read_sentence(SENTENCE, direction="en-velu")
    assert text.read_sentence(SENTENCE).target.tolist() == [CUT.target.encode(SENTENCE)]
    with pytest.raises(ValueError, match="is a language model: drop target and direction"):
        text.read_sentence(SENTENCE, "a")
