"""Where alignments and cross-attention point, and their scores against gold links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from latentheads.batch import Batch
from latentheads.contrib.heads import (
    LinkScore,
    Recording,
    alignment_distributions,
    likeliest_links,
    score_alignments,
    score_attention,
    score_best_attention,
)
from latentheads.corpora import Corpus, Mixture, Part, Rows, Task
from latentheads.corpora.from_grammar import sample_pairs, sample_tasks
from latentheads.guides import GUIDES
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.logits.latent import Logits
from latentheads.metrics.alignment import LinkCounts, count_links
from latentheads.models import LanguageModel, Translation
from tests.guides.attached import SUMMED
from tests.latentheads.latents.alignments.models import SHAPES, SOFT, aligned
from tests.tiny import build, jiggle, padded, sizes
from tests.typechecking import unchecked

OPTIONS = {**SHAPES, "two soft heads": AlignmentOptions(1, 2, "soft", 5)}
EVERY = [(shape, name) for shape in SHAPES for name in SUMMED]


def attach(name: str, model: Any) -> Any:
    return jiggle(GUIDES[name](model).double(), 0.3).eval()


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return sample_pairs(sentences=60, held_out=5)


def model_of(corpus: Corpus, shape: str = "") -> Any:
    types = len(corpus.source or ()), len(corpus.target)
    options = OPTIONS[shape] if shape else None
    model = Translation(
        *types,
        sizes(width=6),
        latents=[Logits(attention_types=()), *([options] if options else [])],
    )
    return jiggle(model, 0.5).double().eval()


@pytest.mark.parametrize(("shape", "name"), EVERY)
def test_laws_are_those_of_prior_guide_and_bayes(shape: str, name: str, batch: Batch) -> None:
    model = aligned(SHAPES[shape])
    distributions = alignment_distributions(model, attach(name, model), batch)
    names = {"two heads": [(0, 0), (0, 1)], "two blocks": [(0, 0), (1, 0)]}.get(shape, [(0, 0)])
    assert distributions.heads == tuple(
        f"decoder.{layer}.alignment head {head}" for layer, head in names
    )
    assert distributions.prior.shape[1] == SHAPES[shape].total_heads == len(names)
    for distribution in (distributions.prior, distributions.guide, distributions.posterior):
        assert torch.allclose(distribution.sum(-1), torch.ones(()), rtol=1e-12)
        assert (distribution[1, ..., 2:] == 0).all()  # padding is never pointed at
    assert torch.equal(distributions.guide, distributions.prior) == (name == "tied")
    assert torch.allclose(distributions.guide, distributions.posterior, atol=1e-12) == (
        name == "exact"
    )


def test_drawn_heads_stand_still(batch: Batch) -> None:
    model = aligned(SHAPES["one head"], prior="independent", blocks="encoder-self")
    guide = attach("cascaded", model)
    assert torch.equal(*(alignment_distributions(model, guide, batch).prior for _ in range(2)))


@pytest.mark.parametrize("options", [None, SOFT["soft"]])
def test_without_drawn_alignments_there_is_no_law(options: Any, batch: Batch) -> None:
    model = aligned(options)
    with pytest.raises(ValueError, match="this model has no latent alignments"):
        alignment_distributions(model, GUIDES["tied"](model), batch)


WEIGHTS = torch.tensor(
    [
        [[0.1, 0.2, 0.0, 0.7], [0.5, 0.3, 0.1, 0.1], [1.0, 0.0, 0.0, 0.0]],
        [[0.0, 0.0, 0.6, 0.4], [torch.nan] * 4, [1.0, 0.0, 0.0, 0.0]],
    ]
)


def test_a_word_is_linked_to_the_likeliest_word() -> None:
    """The end of the source, the fourth token, is not a word; nor is that of the target."""
    batch = Batch.of([[5, 6, 2]], [[4, 5, 6, 2]])
    ((first, second),) = likeliest_links(WEIGHTS[None], batch)
    assert first == {(1, 0), (0, 1)}
    assert second == {(2, 0)}  # its second word is of a silent head
    ((tagged, _),) = likeliest_links(WEIGHTS[None], batch, tagged=True)
    assert tagged == {(1, 0), (1, 1)}
    empty = Batch.of([[5, 6, 2]], [[2, 0, 0, 0]])
    assert likeliest_links(WEIGHTS[None], empty) == [[set(), set()]]
    with pytest.raises(ValueError, match="links are between a source and a target, and this batch"):
        likeliest_links(WEIGHTS[None], Batch.of([[5, 6, 2]]))


def test_a_word_is_linked_where_it_is_rather_copied_than_generated() -> None:
    """Key 0 is no position; two positions with the same word share the probability."""
    weights = torch.tensor([[[[0.4, 0.2, 0.1, 0.3], [0.6, 0.4, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]])
    batch = Batch.of([[5, 6, 2]], [[5, 5, 2]])
    assert likeliest_links(weights, batch, first_position=1) == [[{(0, 0)}]]


def test_padding_changes_no_link(batch: Batch) -> None:
    model = aligned(SHAPES["two heads"])
    guide = attach("cascaded", model)
    wide = padded(batch, 2, 3)
    for name in ("prior", "guide", "posterior"):
        one, other = (
            likeliest_links(getattr(alignment_distributions(model, guide, item), name), item)
            for item in (batch, wide)
        )
        assert one == other


@pytest.mark.parametrize("shape", ["one head", "two blocks"])
def test_scores_are_counted_over_all_sentences(corpus: Corpus, shape: str) -> None:
    model, part = model_of(corpus, shape), corpus.test
    guide = attach("mean-field", model)
    scores = score_alignments(model, guide, part)
    assert {len(score.by_sentence) for score in scores} == {len(part)}
    actual = {(s.distribution, s.head): s.counts for s in scores}
    whole = Batch.of([row.tolist() for row in part.targets], [row.tolist() for row in part.sources])
    distributions = alignment_distributions(model, guide, whole)
    for name in ("prior", "guide", "posterior"):
        links = likeliest_links(getattr(distributions, name), whole)
        for index, head in enumerate(distributions.heads):
            wanted = count_links([link[index] for link in links], part.links)
            assert actual.pop((name, head)) == wanted
            assert wanted.found == sum(len(row) - 1 for row in part.targets)
        if len(distributions.heads) > 1:
            union = [frozenset().union(*link) for link in links]
            assert actual.pop((name, "all heads")) == count_links(union, part.links)
    assert not actual


def test_the_error_rate_has_an_interval_over_sentences() -> None:
    none, right = LinkCounts(3, 3, 0, 0), LinkCounts(3, 3, 3, 3)
    whole = LinkCounts(120, 120, 60, 60)
    score = LinkScore("prior", "head 0", whole, (none, right) * 20)
    low, high = score.interval()
    assert (low + high) / 2 == pytest.approx(whole.aer, abs=0.03)
    assert (high - low) / 2 == pytest.approx(1.96 * 0.5 / 40**0.5, rel=0.1)
    assert np.isnan(replace(score, by_sentence=(right,)).interval()).all()


def test_soft_heads_have_their_own_law(corpus: Corpus) -> None:
    """Made of the same weights as a model that draws, they are its prior."""
    drawn, soft = (model_of(corpus, shape) for shape in ("two heads", "two soft heads"))
    soft.load_state_dict(drawn.state_dict())
    guide = GUIDES["tied"](drawn)
    prior = [s for s in score_alignments(drawn, guide, corpus.test) if s.distribution == "prior"]
    alignment_scores = score_alignments(soft, GUIDES["tied"](soft), corpus.test)
    assert [(s.head, s.counts) for s in alignment_scores] == [(s.head, s.counts) for s in prior]
    assert {s.distribution for s in alignment_scores} == {"soft"}
    assert not soft.alignments._forward_pre_hooks


def test_attention_is_read_where_it_predicts_and_one_step_further(corpus: Corpus) -> None:
    model, part = model_of(corpus), corpus.test.first(1)
    whole = Batch.of([part.targets[0].tolist()], [part.sources[0].tolist()])
    with Recording(model) as heads:
        model.states(whole)
    actual = {(s.distribution, s.head): s.counts for s in score_attention(model, part)}
    assert len(actual) == 2 * 2 * 3
    for layer, head in ((0, 1), (1, 2)):
        weights = heads[f"decoder.{layer}.cross"].weights[0, head, :, :-1]
        best = weights.argmax(-1).tolist()
        name = f"decoder.{layer}.cross head {head}"
        for text, rows in (("attention before", best[:-1]), ("attention after", best[1:])):
            links = {(row, word) for word, row in enumerate(rows)}
            assert actual[text, name] == count_links([links], part.links)


def test_the_best_head_is_chosen_on_validation(corpus: Corpus) -> None:
    model = model_of(corpus)
    chosen, every = (score_attention(model, part) for part in (corpus.valid, corpus.test))
    best = score_best_attention(model, corpus.valid, corpus.test)
    assert [score.distribution for score in best] == ["attention before", "attention after"]
    for score in best:
        rivals = [item for item in chosen if item.distribution == score.distribution]
        assert score.head == min(rivals, key=lambda rival: rival.counts.aer).head
        assert score in every


def test_a_tag_is_no_word() -> None:
    """Gold links to the tag, against all rules, are never found."""
    tasks = (Task("en", "velu"), Task("en", "tamir"))
    corpus = sample_tasks(Mixture(tasks), [30, 30], 3)
    model, part = model_of(corpus, "one head"), corpus.test
    first = [{(0, word) for word in range(len(row) - 1)} for row in part.targets]
    scores = score_alignments(model, GUIDES["tied"](model), replace(part, links=first))
    assert [score.counts.found_sure for score in scores] == [0, 0, 0]
    assert scores[0].counts.found == scores[0].counts.sure


def test_without_gold_links_there_is_no_score(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="part has no links: only the grammar has gold"):
        score_attention(model_of(corpus), corpus.train)
    with pytest.raises(ValueError, match=r"^part must be one of a corpus, as corpus.test, got"):
        unchecked(score_attention)(model_of(corpus), [corpus.train])


def test_a_language_model_has_no_cross_attention() -> None:
    model = build("language-model")
    assert isinstance(model, LanguageModel)
    part = Part(Rows.of([[5, 2]]), None, links=[{(0, 0)}])
    assert score_attention(model, part) == score_best_attention(model, part, part) == []


def test_a_guide_of_another_model_is_refused(corpus: Corpus, batch: Batch) -> None:
    model, guide = aligned(SHAPES["one head"]), attach("mean-field", aligned(SHAPES["one head"]))
    for score in (
        lambda: alignment_distributions(model, guide, batch),
        lambda: score_alignments(model, guide, corpus.valid),
        lambda: score_attention(model, corpus.valid, guide),
    ):
        with pytest.raises(ValueError, match=r"^guide must be one of this model"):
            score()
