"""Heads given the heads before: three forms of one guide."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch

from latentheads.batch import Batch
from latentheads.distributions import CholeskyHeads, InverseHeads, MaskedHeads
from latentheads.families import HeadScale
from latentheads.guides import Autoregressive
from latentheads.guides.autoregressive import MaskedMLP
from latentheads.inference.bound import terms, traces
from tests.tiny import HEADS, attach, build, jiggle

STRATEGIES = {"cholesky": CholeskyHeads, "inverse": InverseHeads, "masked": MaskedHeads}
every_form = pytest.mark.parametrize("form", STRATEGIES)


@every_form
def test_form_names_its_law(form: str, batch: Batch) -> None:
    model = build()
    _, model_trace = traces(model, attach(form, model), batch)
    assert {type(model_trace.nodes[b.site()]["fn"]) for b in model.blocks} == {STRATEGIES[form]}


def test_an_unknown_form_is_refused() -> None:
    """Tests look at annotations before it is made; who uses the library does not."""
    make = inspect.unwrap(Autoregressive.__init__)
    message = "^form must be one of cholesky, inverse, masked; got 'choleski'$"
    with pytest.raises(ValueError, match=message):
        make(Autoregressive.__new__(Autoregressive), build(), form="choleski")


@every_form
def test_it_starts_at_an_independent_prior(form: str, batch: Batch) -> None:
    model = build().eval()
    bound_terms = terms(model, Autoregressive(model, form=form).double(), batch)  # type: ignore[arg-type]
    assert torch.allclose(bound_terms.log_ratio, torch.zeros(3), atol=1e-10)


def warm(module: Any, noise_factor: float) -> None:
    for part in module.modules():
        if isinstance(part, HeadScale):
            part.noise_factor = noise_factor


@every_form
def test_the_noise_of_a_guide_grows_with_that_of_its_prior(form: str, batch: Batch) -> None:
    model = build("language-model", layers=1).eval()
    guide = Autoregressive(model, form=form).double()  # type: ignore[arg-type]
    for module in (model, guide):
        warm(module, 0.01)
    bound_terms = terms(model, guide, batch)
    assert torch.allclose(bound_terms.log_ratio, torch.zeros(3), atol=1e-9)


@every_form
@pytest.mark.parametrize("of", ["guide", "prior"])
def test_noise_that_has_not_grown_moves_no_head_far(form: str, of: str, batch: Batch) -> None:
    model = build("language-model", "autoregressive")
    guide = attach(form, model, 0.4)
    family = guide.families["decoder_0_self"]
    if of == "prior":
        family = jiggle(model.decoder.layers[0].inner.prior, 0.4)
    _, model_trace = traces(model, guide, batch)
    context = model_trace.nodes["decoder.0.self.logits"]["fn"].context
    noise = torch.randn_like(context.scores)
    moved = []
    for noise_factor in (1.0, 0.001):
        warm(family, noise_factor)
        this_family = family(context)
        moved.append(
            (this_family._from_noise(noise) - this_family._from_noise(0 * noise)).abs().amax()
        )
        value = this_family.rsample()
        assert torch.allclose(
            this_family.log_prob(value), this_family.log_prob(value.clone()), atol=1e-6
        )
    assert moved[1] < 0.05 < moved[0]


@pytest.mark.parametrize("form", ["inverse", "masked"])
def test_noise_that_has_not_grown_is_read_as_small_as_it_is(form: str) -> None:
    """Noise is read less; logits as they are, for there is less noise in them already."""
    family = attach(form, build("language-model"), 0.4).families["decoder_0_self"]
    scores, values = torch.randn(2, 1, HEADS, 5, 5)
    shift, log_scale = family._condition(scores, values)
    warm(family, 0.1)
    lesser = family._condition(scores, values / 0.1 if form == "inverse" else values)
    assert torch.allclose(lesser[0], shift)
    assert torch.allclose(lesser[1], log_scale + math.log(0.1))


@every_form
def test_a_head_is_moved_by_the_heads_before_it_alone(form: str, batch: Batch) -> None:
    model = build("language-model")
    _, model_trace = traces(model, attach(form, model, 0.4), batch)
    distribution = model_trace.nodes["decoder.0.self.logits"]["fn"]
    noise = torch.randn_like(distribution.location)
    plain = distribution._from_noise(noise)
    for head in range(HEADS):
        changed = noise.clone()
        changed[:, head] += 1
        moved = (distribution._from_noise(changed) - plain).abs().amax((0, 2, 3)) > 1e-9
        assert moved.tolist() == [other >= head for other in range(HEADS)]


def test_heads_are_read_in_full_under_autocast() -> None:
    network, heads = MaskedMLP(HEADS, 2, 1.0).float(), torch.ones(1, HEADS, 3, 3).float()
    with torch.autocast("cpu", torch.bfloat16):
        shift, log_scale = network(heads, heads)
    assert shift.dtype == log_scale.dtype == torch.float32


def test_masks_are_not_saved() -> None:
    state = MaskedMLP(HEADS, 2, 1.0).state_dict()
    assert not {"before", "upto"} & set(state)
