"""The bound of single sentences: together they are that of a part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import latentheads as lh
from latentheads.corpora import Part, Rows, batches
from latentheads.guide import ModelGuide
from latentheads.guides import Cascaded
from latentheads.inference.evaluation import evaluate
from latentheads.inference.sentences import part_bounds, sentence_bounds
from latentheads.latents.gates.hard_gates import Gating
from latentheads.models import Translation
from latentheads.runs.build import make_model
from latentheads.runs.settings import Settings
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import (
    SOURCE_TYPES,
    SOURCES,
    TARGET_TYPES,
    TARGETS,
    attach,
    build,
    jiggle,
    sizes,
    small_batch,
)

PART = Part(Rows.of(TARGETS), Rows.of(SOURCES))


def pairs(kind: str) -> tuple[Any, ModelGuide]:
    if kind in ("alignments", "alignments above heads"):
        blocks = "none" if kind == "alignments" else "decoder-self"
        model = aligned(SHAPES["one head"], prior="independent", blocks=blocks)
        return model, jiggle(Cascaded(model).double(), 0.3).eval()
    model = build(prior="delta" if kind == "still" else "independent").eval()
    return model, attach("tied" if kind == "still" else "cascaded", model).eval()


@pytest.mark.parametrize("kind", ["noisy", "still", "alignments", "alignments above heads"])
def test_together_they_are_the_bound_of_the_part(kind: str) -> None:
    model, guide = pairs(kind)
    report = evaluate(model, guide, [small_batch()], num_samples=3, seed=5)
    bounds = sentence_bounds(model, guide, small_batch(), num_samples=3, seed=5)
    tokens = bounds.tokens.sum()
    assert tokens == report.tokens
    for name in ("elbo", "kl", "plug_in", "iwae"):
        mean = float(getattr(bounds, name).sum() / tokens)
        assert mean == pytest.approx(getattr(report, name), abs=1e-12)
    if kind in ("still", "alignments"):
        assert float(bounds.exact.sum() / tokens) == pytest.approx(report.exact, abs=1e-12)
    else:
        assert bounds.exact is None
    assert bounds.varies == (kind in ("noisy", "alignments above heads"))
    assert bounds.shared_kl == 0
    assert bounds.pareto_k.isnan().all()  # of three draws no tail is known


@pytest.mark.parametrize("kind", ["noisy", "still", "alignments", "alignments above heads"])
def test_those_of_a_part_are_its_figures_in_its_order(kind: str) -> None:
    model, guide = pairs(kind)
    cut = list(batches(PART, 1, shuffle=False))[::-1]
    assert len(cut) == len(PART)
    bounds = part_bounds(model, guide, cut, num_samples=2, seed=5)
    report = evaluate(model, guide, cut, num_samples=2, seed=5)
    assert bounds.tokens.tolist() == PART.targets.lengths.tolist()
    nats = report.exact if kind == "alignments" else report.iwae  # the tightest that is known
    assert float(bounds.nats.sum() / bounds.tokens.sum()) == pytest.approx(nats, abs=1e-12)
    if not bounds.varies:
        alone = sentence_bounds(model, guide, small_batch(), num_samples=1)
        for beside in (alone, part_bounds(model, guide, PART)):
            assert beside.nats.tolist() == pytest.approx(bounds.nats.tolist(), abs=1e-12)


def test_a_guide_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="it belongs to another"):
        part_bounds(pairs("still")[0], pairs("still")[1], [small_batch()])


def test_batches_that_tell_no_places_stay_in_their_order() -> None:
    model, guide = pairs("still")
    given_batches = list(batches(PART, 1, shuffle=False))
    untold = [replace(given_batch, index=None, corpus_size=0) for given_batch in given_batches]
    wanted = torch.cat(
        [part_bounds(model, guide, [given_batch]).nats for given_batch in given_batches]
    )
    assert torch.equal(part_bounds(model, guide, untold).nats, wanted)


def selecting() -> tuple[Any, ModelGuide]:
    """A model with gates that all sentences share."""
    gates = Gating(3, ("encoder-self",))
    model = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=[gates]).double().eval()
    return model, jiggle(Cascaded(model).double(), 0.3).eval()


def test_a_kl_that_all_sentences_share_is_paid_once_in_a_part() -> None:
    model, guide = selecting()
    cut = list(batches(PART, 1, shuffle=False))
    bounds = part_bounds(model, guide, cut, num_samples=2, seed=5)
    report = evaluate(model, guide, cut, num_samples=2, seed=5)
    assert bounds.shared_kl > 0
    assert float(bounds.nats.sum() / bounds.tokens.sum()) == pytest.approx(report.elbo, abs=1e-12)


def test_a_latent_that_all_sentences_share_leaves_no_weights_of_one() -> None:
    model, guide = selecting()
    bounds = sentence_bounds(model, guide, small_batch(), num_samples=2, seed=5)
    assert bounds.iwae is None
    assert bounds.pareto_k is None
    report = evaluate(model, guide, [small_batch()], num_samples=2, seed=5)
    of_all = bounds.elbo.sum() - bounds.shared_kl
    assert bounds.shared_kl > 0
    assert float(of_all / bounds.tokens.sum()) == pytest.approx(report.elbo, abs=1e-12)


def test_a_task_that_does_not_occur_is_not_paid_for() -> None:
    corpus = lh.data.Grammar(tasks=lh.data.Tasks("velu,tamir"), sentences=20, held_out=6).load()
    settings = Settings.from_options(
        {
            "data": {"tasks": {"names": "velu,tamir"}},
            "recipe": "group",
            "network": {"width": 6, "heads": 3, "layers": 1},
        }
    )
    model = make_model(settings, corpus.target, corpus.source).double().eval()
    guide = settings.pair.make_guide(model).double().eval()
    jiggle(guide, 0.3)
    paid = []
    for part in (
        corpus.test,
        *(corpus.test.take(corpus.test.indices_of_task(task)) for task in (0, 1)),
    ):
        bounds = part_bounds(model, guide, part, num_samples=2, seed=5)
        report = evaluate(model, guide, part, num_samples=2, seed=5)
        assert float(bounds.nats.sum() / bounds.tokens.sum()) == pytest.approx(
            report.elbo, abs=1e-9
        )
        paid.append(float(bounds.shared_kl))
    assert 0 < max(paid[1:]) < paid[0]
    indices = corpus.test.indices_of_task(0)
    truth = torch.full((len(corpus.test),), torch.nan)
    truth[indices] = 0.0
    some = evaluate(model, guide, corpus.test, truth=truth.tolist(), num_samples=2, seed=5)
    nats = part_bounds(model, guide, corpus.test, num_samples=2, seed=5)
    own = nats.elbo[indices].sum() - paid[1]
    assert some.truth_elbo == pytest.approx(float(own / nats.tokens[indices].sum()), abs=1e-9)
