"""From a draw to the heads of every sentence."""

from __future__ import annotations

import pytest
import torch

from latentheads.guides import Tied
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.selection.strategies import make_selector
from latentheads.latents.selector import Selector
from latentheads.models import Translation
from tests.tiny import FORMS, HEADS, SOURCE_TYPES, TARGET_TYPES, sizes

LIKE = torch.zeros(1)


def test_a_group_fills_its_place_and_a_subset_stands_in_order() -> None:
    group = make_selector("group", 3, 6)
    drawn = torch.tensor([[0.0, 1, 1, 1, 0, 0]])
    index = group.choose(drawn, None).index
    assert index is not None
    assert index.tolist() == [3, 1, 2]
    index = make_selector("subset", 3, 6).choose(drawn, None).index
    assert index is not None
    assert index.tolist() == [1, 2, 3]
    own = make_selector("bernoulli", 3, 6).choose(drawn, None)
    assert own.index is None
    assert own.weight.tolist() == drawn[0].tolist()


@pytest.mark.parametrize("task", [None, torch.tensor([0, 0, 0])])
def test_draws_that_do_not_fit_the_sentences_are_refused(task: torch.Tensor | None) -> None:
    gates, drawn = Gating(3), torch.ones(2, 3)
    for selector in (gates, make_selector("bernoulli", 2, 3)):
        with pytest.raises(ValueError, match="2 samples need the task of every sentence"):
            selector.choose(drawn, task, num_samples=2)
    fitting = gates.choose(drawn, torch.tensor([5, 5, 7, 7]), num_samples=2)
    assert fitting.weight.shape == (4, 3)


def test_every_sentence_gets_the_choice_of_its_task() -> None:
    drawn = torch.tensor([[1.0, 0, 0, 1], [0, 1, 1, 0]])
    selector = make_selector("group", 2, 4, targets=2)
    tasks = torch.tensor([1, 0, 1])
    item = selector.choose(drawn, tasks)
    assert item.index is not None
    assert item.index.tolist() == [[2, 1], [0, 3], [2, 1]]
    assert not item.common
    kept = item.select(torch.tensor([1]))
    assert kept.index is not None
    assert kept.index.tolist() == [[0, 3]]
    together = selector.choose(drawn, tasks[:1], common=True)
    assert together.common
    assert together.index is not None
    assert together.index.tolist() == [2, 1]
    in_front = selector.choose(drawn.expand(5, -1, -1), tasks[:1], common=True)
    assert in_front.index is not None
    assert in_front.index.tolist() == 5 * [[[2, 1]]]


def test_static_sets_are_shared_by_a_family() -> None:
    selector = make_selector("static", 2, sources=1, targets=3, target_sets=(1, 0, 1))
    assert selector.num_candidates("decoder-self") == 4
    assert selector.num_candidates("decoder-cross") == 4
    assert selector.num_candidates("encoder-self") == 2
    given = selector.sample("unused", "decoder-self", LIKE)
    choice = selector.choose(given, torch.tensor([0, 1, 2]))
    assert choice.index is not None
    assert choice.index.tolist() == [[2, 3], [0, 1], [2, 3]]
    assert choice.weight.eq(1).all()
    alone = selector.choose(selector.sample("unused", "encoder-self", LIKE), None)
    assert alone.index is not None
    assert alone.index.tolist() == [0, 1]
    given_selector = make_selector("static", 2, sources=2, targets=3, source_sets=(0, 0))
    assert given_selector.num_candidates("encoder-self") == 2
    own = make_selector("static", 2, targets=3)
    assert own.num_candidates("decoder-cross") == 6


@pytest.mark.parametrize("sets", [(0, 1), (0, -1, 1)])
def test_sets_must_name_every_task(sets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="target_sets must name the set of each of 3 tasks"):
        make_selector("static", 2, targets=3, target_sets=sets)


@pytest.mark.parametrize("name", ["bernoulli", "subset", "group"])
def test_the_prior_is_even_and_a_posterior_starts_near_it(name: str) -> None:
    selector = make_selector(name, 2, 6, sources=3)  # type: ignore[arg-type]
    prior = selector.prior("encoder-self", LIKE)
    torch.testing.assert_close(prior.mean, torch.full((3, 6), 1 / 3, dtype=LIKE.dtype))
    posterior = selector.posterior("encoder-self", LIKE)
    apart = (posterior().logits - prior.logits) / posterior.gain
    assert apart.abs().max() < 0.06  # near the prior
    assert apart.std() > 0.005  # and no two candidates alike


@pytest.mark.parametrize("latent", [make_selector("group", HEADS, 2 * HEADS), Gating(HEADS)])
@pytest.mark.parametrize("form", FORMS)
def test_checkpoints_keep_the_names_of_a_selection_under_every_guide(
    form: str, latent: Selector
) -> None:
    network = sizes(layers=1)
    guide = FORMS[form](Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=[latent]))
    blocks = ("encoder_0_self", "decoder_0_self", "decoder_0_cross")
    assert list(guide.state_dict()) == [f"selections.{block}.weight" for block in blocks]


def test_a_static_selection_has_no_posterior() -> None:
    latent = make_selector("static", HEADS)
    model = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(layers=1), latents=[latent])
    assert Tied(model).posteriors == {}
