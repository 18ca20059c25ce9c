"""A guide that is told another sentence's target: what its bound loses."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.batch import Batch
from latentheads.corpora import Part, Rows
from latentheads.distributions import HeadContext, NormalHeads
from latentheads.families import Family, Gaussian, HeadScale, Identity
from latentheads.guides import GUIDES, Guide
from latentheads.inference.evaluation import evaluate
from latentheads.inference.shuffled import shuffle_targets, shuffled_target
from latentheads.names import Block
from tests.latentheads.corpora.texts import story
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import FORMS, SOURCES, TARGETS, attach, build, jiggle
from tests.typechecking import unchecked


def part() -> Part:
    return Part(Rows.of(TARGETS), Rows.of(SOURCES))


def guide_of(name: str, model: Any, **options: Any) -> Any:
    return jiggle(GUIDES[name](model, **options).double(), 0.3).eval()


def test_every_sentence_is_told_the_words_behind_its_own() -> None:
    wrong = shuffle_targets(part()).targets
    assert [row.tolist() for row in wrong] == [[8, 9, 10, 2], [9, 2], [5, 6, 2]]
    blocks = Part(Rows.of([[5, 2, 6], [7, 2]]), None, block_size=3)
    assert [row.tolist() for row in shuffle_targets(blocks).targets] == [[7, 2, 5], [5, 2]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("condition_on", ["source", "prefix"])
def test_a_guide_that_reads_no_target_loses_exactly_nothing(shape: str, condition_on: str) -> None:
    model = aligned(SHAPES[shape])
    target = shuffled_target(model, guide_of("cascaded", model, condition_on=condition_on), part())
    assert target.fall == 0
    assert target.tokens == sum(map(len, TARGETS))


@pytest.mark.parametrize("shape", SHAPES)
def test_bayes_rule_of_another_target_loses(shape: str) -> None:
    model = aligned(SHAPES[shape])
    guide = guide_of("exact", model)
    target = shuffled_target(model, guide, part())
    assert target.fall > 1e-6
    assert target.elbo == pytest.approx(evaluate(model, guide, part()).elbo, rel=1e-12)
    assert shuffled_target(model, guide_of("tied", model), part()).fall == 0


def test_a_guide_that_reads_the_target_has_another_bound() -> None:
    model = aligned(SHAPES["one head"])
    assert shuffled_target(model, guide_of("mean-field", model), part()).fall != 0


@pytest.mark.parametrize("form", FORMS)
def test_with_noise_too_the_fall_of_a_guide_without_target_is_nothing(form: str) -> None:
    model = build()
    fall = shuffled_target(model, attach(form, model).eval(), part()).fall
    assert (fall == 0) == (not form.endswith("of target"))


class Summing(Guide):
    """Raises all logits of a sentence by the sum of its words."""

    def family(self, block: Block) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads))

    def posterior(self, block: Block, context: HeadContext) -> NormalHeads:
        words = context.batch.target.sum(-1)[:, None, None, None]
        return NormalHeads(context.scores + 0.1 * words, context)


def test_so_has_one_whose_heads_read_it() -> None:
    model = build()
    one, other = (shuffled_target(model, Summing(model), part(), seed) for seed in (0, 1))
    assert one.fall != 0
    assert one.elbo != other.elbo


def test_a_guide_is_told_for_a_while(batch: Batch) -> None:
    model = aligned(SHAPES["one head"])
    guide, other = guide_of("exact", model), Batch(batch.target.flip(0), batch.source)
    seen = []
    guide.get_posterior = lambda name, prior: seen.append(guide.batch) or prior
    with guide.conditioned_on(other):
        guide(batch)
    guide(batch)
    assert [item is other for item in seen] == [True, False]
    assert seen[1] is batch


def test_a_whole_corpus_is_no_part() -> None:
    with pytest.raises(
        ValueError, match=r"^part must be one of a corpus, as corpus.test, got Corp"
    ):
        unchecked(shuffle_targets)(story())


def test_what_cannot_be_shuffled_or_compared_is_refused() -> None:
    model = aligned(SHAPES["one head"])
    guide = guide_of("cascaded", model)
    alone = Part(Rows.of([[5, 6, 2]]), Rows.of([[4, 2]]))
    with pytest.raises(ValueError, match=r"^part must have two sentences or more"):
        shuffled_target(model, guide, alone)
    with pytest.raises(ValueError, match="guide must be one of this model"):
        shuffled_target(aligned(SHAPES["one head"]), guide, part())
    with pytest.raises(ValueError, match="seed must be at least 0"):
        shuffled_target(model, guide, part(), seed=-1)
