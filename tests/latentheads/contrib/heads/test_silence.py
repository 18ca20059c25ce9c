"""Heads that are silent stand in no measure, and a measure is the same whatever the batches."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from latentheads.attention.disagreement import KINDS, Disagreement
from latentheads.batch import Batch
from latentheads.contrib.heads import (
    PositionalDetector,
    RareWordDetector,
    Recording,
    SyntacticDetector,
    detect,
    gradient_importance,
    measure,
    relevance,
    to_datatree,
)
from latentheads.contrib.heads.divergence import divergence
from latentheads.corpora.grammar import Arc
from latentheads.guides import Tied
from latentheads.handlers import PlugIn
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.handlers import WithSelection
from latentheads.latents.logits.latent import Logits
from latentheads.latents.selection.strategies import STRATEGIES, make_selector
from latentheads.latents.selector import Selector
from latentheads.models import Translation, make_prior
from latentheads.names import ATTENTION_TYPES
from latentheads.pruning import all_heads, fold_selection, remove_heads
from tests.tiny import HEADS, SOURCE_TYPES, TARGET_TYPES, attach, build, jiggle, padded, sizes

SENTENCES = [[5, 6, 7, 2], [8, 2], [9, 10, 2], [6, 2]]
READ = [[4, 5, 6, 2], [7, 6, 2], [5, 5, 8, 5, 2], [9, 4, 10, 7, 2]]
TASKS = [0, 1, 0, 1]
ARCS = [
    [Arc("nsubj", 1, 0), Arc("dobj", 1, 2)],
    [Arc("nsubj", 1, 0)],
    [Arc("nsubj", 1, 0), Arc("dobj", 1, 3), Arc("amod", 3, 2)],
    [Arc("nsubj", 2, 0), Arc("dobj", 2, 3)],
]
CLOSED = [
    *((distribution, "delta") for distribution in (*STRATEGIES, "gates")),
    ("bernoulli", "cascaded"),
]
CLOSED += [("gates", "cascaded")]
"""Ways to choose or to close heads, and priors."""


def made(closed: str, prior: str) -> tuple[Any, Any]:
    """A model, and a guide some of whose heads are silent."""
    torch.manual_seed(4)
    logit_prior = make_prior(prior)
    if closed == "gates":
        chosen: Selector = Gating(HEADS, ATTENTION_TYPES)
    else:
        chosen = make_selector(closed, HEADS, 2 * HEADS, ATTENTION_TYPES, 2, 2)  # type: ignore[arg-type]
    network = sizes(layers=1)
    model = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=[Logits(logit_prior), chosen])
    model = jiggle(model, 0.4).double().eval()
    guide = Tied(model).double()
    with torch.no_grad():
        for index, family in enumerate(guide.posteriors.values()):
            signs = torch.ones(family.weight.shape)
            signs[:, index % 2 :: 2] = -4
            signs[1:] = signs[1:].flip(-1) if closed == "bernoulli" else signs[1:].roll(1, -1)
            family.weight.copy_(signs / model.selector.gain)
    return model, guide


def batch_of(order: Sequence[int], one_task: bool = False) -> Batch:
    batch = Batch.of([SENTENCES[n] for n in order], [READ[n] for n in order], order)
    tasks = torch.tensor([TASKS[n] for n in order])
    return replace(batch, source_task=tasks, target_task=tasks, one_task=one_task)


def wider(batch: Batch) -> Batch:
    more = padded(batch, 2, 3)
    return replace(batch, target=more.target, source=more.source)


EVERY = range(len(SENTENCES))


def apart() -> list[Batch]:
    """The sentences in another order: two tasks padded, one task, a task and sentence alone."""
    return [wider(batch_of([2, 1])), batch_of([0], True), wider(batch_of([3], True))]


def measures(model: Any, guide: Any, parts: Sequence[Batch]) -> Iterator[tuple[str, Tensor]]:
    """Everything that is measured of heads, by its name."""
    ranks = torch.arange(SOURCE_TYPES).flip(0)
    with WithSelection(guide):
        computed_measures = measure(model, parts)
        distance = divergence(model, parts)
        kinds: dict[str, Any] = {
            "entropy": computed_measures.entropy,
            "confidence": computed_measures.confidence,
            "cosine": computed_measures.cosine,
            "divergence": distance.summed,
            "divergence a query": distance.normalised,
            "importance": gradient_importance(model, parts, normalise=False),
        }
        propagated = relevance(model, parts)
        assert propagated.inputs == pytest.approx(propagated.logit, rel=1e-5)
        kinds |= {"relevance": propagated.shares, "relevance in logits": propagated.raw}
        positions, rarity = PositionalDetector(), RareWordDetector(ranks, 3)
        relations = SyntacticDetector(ARCS)
        detect(model, parts, [positions, rarity, relations], "encoder-self")
    rare, offsets, syntax = rarity.result(), positions.result(), relations.result()
    kinds |= {
        "offset": offsets.offset,
        "positional": offsets.share,
        "rare": rare.two,
        "chance": rare.chance,
        "asked": rare.count,
        "accuracy": syntax.accuracy,
        "baseline": syntax.baseline,
    }
    for kind, blocks in kinds.items():
        for block, value in blocks.items():
            yield f"{kind} of {block}", value.double()


def agreements(model: Any, guide: Any, parts: Sequence[Batch]) -> dict[str, Tensor]:
    """The agreement of the heads of every block in every sentence of the corpus, in its order."""
    actual: dict[str, Tensor] = {}
    for batch in parts:
        term = Disagreement(KINDS, diagonal=False)
        with WithSelection(guide), PlugIn(), term.record_agreement(model) as heard:
            model.states(batch)
        for block, value in heard.items():
            here = actual.setdefault(block, torch.zeros(len(SENTENCES)))
            here[batch.sentences] = value.detach()
    return actual


@pytest.mark.parametrize(("closed", "prior"), CLOSED)
def test_every_measure_is_the_same_whatever_the_batches(closed: str, prior: str) -> None:
    model, guide = made(closed, prior)
    values, other = (dict(measures(model, guide, parts)) for parts in ([batch_of(EVERY)], apart()))
    assert values.keys() == other.keys()
    for name, value in values.items():
        assert torch.allclose(other[name], value, atol=1e-7, equal_nan=True), name
    never = any(v.isnan().any() for name, v in values.items() if name.startswith("entropy"))
    assert never == (closed == "gates")
    agreed, other = (agreements(model, guide, parts) for parts in ([batch_of(EVERY)], apart()))
    for block, value in agreed.items():
        assert torch.allclose(other[block], value, atol=1e-9), block


@pytest.mark.parametrize("prior", ["delta", "cascaded"])
def test_a_closed_gate_reads_as_a_head_that_is_not_there(prior: str) -> None:
    model, guide = made("gates", prior)
    kept = {
        key.replace("_", "."): family().mode[0].nonzero().flatten().tolist()
        for key, family in guide.selections.items()
    }
    settled, small = copy.deepcopy((model, guide)), copy.deepcopy((model, guide))
    fold_selection(*settled)
    fold_selection(*small)
    remove_heads(small[0], kept, small[1])
    assert sum(map(len, all_heads(small[0]).values())) < 3 * HEADS
    parts = [batch_of(EVERY)]
    networks = ((model, guide), settled, small)
    gated, shut, cut = (dict(measures(*network, parts)) for network in networks)
    for name, value in cut.items():
        places = kept[name.split(" of ")[1].removesuffix(".logits")]
        others = [index for index in range(HEADS) if index not in places]
        pairs = "cosine" in name or "divergence" in name
        for whole in (gated[name], shut[name]):
            spoken = whole[places][:, places] if pairs else whole[..., places]
            assert torch.allclose(spoken, value, atol=1e-9, equal_nan=True), name
            silent = whole[..., others]
            counted = name.startswith(("offset", "asked"))
            assert (silent == 0 if counted else silent.isnan()).all(), name


def test_a_head_counts_in_the_sentences_of_its_tasks_alone() -> None:
    model, guide = made("bernoulli", "delta")
    both, one = (dict(measures(model, guide, [batch_of(order)])) for order in (EVERY, [0, 2]))
    chosen = {key.replace("_", "."): family().mode > 0 for key, family in guide.selections.items()}
    for name, value in one.items():
        first, second = chosen[name.split(" of ")[1].removesuffix(".logits")]
        first_alone = first & ~second
        assert first_alone.any()
        if not name.startswith(("cosine", "divergence")):
            assert torch.allclose(
                value[..., first_alone], both[name][..., first_alone], equal_nan=True
            ), name


def test_a_recording_tells_who_speaks_and_labels_nobody_else() -> None:
    model, guide = made("bernoulli", "delta")
    arrays = []
    for batch in (batch_of([1, 3]), batch_of([1, 3], True)):
        with WithSelection(guide), PlugIn(), Recording(model) as heads:
            model.states(batch)
        for block in heads.blocks:
            head = heads[block.name]
            distribution = guide.selections[block.key]()
            assert head.active.equal((distribution.mode[1] > 0).expand(2, -1))
            assert head.weights.isnan().any(-1).any(-1).equal(~head.active)
        arrays.append(to_datatree(heads)["encoder-self"]["logits"].values)
    assert torch.allclose(*map(torch.tensor, arrays), equal_nan=True)


@pytest.mark.parametrize("closed", ["bernoulli", "gates"])
def test_a_guide_draws_who_speaks_once_for_all_sentences(closed: str) -> None:
    model, guide = made(closed, "delta")
    with torch.no_grad():
        for family in guide.selections.values():
            family.weight.zero_()
    values, other = (dict(drawn(model, guide, parts)) for parts in ([batch_of(EVERY)], apart()))
    for name, value in values.items():
        assert torch.allclose(other[name], value, atol=1e-9, equal_nan=True), name
    assert any(value.isnan().any() for value in values.values())


def drawn(model: Any, guide: Any, parts: Sequence[Batch]) -> Iterator[tuple[str, Tensor]]:
    """Entropy and importance of heads that are drawn from a guide."""
    yield from measure(model, parts, guide, 5).entropy.items()
    importance = gradient_importance(model, parts, guide, 5, normalise=False)
    yield from ((f"importance of {block}", value) for block, value in importance.items())


def test_a_pass_that_a_guide_hides_is_not_recorded() -> None:
    model = build()
    guide = attach("mean-field", model)
    with Recording(model) as heads:
        guide(batch_of([0, 1, 2]))
    assert all(len(heads.passes(block.name)) == 1 for block in model.blocks)
