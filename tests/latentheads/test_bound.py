"""The terms of the bound, and importance-weighted bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

from guides import Guide, Tied
from latentheads import Batch, HeadContext, Importance, importance, terms
from latentheads.bound import traces
from latentheads.distributions import CholeskyHeads, DeltaHeads, HeadLogits
from latentheads.families import Family, Point, Scores
from tests.tiny import FORMS, KINDS, NOISY, NoiseTape, attach, bernoulli_gate, build

CLOSED = ("cascaded", "cholesky", "mean-field")
every_form = pytest.mark.parametrize("form", FORMS)


@every_form
@pytest.mark.parametrize("prior", NOISY)
def test_every_site_says_how_its_divergence_was_computed(
    form: str, prior: str, batch: Batch
) -> None:
    model = build(prior=prior).eval()
    found = terms(model, attach(form, model), batch)
    assert list(found.kl) == list(found.how) == [b.site() for b in model.blocks]
    closed = form in CLOSED and prior != "autoregressive"
    expected = "tied" if form == "tied" else "analytic" if closed else "sampled"
    assert set(found.how.values()) == {expected}


@pytest.mark.parametrize("kind", KINDS)
@every_form
def test_bound_is_likelihood_less_every_divergence(form: str, kind: str, batch: Batch) -> None:
    model = build(kind).eval()
    guide = attach(form, model)
    torch.manual_seed(3)
    found = terms(model, guide, batch)
    torch.manual_seed(3)
    model_trace, guide_trace = traces(model, guide, batch)
    target = model_trace.nodes["target"]
    by_token = target["fn"].logits.log_softmax(-1).gather(-1, batch.target[..., None])
    likelihood = (by_token.squeeze(-1) * batch.target_valid).sum(-1)
    ratio = sum(
        model_trace.nodes[b.site()]["fn"].log_prob(guide_trace.nodes[b.site()]["value"].clone())
        - guide_trace.nodes[b.site()]["fn"].log_prob(guide_trace.nodes[b.site()]["value"].clone())
        for b in model.blocks
    )
    assert torch.allclose(found.log_likelihood, likelihood, atol=1e-10)
    assert torch.allclose(found.log_ratio, ratio, atol=1e-9)
    assert torch.allclose(found.elbo, likelihood - sum(found.kl.values()), atol=1e-10)
    assert torch.allclose(found.log_weight, likelihood + ratio, atol=1e-9)
    assert found.tokens.tolist() == batch.target_valid.sum(-1).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_cascaded_divergence_is_half_the_squared_cascade_and_the_price_of_the_scale(
    kind: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build(kind).eval()
    guide = attach("cascaded", model)
    _, guide_trace = traces(model, guide, batch)
    tape.rewind()
    found = terms(model, guide, batch)
    for block in model.blocks:
        law = guide_trace.nodes[block.site()]["fn"]
        family = guide.families[block.key]
        s = family.scale()
        r = torch.zeros_like(law.location)
        if not block.first:
            r = family.location.fusion(law.context.below)
            assert r.abs().max() > 0.1
        pairs = 0.5 * (r**2 + s**2 - 1 - 2 * s.log())
        latent = law.context.mask.latent.bool().unsqueeze(-3)
        expected = torch.where(latent, pairs, 0.0).sum((-1, -2, -3))
        assert torch.allclose(found.kl[block.site()], expected)


@every_form
def test_closed_divergences_are_not_negative(form: str, batch: Batch) -> None:
    model = build().eval()
    found = terms(model, attach(form, model), batch)
    for name, kl in found.kl.items():
        assert found.how[name] == "sampled" or (kl >= 0).all()
        assert found.how[name] != "analytic" or (kl > 0).any()


def test_smoothed_likelihood_has_no_bound(batch: Batch) -> None:
    model = build(label_smoothing=0.1)
    guide = attach("tied", model)
    with pytest.raises(ValueError, match=r"^a smoothed likelihood has no bound.*eval\(\)"):
        terms(model, guide, batch)
    model.eval()
    assert terms(model, guide, batch).elbo.isfinite().all()


class Pointed(Guide):
    def family(self, block: Any) -> Family:
        return Point(Scores())


def test_point_posterior_under_a_density_has_no_bound(batch: Batch) -> None:
    model = build("language-model").eval()
    with pytest.raises(ValueError, match=r"site 'decoder.0.self.logits': a point posterior"):
        terms(model, Pointed(model), batch)
    delta = pyro.infer.autoguide.AutoDelta(model)
    with pytest.raises(ValueError, match="point posterior"):
        terms(model, delta, batch)


@pytest.mark.parametrize("prior", ["delta", "residual"])
def test_point_prior_bound_is_the_exact_likelihood(prior: str, batch: Batch) -> None:
    model = build(prior=prior).eval()
    found = terms(model, Tied(model), batch)
    assert torch.equal(found.elbo, found.log_likelihood)
    assert torch.equal(found.elbo, terms(model, Tied(model), batch).elbo)


def own_guide(model: Any, masked: bool) -> Any:
    """A plain Pyro function, as a notebook writes it: it proposes every pair of every block."""

    def guide(batch: Batch) -> None:
        length = batch.target.shape[-1]
        valid = torch.ones(length, length).tril() * batch.target_valid[:, :, None]
        latent = (valid.bool() & (torch.arange(length) > 0)[:, None])[:, None]
        with pyro.plate("sentences", len(batch)):
            for block in model.blocks:
                shape = (len(batch), block.heads, length, length)
                each = dist.Normal(torch.full(shape, 0.3), 0.8)
                pairs = each.mask(latent.expand(shape)) if masked else each
                pyro.sample(block.site(), pairs.to_event(3))

    return guide


def test_a_plain_pyro_guide_has_terms(batch: Batch) -> None:
    model = build("language-model").eval()
    torch.manual_seed(3)
    found = terms(model, own_guide(model, masked=True), batch)
    assert set(found.how.values()) == {"sampled"}
    torch.manual_seed(3)
    model_trace, guide_trace = traces(model, own_guide(model, masked=True), batch)
    expected = torch.zeros(3)
    for block in model.blocks:
        prior, value = (
            model_trace.nodes[block.site()]["fn"],
            guide_trace.nodes[block.site()]["value"],
        )
        latent = prior.context.mask.latent.bool().unsqueeze(1)
        q = dist.Normal(0.3, 0.8).log_prob(value)
        p = dist.Normal(prior.location, 1.0).log_prob(value)
        expected += torch.where(latent, p - q, 0.0).sum((1, 2, 3))
    assert torch.allclose(found.log_ratio, expected)


def test_a_guide_that_counts_pairs_without_a_latent_has_no_bound(batch: Batch) -> None:
    model = build("language-model").eval()
    with pytest.raises(ValueError, match=r"decoder.0.self.logits"):
        terms(model, own_guide(model, masked=False), batch)


def test_a_guide_of_another_model_is_refused(batch: Batch) -> None:
    first, second = build("language-model").eval(), build("language-model").eval()
    with pytest.raises(ValueError, match="model"):
        terms(first, attach("cascaded", second), batch)


def test_a_latent_for_each_sentence_is_demanded(batch: Batch) -> None:
    model = build("language-model", latent=()).eval()

    def global_model(batch: Batch) -> None:
        pyro.sample("global", dist.Normal(0.0, 1.0))
        model(batch)

    def guide(batch: Batch) -> None:
        pyro.sample("global", dist.Normal(0.0, 2.0))

    with pytest.raises(ValueError, match=r"site 'global' must have one latent a sentence"):
        terms(global_model, guide, batch)


def test_terms_keep_no_graph(batch: Batch) -> None:
    model = build()
    found = terms(model, attach("cascaded", model), batch)
    assert not found.elbo.requires_grad
    assert not found.log_weight.requires_grad


def test_terms_are_unscaled_by_the_corpus(batch: Batch, tape: NoiseTape) -> None:
    model = build().eval()
    guide = attach("cascaded", model)
    plain = terms(model, guide, batch)
    tape.rewind()
    placed = Batch(batch.target, batch.source, torch.tensor([7, 0, 3]), 1000)
    assert torch.equal(terms(model, guide, placed).elbo, plain.elbo)


@every_form
def test_one_sample_importance_bound_is_the_log_weight(
    form: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build().eval()
    guide = attach(form, model)
    weight = terms(model, guide, batch).log_weight
    tape.rewind()
    single = importance(model, guide, batch, samples=1)
    assert torch.equal(single.bound, weight)
    assert torch.allclose(single.effective_sample_size, torch.ones(3))
    assert single.pareto_k.isnan().all()


def test_effective_sample_size_lies_between_one_and_all() -> None:
    weights = torch.stack([torch.zeros(7), torch.linspace(0, 1, 7), torch.tensor([0.0] * 6 + [99])])
    size = Importance(weights.T - 1000).effective_sample_size
    assert size[0].item() == pytest.approx(7)
    assert 1 < size[1].item() < 7
    assert size[2].item() == pytest.approx(1)


def test_importance_bound_is_the_log_mean_weight() -> None:
    log_weights = torch.randn(7, 3)
    expected = log_weights.exp().mean(0).log()
    assert torch.allclose(Importance(log_weights).bound, expected)
    assert torch.allclose(Importance(log_weights - 5000).bound, expected - 5000)


def test_tail_needs_25_draws_and_tells_heavy_from_light() -> None:
    torch.manual_seed(0)
    light, heavy = 0.1 * torch.randn(200), 5 * torch.randn(200)
    equal = torch.full((200,), -3.0)
    found = Importance(torch.stack([light, heavy, equal], 1)).pareto_k
    assert found[0] < 0.5 < 0.7 < found[1]
    assert found[2] == -torch.inf
    assert Importance(torch.randn(24, 2)).pareto_k.isnan().all()
    assert not Importance(torch.randn(25, 2)).pareto_k.isnan().any()


def test_foreign_site_in_a_closed_form_is_exact(batch: Batch) -> None:
    """A conditioned posterior of another class falls back to sampling, never to a wrong form."""

    class Mixed(Guide):
        def family(self, block: Any) -> Family:
            return Linear()

    class Linear(Family):
        def forward(self, context: HeadContext) -> HeadLogits:
            return CholeskyHeads(context.scores, context, torch.eye(3) * 0.5)

    model = build("language-model").eval()
    found = terms(model, Mixed(model), batch)
    for block in model.blocks:
        pairs = traces(model, Mixed(model), batch)[0].nodes[block.site()]["fn"].context.mask.pairs
        expected: Tensor = 3 * pairs * (0.5 * (0.25 - 1) - math.log(0.5))
        assert torch.allclose(found.kl[block.site()], expected)


def test_an_observed_head_is_refused(batch: Batch) -> None:
    model = build("language-model").eval()
    logits = {"decoder.0.self.logits": torch.zeros(3, 3, 4, 4)}
    with (
        poutine.condition(data=logits),
        pytest.raises(ValueError, match="is observed, but the bound is on the target alone"),
    ):
        terms(model, Tied(model), batch)


def test_dropout_makes_no_bound(batch: Batch) -> None:
    model = build(dropout=0.2)
    with pytest.raises(ValueError, match="dropout makes no bound"):
        terms(model, Tied(model), batch)
    assert terms(model.eval(), Tied(model), batch).elbo.isfinite().all()


class CountsNothing(FORMS["cascaded"]):  # type: ignore[misc,valid-type]
    def posterior(self, block: str, context: HeadContext) -> HeadLogits:
        mask = replace(context.mask, latent=torch.zeros_like(context.mask.latent))
        return super().posterior(block, replace(context, mask=mask))


def test_a_posterior_that_counts_other_pairs_is_refused(batch: Batch) -> None:
    model = build().eval()
    with pytest.raises(ValueError, match="count the pairs that carry a latent and no other"):
        terms(model, CountsNothing(model).double(), batch)


class Relaxed(Tied):
    def get_posterior(self, name: str, prior: Any) -> Any:
        if not name.endswith("gate"):
            return prior
        warm, half = torch.tensor(0.5), torch.full(prior.shape(), 0.5)
        return dist.RelaxedBernoulliStraightThrough(warm, half).to_event(1)


def test_a_relaxed_gate_is_refused(batch: Batch) -> None:
    model = build("language-model", gate=bernoulli_gate()).eval()
    with pytest.raises(ValueError, match="a relaxed posterior under a discrete prior"):
        terms(model, Relaxed(model), batch)


def test_delta_heads_are_refused_by_a_guide_of_its_own(batch: Batch) -> None:
    model = build("language-model", prior="delta")
    with pytest.raises(ValueError, match=r"decoder.0.self.logits.*tied guide only"):
        terms(model, attach("cascaded", model), batch)
    assert isinstance(
        traces(model, Tied(model), batch)[0].nodes["decoder.0.self.logits"]["fn"], DeltaHeads
    )
