"""Where the words of a sentence point: prior, guide and exact posterior side by side."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import latentheads as lh
from latentheads.contrib.heads import AlignmentDistributions, alignment_distributions
from latentheads.contrib.plot import draw_alignments
from latentheads.corpora import Corpus
from latentheads.corpora.from_grammar import sample_pairs, sample_text_corpus
from latentheads.decoding.options import Decoding
from latentheads.guides import GUIDES
from latentheads.latents.logits.latent import Logits
from latentheads.models import LanguageModel, Translation
from latentheads.runs.pairs import GuideSpec
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from tests.latentheads.contrib.plot.drawn import images, some_laws, ticks
from tests.latentheads.latents.alignments.models import SHAPES
from tests.tiny import jiggle, sizes

SOURCES, TARGETS = ["a", "b", "c", "<eos>"], ["k", "l", "<eos>"]


@pytest.mark.parametrize("heads", [1, 2])
def test_every_law_of_every_head_has_a_map_without_padding(heads: int) -> None:
    distributions = some_laws(heads)
    figure: Any = draw_alignments(
        distributions, SOURCES, TARGETS, guide="mine, reads target", title="read"
    )
    expected = [table[0, h, :3, :4] for h in range(heads) for table in _tables(distributions)]
    for shown, values in zip(images(figure), expected, strict=True):
        np.testing.assert_allclose(shown, values)
    titles = [axis.get_title() for axis in figure.axes[:3]]
    guide, posterior = "guide:\nmine, reads target", "exact posterior:\ngiven the token"
    assert titles == ["prior:\nbefore the token is known", guide, posterior]
    assert ticks(figure.axes[0], "y") == TARGETS
    assert ticks(figure.axes[3 * heads - 1], "x") == SOURCES
    assert figure.get_suptitle() == "read"
    assert not figure.axes[0].patches
    names = [figure.axes[3 * head].get_ylabel() for head in range(heads)]
    assert names == (
        ["target token"] if heads == 1 else [f"head {n}\ntarget token" for n in (0, 1)]
    )


def _tables(distributions: AlignmentDistributions) -> tuple[torch.Tensor, ...]:
    return distributions.prior, distributions.guide, distributions.posterior


@pytest.mark.parametrize("first", [0, 1])
def test_gold_links_are_framed_in_every_map(first: int) -> None:
    distributions = replace(some_laws(1), first_position=first)
    figure: Any = draw_alignments(distributions, SOURCES, TARGETS, {(2, 0), (0, 1)})
    for axis in figure.axes[:3]:
        corners = [(first - 0.5, 0.5), (first + 1.5, -0.5)]
        assert [patch.get_xy() for patch in axis.patches] == corners
    assert figure.get_suptitle().endswith("Framed: gold alignment.")
    message = rf"^links must be pairs of indices below {4 - first} and 3, got \({{}}, 0\)$"
    for key in (-1, 4 - first):
        with pytest.raises(ValueError, match=message.format(key)):
            draw_alignments(distributions, SOURCES, TARGETS, {(key, 0)})


def test_sound_is_drawn_above_every_law_in_its_time() -> None:
    distributions, frames = some_laws(1), np.random.default_rng(3).normal(size=(14, 5))
    figure: Any = draw_alignments(distributions, SOURCES, TARGETS, guide="mine", frames=frames)
    shown = images(figure)
    for index, values in enumerate(_tables(distributions)):
        np.testing.assert_allclose(shown[index], frames.T)
        np.testing.assert_allclose(shown[3 + index], values[0, 0, :3, :4])
        above, below = figure.axes[index], figure.axes[3 + index]
        assert above.images[0].origin == "lower"
        assert above.images[0].get_extent() == [-0.5, 3.0, 0, 5]  # a position is four frames
        assert above.get_xlim() == below.get_xlim() == (-0.5, 3.5)  # the last position is whole
        assert below.get_xlabel() == "position in the audio"
    assert figure.axes[1].get_title() == "guide:\nmine"
    assert ticks(figure.axes[3], "y") == TARGETS


def finished(corpus: Corpus, shape: str | None) -> Run:
    latents = [SHAPES[shape]] if shape else []
    types = len(corpus.source or ()), len(corpus.target)
    model: Any = Translation(*types, sizes(), latents=[Logits(attention_types=()), *latents])
    model = jiggle(model, 0.3).double().eval()
    message = {"condition_on": "prefix"} if shape else {}
    guide = GUIDES["mean-field"](model, **message).double().eval()
    settings = Settings(guide=GuideSpec("mean-field"), decode=Decoding(max_new_tokens=4))
    return Run(Path("runs/mine"), settings, corpus.processor, model, guide, 7)


def test_a_run_shows_its_laws_of_a_sentence() -> None:
    run = finished(sample_pairs(sentences=40, held_out=4), "two blocks")
    figure: Any = lh.plot.alignments(run, "the cat", target="la la la")
    distributions = alignment_distributions(
        run.model, run.guide, run.read_sentence("the cat", "la la la")
    )
    expected = [table[0, head] for head in range(2) for table in _tables(distributions)]
    for shown, values in zip(images(figure), expected, strict=True):
        np.testing.assert_allclose(shown, values)
    assert figure.axes[1].get_title() == "guide:\nmean-field, conditioned on prefix"
    assert len(ticks(figure.axes[0], "y")) == 4
    own: Any = lh.plot.alignments(run, "the cat")
    assert 1 < len(ticks(own.axes[0], "y")) <= 5


def test_a_language_model_shows_which_words_before_its_words_point_at() -> None:
    text = sample_text_corpus(sentences=300, held_out=4)
    model: Any = LanguageModel(
        len(text.target), sizes(), latents=[Logits(attention_types=()), SHAPES["one head"]]
    )
    model = jiggle(model, 0.3).double().eval()
    guide = GUIDES["cascaded"](model).double().eval()
    settings = Settings(guide=GuideSpec("cascaded"))
    run = Run(Path("runs/mine"), settings, text.processor, model, guide, 7)
    figure: Any = lh.plot.alignments(run, "the cat sleeps")
    assert ticks(figure.axes[0], "y") == ["the", "cat", "sleeps", "<eos>"]
    assert ticks(figure.axes[0], "x") == ["null", "<bos>", "the", "cat"]
    assert figure.axes[1].get_xlabel() == "null or earlier token"
    assert figure.axes[-1].get_xlabel() == "probability of null or earlier token"
    distributions = alignment_distributions(model, guide, run.read_sentence("the cat sleeps"))
    for shown, values in zip(images(figure), _tables(distributions), strict=True):
        np.testing.assert_allclose(shown, values[0, 0])
        assert (shown[np.triu_indices(4, 1)] == 0).all()  # nothing points ahead


def test_without_alignments_there_is_nothing_to_show() -> None:
    run = finished(sample_pairs(sentences=40, held_out=4), None)
    with pytest.raises(ValueError, match="runs/mine has no latent alignments: there is nothing"):
        lh.plot.alignments(run, "the cat")


def test_a_long_pair_has_smaller_cells_and_fewer_labels() -> None:
    tables = [torch.full((1, 1, 199, 211), 1 / 211) for _ in range(3)]
    words = [f"a long word {number}, longer than a label" for number in range(211)]
    figure: Any = draw_alignments(AlignmentDistributions(("h",), *tables), words, words[:199])
    assert max(figure.get_size_inches()) < 25
    assert images(figure)[0].shape == (199, 211)
    rows, columns = ticks(figure.axes[0], "y"), ticks(figure.axes[2], "x")
    assert rows[:2] == ["a long word 0, longer t…", "a long word 4, longer t…"]
    assert (len(rows), len(columns)) == (50, 53)
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[2].get_xticklabels()]
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
