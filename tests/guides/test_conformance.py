"""What every guide in the table keeps to, with every objective, on every model."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from pyro.infer import Trace_ELBO, TraceMeanField_ELBO
from safetensors.torch import load_model, save_model
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import PAD, Batch
from latentheads.guides import GUIDES, Guide, Tied
from latentheads.inference.bound import terms, traces
from latentheads.inference.objective import Head_ELBO
from tests.crossing import in_turn, pairwise
from tests.tiny import FORMS, KINDS, NoiseTape, attach, build, padded, rows

OBJECTIVES = {
    "trace": Trace_ELBO,
    "mean-field": TraceMeanField_ELBO,
    "heads": Head_ELBO,
}
every_form = pytest.mark.parametrize("form", FORMS)
every_objective = pytest.mark.parametrize("objective", OBJECTIVES)


def needs_options(form: str, model: Any, *options: str) -> None:
    """Skips a guide whose constructor has not all of these options."""
    accepted = signature(type(FORMS[form](model))).parameters
    if missing := [option for option in options if option not in accepted]:
        pytest.skip(f"{form} has no option {missing[0]}")


def needs_posterior_of_logits(model: Any, guide: Any, batch: Batch) -> None:
    """Skips a guide of other latents, which keeps the prior of all logits: it learns nothing."""
    nodes = traces(model, guide, batch)[1].nodes
    has_posterior = any(
        nodes[block.site()]["fn"] is not nodes[block.site()]["infer"]["prior"]
        for block in model.blocks
    )
    if not (has_posterior or isinstance(guide, Guide | Tied)):
        pytest.skip(f"{type(guide).__name__} has no posterior of logits")


def test_every_guide_of_the_table_is_tested() -> None:
    tested = {type(make(build())) for make in FORMS.values()}
    assert tested == set(GUIDES.values()) - {GUIDES["exact"]}  # see test_alignments.py


@pytest.mark.parametrize("form", [form for form in FORMS if form != "tied"])
@pytest.mark.parametrize(
    ("option", "value"), [("hidden", 0), ("hidden", 10**9), ("scale", 0.0), ("scale", math.nan)]
)
def test_an_option_out_of_range_is_refused_even_where_no_block_uses_it(
    form: str, option: str, value: float
) -> None:
    model = build("language-model", blocks="none")
    needs_options(form, model, option)
    with pytest.raises(ValueError, match=rf"^guide\.{option} must .*, got {value}$"):
        FORMS[form](model, **{option: value})


@pytest.mark.parametrize("form", [form for form in FORMS if form != "tied"])
def test_a_guide_starts_at_the_scale_and_with_the_hidden_units_it_is_told(
    form: str, batch: Batch
) -> None:
    model = build("language-model").eval()
    needs_options(form, model, "hidden", "scale")
    guide, wider = (FORMS[form](model, hidden=number, scale=0.7).double() for number in (1, 2))
    distribution = traces(model, guide, batch)[1].nodes["decoder.0.self.logits"]["fn"]
    peak = -math.log(0.7) - 0.5 * math.log(2 * math.pi)
    log_probability = distribution.log_prob(distribution.context.scores.clone())
    assert torch.allclose(log_probability, 3 * distribution.context.mask.pairs * peak)
    sizes = [
        sum(parameter.numel() for parameter in module.parameters()) for module in (guide, wider)
    ]
    assert sizes[0] < sizes[1]


@pairwise(form=FORMS, kind=KINDS, objective=OBJECTIVES)
def test_every_parameter_gets_a_finite_gradient_through_the_module(
    form: str, kind: str, objective: str, batch: Batch
) -> None:
    model = build(kind)
    guide = FORMS[form](model).double()
    needs_posterior_of_logits(model, guide, batch)
    elbo = OBJECTIVES[objective]()(model, guide)
    optimiser = torch.optim.Adam(elbo.parameters(), lr=0.01)
    unmoved = {name for name, _ in elbo.named_parameters()}
    for _ in range(3):
        optimiser.zero_grad()
        loss = elbo(batch)
        assert loss.isfinite()
        loss.backward()
        for name, parameter in elbo.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            if parameter.grad.any():
                unmoved.discard(name)
        optimiser.step()
    assert not unmoved


@in_turn(form=FORMS, kind=KINDS)
def test_padding_order_and_splitting_change_no_sentence(
    form: str, kind: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build(kind).eval()
    guide = attach(form, model)
    whole = terms(model, guide, batch)

    def same(changed: Batch, order: list[int]) -> None:
        tape.rewind(order)
        bound_terms = terms(model, guide, changed)
        for ours, theirs in (
            (bound_terms.log_likelihood, whole.log_likelihood),
            (bound_terms.log_ratio, whole.log_ratio),
            *((bound_terms.kl[site], whole.kl[site]) for site in whole.kl),
        ):
            assert torch.allclose(ours, theirs[order], atol=1e-10)

    same(padded(batch, target=3, source=2), [0, 1, 2])
    same(rows(batch, [2, 0, 1]), [2, 0, 1])
    for sentence in range(3):
        same(rows(batch, [sentence]), [sentence])


@in_turn(form=FORMS, kind=KINDS)
def test_saved_weights_give_the_same_bound(
    form: str, kind: str, batch: Batch, tape: NoiseTape, tmp_path: Path
) -> None:
    model = build(kind, prior="cascaded").eval()
    guide = attach(form, model)
    expected = terms(model, guide, batch).elbo
    fresh = build(kind, prior="cascaded").eval()
    fresh_guide = attach(form, fresh)
    for name, old, new in (("model", model, fresh), ("guide", guide, fresh_guide)):
        if list(old.parameters()):
            save_model(old, str(tmp_path / name))
            load_model(new, str(tmp_path / name))
    tape.rewind()
    assert torch.equal(terms(fresh, fresh_guide, batch).elbo, expected)


@every_form
def test_a_copy_of_model_and_guide_is_independent(form: str, batch: Batch, tape: NoiseTape) -> None:
    model = build().eval()
    guide = attach(form, model)
    expected = terms(model, guide, batch).elbo
    twin, twin_guide = copy.deepcopy((model, guide))
    assert twin_guide.model is twin
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    tape.rewind()
    assert torch.equal(terms(twin, twin_guide, batch).elbo, expected)


@pytest.mark.parametrize("form", ["tied", "mean-field", "cascaded"])
def test_what_has_trained_is_copied_and_pickled_as_often_as_one_likes(
    form: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build()
    pair = model, attach(form, model)
    expected = Head_ELBO().differentiable_loss(*pair, batch)
    expected.backward()
    copied = copy.deepcopy(pair)
    for twin in (copied, copy.deepcopy(copied), pickle.loads(pickle.dumps(copied))):
        tape.rewind()
        assert Head_ELBO().loss(*twin, batch) == expected


@in_turn(form=FORMS, prior=["independent", "cascaded"])
def test_bfloat16_moves_the_bound_by_no_more_than_its_rounding(
    form: str, prior: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build(prior=prior).float().eval()
    guide = attach(form, model, 0.05).float()

    def per_token() -> tuple[Any, Any]:
        tape.rewind()
        bound_terms = terms(model, guide, batch)
        tokens = bound_terms.tokens.sum()
        return bound_terms.elbo.sum() / tokens, bound_terms.log_weight.sum() / tokens

    expected = per_token()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = per_token()
    for ours, theirs in zip(inside, expected, strict=True):
        assert (ours == theirs) == form.startswith("mean-field")
        assert abs(ours - theirs) < 2**-8 * max(abs(theirs), 8)


@every_form
def test_a_guide_may_be_of_another_type_than_its_model(
    form: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build(prior="cascaded").eval()
    guide = attach(form, model)
    expected = terms(model, guide, batch).elbo
    for dtype, near in ((torch.float32, 1e-6), (torch.bfloat16, 2**-6)):
        tape.rewind()
        elbo = terms(model, guide.to(dtype), batch).elbo
        assert torch.allclose(elbo, expected, rtol=near)


@every_form
def test_autocast_loses_nothing_in_the_densities(form: str, batch: Batch) -> None:
    """Own noise and foreign value agree to float32, inside autocast and outside."""
    model = build().float()
    guide = attach(form, model).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, guide_trace = traces(model, guide, batch)
        inside = {
            block.site(): guide_trace.nodes[block.site()]["fn"].log_prob(
                guide_trace.nodes[block.site()]["value"]
            )
            for block in model.blocks
        }
    for name, density in inside.items():
        outside = guide_trace.nodes[name]["fn"].log_prob(guide_trace.nodes[name]["value"].clone())
        assert torch.allclose(density, outside, rtol=1e-5, atol=1e-3), name


@every_form
def test_a_guide_leaves_the_mode_of_every_module_alone(form: str, batch: Batch) -> None:
    model = build()
    model.decoder.eval()
    modes = [module.training for module in model.modules()]
    FORMS[form](model).double()(batch)
    assert [module.training for module in model.modules()] == modes


@every_form
def test_an_error_in_the_model_leaves_the_guide_usable(form: str, batch: Batch) -> None:
    model = build()
    guide = attach(form, model)
    with pytest.raises(ValueError, match="no source"):
        guide(Batch(batch.target))
    assert model.training
    assert terms(model.eval(), guide, batch).elbo.isfinite().all()


@in_turn(form=FORMS, kind=KINDS)
def test_a_sentence_without_a_choice_of_key_has_no_latent(form: str, kind: str) -> None:
    model = build(kind).eval()
    guide = attach(form, model)
    single = Batch.of([[2]], [[2]])
    bound_terms = terms(model, guide, single)
    assert torch.equal(bound_terms.total_kl, torch.zeros(1))
    assert torch.allclose(bound_terms.log_ratio, torch.zeros(1))
    assert torch.allclose(bound_terms.elbo, terms(model, guide, single).elbo, atol=1e-12)
    loss = Head_ELBO()(model, guide)(single)
    loss.backward()
    both = [*model.parameters(), *guide.parameters()]
    assert all(p.grad.isfinite().all() for p in both if p.grad is not None)


READ = 2
"""Tokens of the context in the tests below, of four."""


def in_context(batch: Batch) -> Batch:
    return replace(batch, before=torch.tensor([4, 9, 1]), context=READ)


def is_drawn(name: str, batch: Batch) -> Tensor:
    """The pairs that carry a latent: of the decoder's rows those behind the context."""
    of_source = batch.source != PAD if batch.source is not None else None
    if name.startswith("encoder"):
        readable = of_source[:, None, :] & of_source[:, :, None]
        return readable & (readable.sum(-1, keepdim=True) > 1)
    length = batch.target.shape[1]
    causal = torch.ones(length, length).tril().bool().expand(len(batch), -1, -1)
    readable = of_source[:, None, :] if "cross" in name else causal
    row = (batch.target != PAD) & (torch.arange(length) >= batch.context)
    return readable & row[:, :, None] & (readable.sum(-1, keepdim=True) > 1)


@pairwise(form=FORMS, kind=KINDS, context=[0, READ])
def test_heads_without_a_choice_and_those_of_a_context_are_drawn_from_the_prior(
    form: str, kind: str, context: int, batch: Batch, tape: NoiseTape
) -> None:
    """So are those of padding; none of them counts."""
    model = build(kind, prior="cascaded").eval()
    guide = attach(form, model)
    batch = replace(in_context(batch), context=context)
    model_trace, guide_trace = traces(model, guide, batch)
    for site, block in enumerate(model.blocks):
        name = block.site()
        p, q = (trace.nodes[name]["fn"] for trace in (model_trace, guide_trace))
        value = guide_trace.nodes[name]["value"]
        drawn = is_drawn(name, batch)[:, None].expand(value.shape)
        assert torch.equal(p.context.mask.latent.bool(), drawn[:, 0])
        assert drawn.any()
        assert torch.equal(q.context.mask.latent, p.context.mask.latent)
        tape.rewind(site=site)
        assert torch.equal(value[~drawn], p.rsample()[~drawn])
        tape.rewind(site=site)
        assert torch.equal(value[drawn], q.rsample()[drawn])
        other = torch.where(drawn, value, value + torch.randn_like(value))
        for distribution in (p, q):
            assert torch.allclose(
                distribution.log_prob(other), distribution.log_prob(value.clone()), atol=1e-9
            )


@in_turn(form=FORMS, kind=KINDS)
def test_a_context_of_everything_leaves_only_the_source_to_count(
    form: str, kind: str, batch: Batch
) -> None:
    model = build(kind).eval()
    bound_terms = terms(model, attach(form, model), replace(batch, context=4))
    for name, kl in bound_terms.kl.items():
        assert name.startswith("encoder") or torch.equal(kl, torch.zeros(3))
    assert torch.equal(bound_terms.log_likelihood, torch.zeros(3))
    assert torch.equal(bound_terms.tokens, torch.zeros(3))
    if kind == "language-model":
        assert torch.allclose(bound_terms.log_ratio, torch.zeros(3), atol=1e-12)


@pytest.mark.parametrize("prior", ["delta", "residual"])
def test_a_context_leaves_the_scored_tokens_their_likelihood(prior: str, batch: Batch) -> None:
    model = build("language-model", prior=prior).eval()
    cut = in_context(batch)
    first = replace(cut, target=batch.target[:, :READ], context=0)
    whole, behind, before = (
        terms(model, Tied(model), one) for one in (replace(cut, context=0), cut, first)
    )
    together = behind.log_likelihood + before.log_likelihood
    assert torch.allclose(together, whole.log_likelihood)
    assert (behind.tokens + before.tokens).tolist() == whole.tokens.tolist()
    assert torch.equal(behind.elbo, behind.log_likelihood)


@every_form
def test_padding_and_order_change_no_window(form: str, batch: Batch, tape: NoiseTape) -> None:
    model = build("language-model", prior="cascaded").eval()
    guide = attach(form, model)
    batch = in_context(batch)
    whole = terms(model, guide, batch)
    wider = replace(batch, target=F.pad(batch.target, (0, 3), value=PAD))
    order = [2, 0, 1]
    other = replace(batch, target=batch.target[order], before=batch.before[order])
    for changed, rows_of in ((wider, [0, 1, 2]), (other, order)):
        tape.rewind(rows_of)
        bound_terms = terms(model, guide, changed)
        assert torch.allclose(bound_terms.elbo, whole.elbo[rows_of], atol=1e-10)
        assert torch.allclose(bound_terms.log_weight, whole.log_weight[rows_of], atol=1e-10)


@every_form
def test_vectorised_particles_take_a_context(form: str, batch: Batch, tape: NoiseTape) -> None:
    model = build("language-model")
    guide = attach(form, model)
    batch = in_context(batch)
    losses = []
    for particle in range(3):
        tape.rewind(particle=particle)
        losses.append(Head_ELBO()(model, guide)(batch))
    tape.rewind()
    options = {"num_particles": 3, "vectorize_particles": True, "max_plate_nesting": 1}
    together = Head_ELBO(**options)(model, guide)(batch)
    assert torch.allclose(together, torch.stack(losses).mean(), rtol=1e-9)


@every_form
@every_objective
def test_every_objective_takes_a_context_and_its_mean_is_the_bound(
    form: str, objective: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build("language-model").eval()
    guide = attach(form, model)
    batch = in_context(batch)
    expected = terms(model, guide, batch)
    tape.rewind()
    loss = OBJECTIVES[objective]()(model, guide)(batch)
    bound = expected.elbo if objective == "mean-field" else expected.log_weight
    assert torch.allclose(loss, -bound.sum(), rtol=1e-9)


@in_turn(form=FORMS, kind=KINDS)
def test_a_batch_may_be_given_by_name(form: str, kind: str, batch: Batch, tape: NoiseTape) -> None:
    model = build(kind).eval()
    guide = attach(form, model)
    for one in (batch, in_context(batch)):
        tape.rewind()
        expected = terms(model, guide, one).elbo
        tape.rewind()
        assert torch.equal(terms(model, guide, batch=one).elbo, expected)
