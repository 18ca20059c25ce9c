"""Priors: by name, each in the form the paper gives it."""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.distributions import HeadContext
from latentheads.guides import GUIDES
from latentheads.inference.bound import traces
from latentheads.latents.logits.latent import Logits
from latentheads.mask import AttentionMask
from latentheads.models import PRIORS, LanguageModel, Network, Prior, Translation, make_prior
from latentheads.names import Block
from tests.tiny import NOISY, build, context
from tests.typechecking import unchecked

BLOCKS = [Block("decoder-self", layer, 3) for layer in range(2)]


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


FORMULAS: dict[str, Callable[[Tensor, Tensor, Any], Tensor]] = {
    "delta": lambda c, below, fusion: c,
    "independent": lambda c, below, fusion: c,
    "autoregressive": lambda c, below, fusion: c,
    "residual": lambda c, below, fusion: c + below,
    "cascaded": lambda c, below, fusion: c + below + fusion(below),
    "released": lambda c, below, fusion: c + below + fusion(c + below),
}


def has_option(prior: str, option: str) -> bool:
    return option in signature(PRIORS[prior]).parameters


WITH_SCALE = [prior for prior in NOISY if has_option(prior, "scale")]
WITH_LEARNED_SCALE = [prior for prior in NOISY if has_option(prior, "learned_scale")]


def test_every_prior_of_the_table_has_its_formula_here() -> None:
    assert set(FORMULAS) == set(PRIORS), "write the location of each prior into FORMULAS"


@pytest.mark.parametrize("prior", FORMULAS)
def test_prior_location_is_its_formula_along_the_chain(prior: str, batch: Batch) -> None:
    model = build("language-model", prior=prior).eval()
    guide_trace, _ = traces(model, GUIDES["tied"](model), batch)
    first, second = (guide_trace.nodes[f"decoder.{layer}.self.logits"] for layer in range(2))
    assert torch.equal(first["fn"].location, first["fn"].context.scores)
    family = next(m.prior for m in model.modules() if getattr(m, "block", None) == BLOCKS[1])
    fusion = getattr(family.location, "fusion", None)
    expected = FORMULAS[prior](second["fn"].context.scores, first["value"], fusion)
    assert torch.allclose(second["fn"].location, expected)


@pytest.mark.parametrize("prior", ["delta", "residual", "independent"])
def test_priors_without_parameters_have_none(prior: str) -> None:
    assert [parameters(make_prior(prior)(block)) for block in BLOCKS] == [0, 0]
    assert PRIORS[prior].deterministic == (prior != "independent")


@pytest.mark.parametrize("prior", WITH_LEARNED_SCALE)
def test_learned_scale_is_one_number_a_head(prior: str) -> None:
    learned, fixed = (make_prior(prior, learned_scale=how)(BLOCKS[0]) for how in (True, False))
    assert parameters(learned) - parameters(fixed) == 3


@pytest.mark.parametrize("prior", PRIORS)
def test_outputs_of_ngrams_have_noise_of_their_own_under_every_prior(prior: str) -> None:
    family = make_prior(prior).outputs(BLOCKS[0], 0.3)
    assert parameters(family) == 0
    head_context = HeadContext(
        torch.randn(2, 3, 5, 7), None, AttentionMask(torch.ones(2, 5).bool()).outputs(7)
    )
    this_family = family(head_context)
    assert this_family.location is head_context.scores
    assert this_family.scale == 0.3
    if prior in WITH_LEARNED_SCALE:
        assert parameters(make_prior(prior, learned_scale=True).outputs(BLOCKS[0], 0.3)) == 3


@pytest.mark.parametrize("prior", WITH_SCALE)
def test_noise_has_the_scale_that_is_told(prior: str) -> None:
    head_context = context()
    logit_prior: Any = make_prior(prior, scale=0.7)(BLOCKS[0]).double()(head_context)
    peak = -math.log(0.7) - 0.5 * math.log(2 * math.pi)
    assert torch.allclose(
        logit_prior.log_prob(head_context.scores.clone()), 3 * head_context.mask.pairs * peak
    )


def test_a_cascade_is_as_wide_and_as_linked_as_is_told() -> None:
    head_context = context(below=True)
    assert head_context.below is not None
    made, linked = (
        make_prior("cascaded", hidden=2, link=link, zero=True)(BLOCKS[1]).double()
        for link in (False, True)
    )
    assert parameters(made) == 2 * 2 * 9 + 3 * 3
    assert torch.equal(made(head_context).location, head_context.scores)
    assert torch.allclose(linked(head_context).location, head_context.scores + head_context.below)


def test_the_first_block_of_a_chain_has_no_fusion() -> None:
    for prior, size in (("cascaded", 2 * 4 * 9 + 5 * 3), ("released", 24 * 9 + 9 * 3)):
        assert [parameters(make_prior(prior)(block)) for block in BLOCKS] == [0, size]


def test_a_prior_shows_the_options_that_it_was_given() -> None:
    assert repr(make_prior("delta")) == "Delta()"
    assert repr(make_prior("cascaded", hidden=8, link=False)) == "Cascaded(hidden=8, link=False)"


def test_wrong_priors_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^prior must be one of delta, .*released.*; got 'nope'$"):
        make_prior("nope")
    with pytest.raises(ValueError, match="scale must be positive and finite, got 0"):
        make_prior("independent", scale=0.0)
    with pytest.raises(ValueError, match=r"hidden must lie in .*, got 0"):
        make_prior("cascaded", hidden=0)


@pytest.mark.parametrize("heads", [4, 8, 16, 32])
def test_released_prior_adds_24_h_squared_plus_9_h_a_block(heads: int) -> None:
    def count(prior: str, layers: int) -> int:
        with torch.device("meta"):
            network = Network(width=64, heads=heads, layers=layers)
            return parameters(LanguageModel(13, network, latents=[Logits(make_prior(prior))]))

    for layers in (1, 2, 3):
        added = count("released", layers) - count("delta", layers)
        assert added == (layers - 1) * (24 * heads**2 + 9 * heads)


def test_a_class_is_no_prior_yet() -> None:
    for given in (PRIORS["cascaded"], "cascaded"):
        with pytest.raises(
            ValueError, match=r"^prior must be a Prior, such as make_prior\('independent'\)"
        ):
            unchecked(Logits.__init__)(object.__new__(Logits), given)


@pytest.mark.parametrize("made", [None, 3, nn.Linear(2, 2)], ids=str)
def test_a_prior_that_makes_no_family_is_named(made: Any) -> None:
    """Without its ``return`` it would train the plain network, which has no latent logits."""

    class Forgetful(Prior):
        def __call__(self, block: Block) -> Any:
            return made

    with pytest.raises(ValueError, match=r"^prior Forgetful must return a Family, .*, got "):
        Translation(5, 7, Network(width=8, heads=2), latents=[Logits(Forgetful())])
