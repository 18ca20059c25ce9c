"""Pictures of a finished run, as a notebook asks for them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import latentheads as lh
from latentheads.contrib.heads.samples import sample_weights
from latentheads.corpora import Corpus
from latentheads.data.in_memory import data_of
from latentheads.decoding.options import Decoding
from latentheads.guides import Cascaded, Tied
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.logits.latent import Logits
from latentheads.latents.logits.options import LogitsOptions
from latentheads.models import LanguageModel, Translation, make_prior
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from tests.latentheads.contrib.page.runs import write_folder
from tests.latentheads.contrib.plot.drawn import images, ticks
from tests.tiny import jiggle, sizes
from tests.typechecking import unchecked

SENTENCE = "the old dog sleeps"


def finished(folder: Path, corpus: Corpus, given: bool = False, **results: Any) -> Run:
    """A run that has learned nothing; its corpus is made of its settings, unless it is given."""
    prior, network = make_prior("independent"), sizes()
    if corpus.source is None:
        model: Any = LanguageModel(len(corpus.target), network, latents=[Logits(prior)])
    else:
        model = Translation(
            len(corpus.source), len(corpus.target), network, latents=[Logits(prior)]
        )
    model = jiggle(model, 0.1).double().eval()
    guide = Cascaded(model).double().eval()
    write_folder(folder, **results)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("{")
    settings = Settings(
        data=data_of(corpus),
        decode=Decoding() if corpus.source is None else Decoding(max_new_tokens=5),
    )
    own = corpus if given else None
    return Run(folder, settings, corpus.processor, model, guide, 7, user_corpus=own)


@pytest.fixture(scope="module")
def pairs() -> Corpus:
    return lh.data.Grammar(sentences=300, held_out=6).load()


@pytest.fixture
def run(tmp_path: Path, pairs: Corpus) -> Run:
    return finished(tmp_path / "run", pairs)


def find_rows(figure: Any) -> list[Any]:
    """The axes that show one row with bars, from the first head to the last."""
    return [axis for axis in figure.axes if axis.patches and not axis.images]


def test_the_bound_and_the_kl_are_those_of_the_folder(run: Run) -> None:
    (line, *_) = lh.plot.bound(run).axes[0].get_lines()
    assert line.get_xydata().tolist() == [[1, 1.5], [2, 1.5], [3, 1.5]]
    bars = lh.plot.kl(run).axes[0].patches
    assert [bar.get_width() for bar in bars] == [0.25, 0.5]


def test_a_folder_is_as_good_as_its_run(pairs: Corpus, tmp_path: Path) -> None:
    model = Translation.of(pairs, latents=[LogitsOptions()], width=6, feed_forward=7, heads=3)
    options: dict[str, Any] = {"steps": 2, "report_every": 1, "tokens": 64, "num_samples": 1}
    trainer = lh.Trainer(model, Tied(model), pairs, out=tmp_path / "run", **options)
    trainer.train(quiet=True)
    for draw in (lh.plot.bound, lh.plot.kl_history):
        titles = [axis.get_title() for axis in draw(tmp_path / "run").axes]
        assert titles == [axis.get_title() for axis in draw(str(tmp_path / "run")).axes]
        assert titles == [axis.get_title() for axis in draw(lh.load_run(tmp_path / "run")).axes]
    with pytest.raises(ValueError, match="no-such-run is not a run folder"):
        lh.plot.bound("no-such-run")


def test_a_line_that_came_twice_is_drawn_once_and_a_broken_one_never(run: Run) -> None:
    path = run.path / "metrics.jsonl"
    first, second, third, *_ = path.read_text().splitlines()
    broken = second[:9]
    path.write_text("\n".join([first, broken, third, first]) + "\n")
    steps = lh.plot.bound(run).axes[0].get_lines()[0].get_xdata()
    assert list(steps) == [record["step"] for record in run.metrics] == [1, 3]


def test_divergence_is_read_on_the_validation_part_unless_another_is_given(
    run: Run, pairs: Corpus
) -> None:
    figure = lh.plot.divergence(run)
    text = " ".join(figure.get_suptitle().split())
    assert text.endswith(f"{run.settings.title}: heads at their prior's location, 6 sentences")
    given = lh.plot.divergence(run, pairs.valid, vmax=2.5)
    assert {axis.images[0].get_clim() for axis in given.axes if axis.images} == {(0, 2.5)}
    other = lh.plot.divergence(run, "test", sentences=3, sampled=True)
    text = " ".join(other.get_suptitle().split())
    assert text.endswith("heads sampled from the guide, 3 sentences")
    same, different = (
        [np.array_equal(*pair) for pair in zip(images(figure), images(item), strict=True)]
        for item in (given, other)
    )
    assert all(same)
    assert not any(different)
    with pytest.raises(ValueError, match=r"^part must be one of train, valid, test, or one of"):
        unchecked(lh.plot.divergence)(run, "tests")


def test_divergence_is_read_on_a_corpus_made_by_hand(tmp_path: Path, pairs: Corpus) -> None:
    run = finished(tmp_path / "run", replace(pairs, data=None), given=True)
    text = " ".join(lh.plot.divergence(run).get_suptitle().split())
    assert text.endswith("a corpus in memory, seed 0: heads at their prior's location, 6 sentences")


def test_heads_are_shown_on_the_sentence_and_its_translation(run: Run, pairs: Corpus) -> None:
    reference = pairs.valid.references[0]
    figure: Any = lh.plot.heads(run, SENTENCE, num_samples=3, target=reference)
    queries, keys = ["<bos>", *reference.split()], [*SENTENCE.split(), "<eos>"]
    expected = [word if word in pairs.target.words else "<unk>" for word in queries]
    assert ticks(figure.axes[0], "y") == expected
    assert ticks(find_rows(figure)[-1], "x") == keys
    assert "attention in decoder.1.cross, 3 samples" in figure.get_suptitle()
    own: Any = lh.plot.heads(run, SENTENCE, num_samples=3, block="encoder.0.self")
    assert ticks(own.axes[0], "y") == keys


def test_the_weights_are_those_of_the_draws(run: Run) -> None:
    figure = lh.plot.heads(run, SENTENCE, num_samples=3, target="", block="encoder.1.self", seed=5)
    batch = run.read_sentence(SENTENCE, "")
    encoder_1_self = sample_weights(run.model, run.guide, batch, 3, 5)["encoder.1.self"]
    for shown, values in zip(
        images(figure), [*encoder_1_self.mean[0], *encoder_1_self.deviation[0]], strict=True
    ):
        np.testing.assert_allclose(shown, values)


def test_a_direction_is_needed_where_there_are_several(tmp_path: Path, pairs: Corpus) -> None:
    tasks = lh.data.Grammar(tasks=lh.data.Tasks("velu,tamir"), sentences=40, held_out=4).load()
    run = finished(tmp_path / "run", tasks)
    with pytest.raises(ValueError, match="give direction, one of en-velu, en-tamir"):
        lh.plot.heads(run, SENTENCE, num_samples=2)
    figure: Any = lh.plot.heads(run, "dog", num_samples=2, direction="tamir")
    assert ticks(find_rows(figure)[-1], "x")[0] == "<2tamir>"


def test_a_language_model_reads_its_own_text(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", lh.data.GrammarText(sentences=200, held_out=6).load())
    figure: Any = lh.plot.heads(run, "the dog sleeps", num_samples=2)
    assert ticks(figure.axes[0], "y") == ["<bos>", "the", "dog", "sleeps"]
    assert "decoder.1.self" in figure.get_suptitle()
    for name in ("target", "direction"):
        with pytest.raises(ValueError, match="is a language model: drop target and direction"):
            lh.plot.heads(run, "the dog sleeps", num_samples=2, **{name: "velu"})


def test_a_selection_is_drawn_of_a_run_that_has_one(tmp_path: Path, pairs: Corpus) -> None:
    block = "encoder.0.self"
    side = {"tasks": [""], "chosen": {block: [[True, False]]}, "sharing": [[1.0]]}
    side |= {"probabilities": {block: [[0.75, 0.25]]}, "by_chance": 0.5}
    run = finished(tmp_path / "run", pairs, selection={"encoder-self": side})
    assert images(lh.plot.selection(run))[0].tolist() == [[0.75, 0.25]]
    with pytest.raises(ValueError, match="no record has a selection"):
        lh.plot.selection_history(run)


def test_gates_are_those_of_the_guide(run: Run) -> None:
    network = sizes()
    gating = GateOptions("encoder-self,decoder-cross", start=0.3).gating(network.heads)
    model = Translation(8, 9, network, latents=[gating]).double()
    run.model, run.guide = model, Tied(model).double()
    shown = images(lh.plot.gates(run))
    blocks = ("encoder_0_self", "encoder_1_self", "decoder_0_cross", "decoder_1_cross")
    expected = [run.guide.selections[block]().mode[0].detach().numpy() for block in blocks]
    np.testing.assert_allclose(np.concatenate(shown), np.stack(expected))
    assert 0 < np.concatenate(shown).min() < np.concatenate(shown).max() < 1


def test_heads_are_shown_that_speak_at_test_time(run: Run) -> None:
    network = sizes()
    gating = GateOptions("encoder-self", start=0.0).gating(network.heads)
    types = len(run.source or ()), len(run.target)
    model = Translation(
        *types, network, latents=[Logits(make_prior("independent")), gating]
    ).double()
    run.model, run.guide = model.eval(), Cascaded(model).double().eval()
    for seed in range(3):  # half open, so that some draw closes one
        figure = lh.plot.heads(run, SENTENCE, 2, "encoder.0.self", target="", seed=seed)
        assert not np.isnan(np.stack(images(figure))).any()


def test_what_cannot_be_drawn_is_named(run: Run) -> None:
    heads, first = partial(lh.plot.heads, run, SENTENCE), "encoder.0.self"
    for draw, text in (
        (partial(lh.plot.gates, run), "has no gates"),
        (partial(lh.plot.selection, run), "has no selection of heads"),
        (partial(heads, 2, "here"), r"block must be one of encoder\.0\.self, .*; got 'here'"),
        (partial(heads, direction="en-velu"), "has a single direction: drop direction"),
        (partial(heads, 2, first, target="", links={(0, 0)}), r"links need .*self is none"),
    ):
        with pytest.raises(ValueError, match=text):
            draw()
    (run.path / "results.json").unlink()
    (run.path / "metrics.jsonl").unlink()
    lost = replace(run)
    with pytest.raises(ValueError, match="not a finished run: it has no complete results"):
        lh.plot.kl(lost)
    with pytest.raises(ValueError, match="it was not trained"):
        lh.plot.bound(lost)
