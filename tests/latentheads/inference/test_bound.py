"""The terms of the bound, and importance-weighted bounds."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from torch import Tensor, nn
from torch.nn import functional as F

import latentheads as lh
from latentheads.batch import Batch
from latentheads.distributions import CholeskyHeads, DeltaHeads, HeadContext, HeadVariable
from latentheads.families import Family, Identity, Point
from latentheads.guide import ModelGuide
from latentheads.guides import GUIDES, Cascaded, Guide, Tied
from latentheads.handlers import PlugIn
from latentheads.inference.bound import Importance, importance, terms, traces
from latentheads.inference.evaluation import evaluate
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.alignments.distribution import Alignments
from latentheads.latents.alignments.posterior import with_parameters
from latentheads.latents.gates.hard_gates import Gating
from latentheads.models import Translation
from latentheads.names import Block
from tests.crossing import in_turn
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import (
    FORMS,
    KINDS,
    NOISY,
    SOURCE_TYPES,
    TARGET_TYPES,
    NoiseTape,
    attach,
    attentions_of,
    bernoulli_gate,
    build,
    jiggle,
    sizes,
)

CLOSED = ("cascaded", "cholesky", "mean-field")
every_form = pytest.mark.parametrize("form", FORMS)


@every_form
@pytest.mark.parametrize("prior", NOISY)
def test_every_site_says_how_its_divergence_was_computed(
    form: str, prior: str, batch: Batch
) -> None:
    model = build(prior=prior).eval()
    bound_terms = terms(model, attach(form, model), batch)
    assert list(bound_terms.kl) == list(bound_terms.how) == [b.site() for b in model.blocks]
    closed = form.removesuffix(" of target") in CLOSED and prior != "autoregressive"
    expected = "tied" if form == "tied" else "analytic" if closed else "sampled"
    assert set(bound_terms.how.values()) == {expected}
    assert repr(bound_terms).startswith(
        f"Terms of {len(bound_terms.tokens)} sentences, means in nats: elbo -"
    )
    assert repr(bound_terms).count(f"({expected})") == len(bound_terms.kl)


@in_turn(form=FORMS, kind=KINDS)
def test_bound_is_likelihood_less_every_divergence(form: str, kind: str, batch: Batch) -> None:
    model = build(kind).eval()
    guide = attach(form, model)
    torch.manual_seed(3)
    bound_terms = terms(model, guide, batch)
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
    assert torch.allclose(bound_terms.log_likelihood, likelihood, atol=1e-10)
    assert torch.allclose(bound_terms.log_ratio, ratio, atol=1e-9)
    assert torch.allclose(bound_terms.elbo, likelihood - sum(bound_terms.kl.values()), atol=1e-10)
    assert torch.allclose(bound_terms.log_weight, likelihood + ratio, atol=1e-9)
    assert bound_terms.tokens.tolist() == batch.target_valid.sum(-1).tolist()


class Pointed(Guide):
    def family(self, block: Any) -> Family:
        return Point(Identity())


class Wrapped(ModelGuide):
    """A point behind the wrappers of Pyro, which show neither its type nor its support."""

    def get_posterior(self, name: str, prior: Any) -> Any:
        latent = prior.context.mask.latent.bool().unsqueeze(-3)
        return dist.Delta(prior.mean).mask(latent).to_event(3)


@pytest.mark.parametrize("context", [0, 1])
@pytest.mark.parametrize("guide", [Pointed, Wrapped, pyro.infer.autoguide.AutoDelta])
def test_a_point_posterior_under_a_density_has_no_bound(
    guide: Any, context: int, batch: Batch
) -> None:
    model = build("language-model").eval()
    with pytest.raises(ValueError, match=r"site 'decoder.0.self.logits': a point posterior"):
        terms(model, guide(model), replace(batch, context=context))


def test_a_site_of_the_guide_alone_is_refused(batch: Batch) -> None:
    model = build("language-model").eval()
    guide = pyro.infer.autoguide.AutoNormal(model)
    assert Trace_ELBO()(model, guide)(batch).isfinite()
    for ask in (terms, Head_ELBO().loss, Head_ELBO(analytic=True).loss):
        with pytest.raises(
            ValueError, match=r"^site 'decoder.0.self.logits_unconstrained' is the guide's alone: "
        ):
            ask(model, guide, batch)


def test_a_function_around_a_guide_leaves_no_likelihood_out(batch: Batch) -> None:
    model = build("language-model").eval()
    guide = attach("cascaded", model)
    hidden = poutine.block(guide, hide=["target"])
    for ask in (lambda *args, **kw: terms(*args, **kw).elbo, Head_ELBO().differentiable_loss):
        message = r"^a function around a guide leaves the likelihood out: "
        with pyro.validation_enabled(False), pytest.raises(ValueError, match=message):
            ask(model, lambda item: guide(item), batch)
        with pytest.raises(ValueError, match=r"^the target is not observed"):
            ask(model, guide, batch, observe=False)
        torch.manual_seed(3)
        expected = ask(model, guide, batch)
        torch.manual_seed(3)
        assert torch.allclose(ask(model, lambda item: hidden(item), batch), expected)


def test_a_handler_around_the_model_is_not_passed_over(batch: Batch) -> None:
    model = build("language-model").eval()
    guide = attach("cascaded", model)
    scaled = poutine.scale(model, scale=2.0)
    for ask in (terms, Head_ELBO().loss):
        with pytest.raises(ValueError, match=r"poutine.condition go around the call"):
            ask(scaled, guide, batch)


@pytest.mark.parametrize("prior", ["delta", "residual"])
def test_point_prior_bound_is_the_exact_likelihood(prior: str, batch: Batch) -> None:
    model = build(prior=prior).eval()
    bound_terms = terms(model, Tied(model), batch)
    assert torch.equal(bound_terms.elbo, bound_terms.log_likelihood)
    assert torch.equal(bound_terms.elbo, terms(model, Tied(model), batch).elbo)


def own_guide(model: Any, masked: bool) -> Any:
    """A plain Pyro function, as a notebook writes it: it proposes every pair of every block."""

    def guide(batch: Batch) -> None:
        length = batch.target.shape[-1]
        valid = torch.ones(length, length).tril() * batch.target_valid[:, :, None]
        latent = (valid.bool() & (torch.arange(length) > 0)[:, None])[:, None]
        with pyro.plate("sentences", len(batch)):
            for block in model.blocks:
                shape = (len(batch), block.heads, length, length)
                normal = dist.Normal(torch.full(shape, 0.3), 0.8)
                pairs = normal.mask(latent.expand(shape)) if masked else normal
                pyro.sample(block.site(), pairs.to_event(3))

    return guide


def test_a_plain_pyro_guide_has_terms(batch: Batch) -> None:
    model = build("language-model").eval()
    torch.manual_seed(3)
    bound_terms = terms(model, own_guide(model, masked=True), batch)
    assert set(bound_terms.how.values()) == {"sampled"}
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
    assert torch.allclose(bound_terms.log_ratio, expected)


def test_a_guide_that_counts_pairs_without_a_latent_has_no_bound(batch: Batch) -> None:
    model = build("language-model").eval()
    with pytest.raises(ValueError, match=r"decoder.0.self.logits"):
        terms(model, own_guide(model, masked=False), batch)


def test_a_guide_of_another_model_is_refused(batch: Batch) -> None:
    first, second = build("language-model").eval(), build("language-model").eval()
    with pytest.raises(ValueError, match="model"):
        terms(first, attach("cascaded", second), batch)


def test_a_guide_in_the_place_of_its_model_is_refused(batch: Batch) -> None:
    model = build("language-model").eval()
    with pytest.raises(ValueError, match=r"^model and guide are swapped"):
        terms(attach("cascaded", model), model, batch)
    with pytest.raises(ValueError, match=r"^guide must be .*, got the class Cascaded$"):
        terms(model, Cascaded, batch)
    for validation in (True, False):
        with (
            pyro.validation_enabled(validation),
            pytest.raises(ValueError, match=r"^model and guide are swapped"),
        ):
            Head_ELBO().differentiable_loss(attach("cascaded", model), model, batch)


def test_what_all_sentences_share_is_counted_once(batch: Batch) -> None:
    model = build("language-model", blocks="none").eval()

    def global_model(batch: Batch) -> None:
        pyro.sample("global", dist.Normal(0.0, 1.0))
        model(batch)

    def guide(batch: Batch) -> None:
        pyro.sample("global", dist.Normal(0.0, 2.0))

    bound_terms = terms(global_model, guide, batch)
    assert bound_terms.kl == {}
    assert bound_terms.shared_kl["global"].item() == pytest.approx(1.5 - math.log(2))
    expected = bound_terms.log_likelihood.sum() - (1.5 - math.log(2))
    assert torch.allclose(bound_terms.bound, expected)


@pytest.mark.parametrize("seed", range(4))
def test_rounding_makes_no_closed_form_negative(batch: Batch, seed: int) -> None:
    latents = [lh.latents.SelectionOptions(strategy="group", blocks="decoder-cross")]
    model = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents).float().eval()
    guide = Tied(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter.copy_(1e-5 * torch.randn_like(parameter))
    kls = terms(model, guide, batch).shared_kl.values()
    assert min(float(kl.min()) for kl in kls) >= 0


def test_a_wrong_closed_form_is_not_hidden(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "latentheads.inference.bound.closed_form", lambda q, p: torch.full(q.batch_shape, -0.5)
    )
    model = build().eval()
    kls = terms(model, attach("cascaded", model), batch).kl.values()
    assert all((kl == -0.5).all() for kl in kls)


def test_one_latent_a_sentence_is_demanded(batch: Batch) -> None:
    model = build("language-model", blocks="none").eval()

    def two_for_each(scale: float) -> None:
        with pyro.plate("pair", 2, dim=-2), pyro.plate("sentences", len(batch), dim=-1):
            pyro.sample("twice", dist.Normal(0.0, scale))

    def model_of_two(batch: Batch) -> None:
        with poutine.block(hide=["sentences"]):
            two_for_each(1.0)
        model(batch)

    with pytest.raises(ValueError, match=r"site 'twice' must have one latent for each sentence"):
        terms(model_of_two, lambda batch: two_for_each(2.0), batch)


def test_terms_keep_no_graph(batch: Batch) -> None:
    model = build().eval()
    bound_terms = terms(model, attach("cascaded", model), batch)
    assert not bound_terms.elbo.requires_grad
    assert not bound_terms.log_weight.requires_grad


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
    single = importance(model, guide, batch, num_samples=1)
    assert torch.equal(single.bound, weight)
    assert torch.allclose(single.effective_sample_size, torch.ones(3))
    assert single.pareto_k.isnan().all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_weight_of_alignments_is_that_of_their_very_draw(shape: str, batch: Batch) -> None:
    model = aligned(SHAPES[shape])
    guide = jiggle(GUIDES["cascaded"](model).double(), 0.3).eval()
    torch.manual_seed(5)
    bound_terms = terms(model, guide, batch)
    torch.manual_seed(5)
    joint, own = (
        sum(s["fn"].log_prob(s["value"]) for s in trace.nodes.values() if s["type"] == "sample")
        for trace in traces(model, guide, batch)
    )
    assert torch.allclose(bound_terms.log_weight, joint - own, rtol=1e-12)


def test_draws_of_what_sentences_share_are_weighed_together(batch: Batch) -> None:
    gates = Gating(3, ("encoder-self",))
    model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=[gates])
    guide = jiggle(Tied(model.double().eval()).double(), 0.3)
    torch.manual_seed(5)
    weights = importance(model, guide, batch, num_samples=3).log_weights
    torch.manual_seed(5)
    drawn = [terms(model, guide, batch) for _ in range(3)]
    item = [one.log_weight.sum() + one.shared_log_ratio for one in drawn]
    assert torch.allclose(weights, torch.stack(item)[:, None], rtol=1e-12)
    assert all(one.shared_log_ratio != 0 for one in drawn)


def test_effective_sample_size_lies_between_one_and_all() -> None:
    weights = torch.stack([torch.zeros(7), torch.linspace(0, 1, 7), torch.tensor([0.0] * 6 + [99])])
    size = Importance(weights.T - 1000).effective_sample_size
    assert size[0].item() == pytest.approx(7)
    assert 1 < size[1].item() < 7
    assert size[2].item() == pytest.approx(1)


def test_importance_needs_a_sample(batch: Batch) -> None:
    model = build()
    with pytest.raises(ValueError, match=r"^num_samples must be at least 1, got 0$"):
        importance(model, Tied(model), batch, num_samples=0)
    with pytest.raises(TypeError, match="positional arguments"):  # not taken for observe
        importance(model.eval(), Tied(model), batch, 8)


def test_importance_bound_is_the_log_mean_weight() -> None:
    log_weights = torch.randn(7, 3)
    expected = log_weights.exp().mean(0).log()
    assert torch.allclose(Importance(log_weights).bound, expected)
    assert torch.allclose(Importance(log_weights - 5000).bound, expected - 5000)


def test_tail_needs_30_draws_and_tells_heavy_from_light() -> None:
    torch.manual_seed(0)
    light, heavy = 0.1 * torch.randn(200), 5 * torch.randn(200)
    equal = torch.full((200,), -3.0)
    pareto_k = Importance(torch.stack([light, heavy, equal], 1)).pareto_k
    assert pareto_k[0] < 0.5 < 0.7 < pareto_k[1]
    assert pareto_k[2] == -torch.inf
    assert Importance(torch.randn(29, 2)).pareto_k.isnan().all()
    assert not Importance(torch.randn(30, 2)).pareto_k.isnan().any()


@pytest.mark.parametrize(
    ("samples", "shape", "share"), [(32, 0.3, 0.08), (32, 0.9, 0.28), (1000, 0.9, 0.79)]
)
def test_the_tail_of_few_samples_is_rough(samples: int, shape: float, share: float) -> None:
    """Figures of docs/ideas.md, there of more sentences."""
    uniform = torch.rand(samples, 200, generator=torch.Generator().manual_seed(0)).double()
    pareto_k = Importance(-shape * uniform.log()).pareto_k
    assert float((pareto_k > 0.7).double().mean()) == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize(("k", "error"), [(1.5, 0.3), (0.5, 0.15), (-0.5, 0.15)])
def test_the_tail_of_generalised_pareto_weights_has_their_own_shape(k: float, error: float) -> None:
    """A distribution with skew: of shape -0.5 its weights are bounded, 1/w has another shape."""
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(2003, 7, generator=generator)
    weights = 1 + (u**-k - 1) / k
    pareto_k = Importance(weights.log() - 300).pareto_k
    assert pareto_k.mean().item() == pytest.approx(k, abs=error)
    assert ((pareto_k > 0.7) == (k > 0.7)).all()


def test_bounded_weights_are_safe_and_their_inverses_are_not() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2003, 7, generator=generator)
    assert (Importance(weights.log()).pareto_k < 0).all()
    assert (Importance(-weights.log()).pareto_k > 0.7).all()


@pytest.mark.parametrize(
    "log_weights",
    [
        [0.0] * 5 + [-1.0] * 45,
        [0.0] + [-900.0] * 49,
        [-900.0 * draw for draw in range(50)],
        [-math.inf] * 50,
        [math.nan] * 50,
    ],
    ids=["tied", "underflow", "far apart", "nothing", "not a number"],
)
def test_a_tail_that_ties_with_its_cut_off_is_not_known(log_weights: list[float]) -> None:
    assert Importance(torch.tensor(log_weights)[:, None]).pareto_k.isnan().all()


def test_the_largest_weights_of_all_are_no_tail_where_they_are_equal() -> None:
    log_weights = torch.cat([torch.arange(40.0), torch.full((20,), 50.0)])
    assert Importance(log_weights[:, None]).pareto_k.item() == -math.inf


def test_foreign_site_in_a_closed_form_is_exact(batch: Batch) -> None:
    """A conditioned posterior of another class falls back to sampling, never to a wrong form."""

    class Mixed(Guide):
        def family(self, block: Any) -> Family:
            return Linear()

    class Linear(Family):
        def forward(self, context: HeadContext) -> HeadVariable:
            return CholeskyHeads(context.scores, context, torch.eye(3) * 0.5)

    model = build("language-model").eval()
    bound_terms = terms(model, Mixed(model), batch)
    for block in model.blocks:
        pairs = traces(model, Mixed(model), batch)[0].nodes[block.site()]["fn"].context.mask.pairs
        expected: Tensor = 3 * pairs * (0.5 * (0.25 - 1) - math.log(0.5))
        assert torch.allclose(bound_terms.kl[block.site()], expected)


def test_an_observed_head_is_refused(batch: Batch) -> None:
    model = build("language-model").eval()
    logits = {"decoder.0.self.logits": torch.zeros(3, 3, 4, 4)}
    with (
        poutine.condition(data=logits),
        pytest.raises(ValueError, match="is observed, but the bound is on the target alone"),
    ):
        terms(model, Tied(model), batch)


def test_terms_that_a_handler_scales_or_masks_are_refused(batch: Batch) -> None:
    model = build().eval()
    guide = Tied(model)
    weights = torch.rand(len(batch)) + 0.5
    scaled, weighed = poutine.scale(scale=0.5), poutine.scale(scale=weights)
    for around in (scaled, weighed, poutine.mask(mask=False)):
        with around, pytest.raises(ValueError, match="is scaled or masked, but terms"):
            terms(model, guide, batch)
    with poutine.mask(mask=True):
        assert terms(model, guide, replace(batch, corpus_size=700)).elbo.isfinite().all()


def with_one_part_in_training(model: Any) -> Any:
    """The model in evaluation mode, but for a module of the user's own."""
    model.eval().further = nn.Identity()
    return model


@pytest.mark.parametrize(
    "changed",
    [lambda model: model, with_one_part_in_training, lambda model: poutine.scale(model, 1.0)],
    ids=["model", "part", "behind a handler"],
)
def test_a_model_in_training_mode_makes_no_bound(
    changed: Callable[[Any], Any], batch: Batch
) -> None:
    model = build("language-model", prior="delta")

    def guide(_: Batch) -> None:
        pass

    with pytest.raises(ValueError, match=r"^model must be in evaluation mode: call model.eval\(\)"):
        terms(changed(model), guide, batch)
    assert terms(model.eval(), guide, batch).elbo.isfinite().all()


class DropsOut(Cascaded):
    """A guide of alignments with dropout of its own."""

    def latent_posterior(self, name: str, prior: Alignments) -> Alignments:
        own = super().latent_posterior(name, prior).parameters
        return with_parameters(
            prior, replace(own, scores=F.dropout(own.scores, 0.5, self.training))
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_within_a_guide_makes_no_untrue_bound(shape: str, batch: Batch) -> None:
    model = aligned(SHAPES[shape])
    guide = DropsOut(model).double()
    bound_terms = [terms(model, guide, batch) for _ in range(5)]
    for one, other in pairwise(bound_terms):
        assert not torch.equal(one.elbo, other.elbo)  # each is of the guide as it was drawn
    for draw in bound_terms:
        gaps = draw.enumeration.gap()
        assert (draw.elbo < draw.enumeration.log_evidence).all()
        torch.testing.assert_close(draw.elbo + sum(gaps.values()), draw.enumeration.log_evidence)
    assert evaluate(model, guide.train(), [batch]) == evaluate(model, guide.eval(), [batch])


class CountsNothing(FORMS["cascaded"]):  # type: ignore[misc,valid-type]
    def posterior(self, block: Block, context: HeadContext) -> HeadVariable:
        mask = replace(context.mask, latent=torch.zeros_like(context.mask.latent))
        return super().posterior(block, replace(context, mask=mask))


class CountsAll(FORMS["cascaded"]):  # type: ignore[misc,valid-type]
    def posterior(self, block: Block, context: HeadContext) -> Any:
        return dist.Normal(context.scores, 0.8).to_event(3)


@pytest.mark.parametrize("context", [0, 1])
def test_a_posterior_that_counts_other_pairs_is_refused(context: int, batch: Batch) -> None:
    model, batch = build("language-model").eval(), replace(batch, context=context)
    for kind in (CountsNothing, CountsAll):
        guide = kind(model).double()
        for bound in (terms, Head_ELBO().loss, Trace_ELBO().loss):
            with pytest.raises(
                ValueError, match="count the pairs that carry a latent and no other"
            ):
                bound(model, guide, batch)


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


def test_every_guide_leaves_heads_without_noise_as_they_are(batch: Batch) -> None:
    model = build("language-model", prior="delta").eval()
    bound_terms = terms(model, attach("cascaded", model), batch)
    assert bound_terms.how["decoder.0.self.logits"] == "fixed"
    assert (bound_terms.total_kl == 0).all()
    assert isinstance(
        traces(model, Tied(model), batch)[0].nodes["decoder.0.self.logits"]["fn"], DeltaHeads
    )


# A context: tokens that are read and not scored


def copies(number: int, length: int, context: int) -> Batch:
    """One window of a text, many times."""
    row = torch.tensor([[9, 5, 12, 7, 2, 6]])[:, :length]
    return Batch(row.expand(number, -1), before=torch.full((number,), 8), context=context)


def log_mean(log_weights: Tensor) -> tuple[float, float]:
    """The logarithm of the mean weight, and its standard error."""
    largest = log_weights.max()
    weights = (log_weights - largest).exp()
    error = weights.std() / weights.mean() / len(weights) ** 0.5
    return float(largest + weights.mean().log()), float(error)


def from_the_prior(model: Any, batch: Batch, draws: int) -> tuple[float, float]:
    """Log p(scored | context) by draws of a pass that has never heard of a context."""
    plain, totals = replace(batch, context=0), []
    for _ in range(draws):
        likelihood = model.likelihood(model.states(plain), plain)
        totals.append(likelihood.token_log_prob(batch.target)[:, batch.context :].sum(-1))
    return log_mean(torch.cat(totals).detach())


class WithGates(FORMS["cascaded"]):  # type: ignore[misc,valid-type]
    def get_posterior(self, name: str, prior: Any) -> Any:
        if name.endswith("gate"):
            return dist.Bernoulli(0.4).expand(prior.shape()).to_event(1)
        return super().get_posterior(name, prior)


def estimates(model: Any, guide: Any, batch: Batch, draws: int) -> tuple[float, float, Tensor]:
    """Log p(scored | context) by importance weights, its error, and the mean of the bound."""
    bound_terms = [terms(model, guide, batch) for _ in range(draws)]
    weights = torch.cat([draw.log_weight for draw in bound_terms])
    return *log_mean(weights), torch.cat([draw.elbo for draw in bound_terms]).mean()


NEAR = {"inverse": 0.03, "masked": 0.03, "mean-field of target": 0.04, "cascaded of target": 0.04}
"""So far from its start a guide of this form is, that a few draws are enough; others: 0.06."""


@cache
def draws_of_the_prior(gated: bool) -> tuple[Any, Batch, float, float]:
    """A model, copies of a window, and log p of them with its error: once for all guides."""
    torch.manual_seed(0)
    gate = bernoulli_gate(0.6) if gated else None
    model = jiggle(build("language-model", gate=gate, heads=2, width=4).eval(), 0.3)
    batch = copies(2003, 5, context=2)
    return model, batch, *from_the_prior(model, batch, 5)


@pytest.mark.parametrize("form", [*FORMS, "gates"])
def test_behind_a_context_every_guide_bounds_the_same_likelihood(form: str) -> None:
    """Importance weights of any guide have the mean of those drawn from the prior."""
    gated, size = form == "gates", NEAR.get(form, 0.06)
    model, batch, expected, error = draws_of_the_prior(gated)
    torch.manual_seed(1)
    guide = jiggle(WithGates(model).double(), size) if gated else attach(form, model, size)
    actual, spread, elbo = estimates(model, guide, batch, 5)
    assert math.hypot(error, spread) < 0.03
    assert abs(actual - expected) < 4 * math.hypot(error, spread)
    assert elbo < expected - (0.002 if form == "tied" else 0.05)


FAR = 9.0


def odd(like: Tensor) -> Tensor:
    """One for the first key and every second after it."""
    return (torch.arange(like.shape[-1]) + 1) % 2


class Astray(Guide):
    """The prior's own form, near it behind the context and far from it in the context."""

    def __init__(self, model: Any) -> None:
        self.priors = {module.block.key: module.prior for module in attentions_of(model)}
        super().__init__(model)

    def family(self, block: Any) -> Family:
        return jiggle(copy.deepcopy(self.priors[block.key]), 0.03)

    def posterior(self, block: Block, context: HeadContext) -> HeadVariable:
        this_posterior = super().posterior(block, context)
        every_other = odd(this_posterior.location)
        by_row = torch.where(context.mask.latent > 0, 0.2 * (1 - every_other), FAR * every_other)
        return this_posterior._with_location(this_posterior.location + by_row.unsqueeze(-3))


@pytest.mark.parametrize("prior", ["independent", "autoregressive", "cascaded"])
def test_what_a_guide_says_of_the_context_is_not_asked(prior: str) -> None:
    """Drawn from this guide, the context would move the estimate by 25 errors and more."""
    torch.manual_seed(1)
    model = build("language-model", prior, heads=2, width=4, norm="pre").eval()
    guide = Astray(jiggle(model, 0.5)).double()
    batch = copies(2003, 6, context=3)
    expected, error = from_the_prior(model, batch, 5)
    actual, spread, elbo = estimates(model, guide, batch, 5)
    assert math.hypot(error, spread) < 0.03
    assert abs(actual - expected) < 4 * math.hypot(error, spread)
    assert elbo < expected - 0.3


def exactly(model: Any, batch: Batch, monkeypatch: pytest.MonkeyPatch, below: int = 0) -> float:
    """Log p(scored | context) of one head whose rows are independent integrals.

    Such is the only layer of a network, or the second of one whose first has windows of one
    position: it reads one number a row of what is drawn below.
    """
    length = batch.target.shape[1]
    nodes, weights = (torch.tensor(x) for x in np.polynomial.hermite_e.hermegauss(19 - 6 * below))
    weights = weights / weights.sum()
    grid = torch.cartesian_prod(*[nodes] * (length + below))
    weight = torch.cartesian_prod(*[weights] * (length + below)).prod(-1)
    one = replace(
        batch,
        target=batch.target[:1].expand(len(grid), -1),
        before=batch.before[:1].expand(len(grid)),
    )

    def grid_noise(like: Tensor, shape: Any = None) -> Tensor:
        own = grid[:, :below] if below and like.shape[-1] == below else grid[:, below:]
        return own[:, None, None, :].expand(like.shape)

    with monkeypatch.context() as patch:
        patch.setattr("latentheads.distributions.heads.standard_normal", grid_noise)
        likelihood = model.likelihood(model.states(one), one)
    by_token = likelihood.token_log_prob(one.scored).detach()
    return float((weight[:, None] * by_token.exp()).sum(0).log().sum())


@pytest.mark.parametrize("prior", NOISY)
def test_a_posterior_of_the_priors_form_and_weights_costs_nothing(
    prior: str, batch: Batch, tape: NoiseTape
) -> None:
    """Another object than the prior, so that nothing is 0 by identity."""
    model = build("language-model", prior).eval()
    own = {module.block.key: module.prior for module in attentions_of(model)}

    class Same(Guide):
        def family(self, block: Any) -> Family:
            return own[block.key]

    batch = replace(batch, before=torch.tensor([4, 9, 1]), context=2)
    bound_terms = terms(model, Same(model), batch)
    assert set(bound_terms.how.values()) == {"sampled" if prior == "autoregressive" else "analytic"}
    for kl in bound_terms.kl.values():
        assert torch.allclose(kl, torch.zeros(3), atol=1e-12)
    assert torch.allclose(bound_terms.log_ratio, torch.zeros(3), atol=1e-10)
    assert torch.allclose(bound_terms.log_weight, bound_terms.log_likelihood, atol=1e-10)


@pytest.mark.parametrize("form", CLOSED)
def test_the_divergence_of_a_window_is_that_of_its_scored_rows(
    form: str, batch: Batch, tape: NoiseTape
) -> None:
    """With one block no row reads what is drawn in another: the rows of a whole block add up."""
    model = build("language-model", layers=1).eval()
    guide = attach(form, model)
    batch = replace(batch, before=torch.tensor([4, 9, 1]))
    site = model.blocks[0].site()
    whole, actual = [], []
    for context in range(5):
        actual.append(terms(model, guide, replace(batch, context=context)).kl[site])
        prefix = replace(batch, target=batch.target[:, :context])
        whole.append(terms(model, guide, prefix).kl[site] if context else torch.zeros(3))
    for rest, first in zip(actual, whole, strict=True):
        assert torch.allclose(rest + first, actual[0], atol=1e-12)
    assert (actual[0] >= actual[2]).all()
    assert actual[2][0] > 0


# Logits that are read and not counted


def read_everything(context: HeadContext) -> Any:
    """Gates given every score and all that was sampled below, padding included."""
    below = 0.0 if context.below is None else context.below.mean((-1, -2))
    return dist.Bernoulli(logits=context.scores.mean((-1, -2)) + below).to_event(1)


def foreign(prior: Any, scale: float = 0.95) -> Any:
    """Another library's class: near the prior where a pair carries a latent, else far from it."""
    latent = (prior.context.mask.latent > 0).unsqueeze(-3).expand(prior.shape())
    location = torch.where(latent, prior.location, prior.location + FAR * odd(prior.location))
    return dist.Normal(location, scale).mask(latent).to_event(3)


class Foreign(Tied):
    def get_posterior(self, name: str, prior: Any) -> Any:
        return foreign(prior) if isinstance(prior, HeadVariable) else prior


def own_pass(model: Any) -> Any:
    """A plain Pyro guide of such distributions, around a pass without noise."""

    def guide(batch: Batch) -> None:
        with poutine.block(), PlugIn():
            nodes = poutine.trace(model).get_trace(batch).nodes
        with pyro.plate("sentences", len(batch)):
            for block in model.blocks:
                pyro.sample(block.site(), foreign(nodes[block.site()]["fn"], 1.3))

    return guide


ASTRAY: dict[str, Any] = {
    "reader": lambda model: Astray(model).double(),
    "foreign": Foreign,
    "own pass": own_pass,
}


@pytest.mark.parametrize("guide", ASTRAY)
@pytest.mark.parametrize("prior", ["cascaded", "released"])
def test_a_window_of_one_position_has_a_bound_though_the_block_above_reads_its_logits(
    guide: str, prior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    window = {"mixers": "local,attention", "windows": "1"}
    model = jiggle(build("language-model", prior, heads=1, width=4, **window), 0.5).eval()
    batch = copies(2003, 3, context=0)
    truth = exactly(model, batch, monkeypatch, below=1)
    actual, spread, elbo = estimates(model, ASTRAY[guide](model), batch, 3)
    assert spread < 0.035
    assert abs(actual - truth) < 4 * spread
    assert elbo < truth


@pytest.mark.parametrize("guide", ["reader", "foreign"])
@pytest.mark.parametrize("context", [0, 1])
def test_a_gate_may_read_what_carries_no_latent(guide: str, context: int) -> None:
    """Here of padding, and of the logits below."""
    torch.manual_seed(1)
    model = build("language-model", gate=read_everything, heads=1, width=4)
    model = jiggle(model, 0.3).eval()
    batch = copies(2003, 3, context)
    batch = replace(batch, target=torch.nn.functional.pad(batch.target, (0, 2)))
    expected, error = from_the_prior(model, batch, 5)
    actual, spread, elbo = estimates(model, ASTRAY[guide](model), batch, 3)
    assert math.hypot(error, spread) < 0.03
    assert abs(actual - expected) < 4 * math.hypot(error, spread)
    assert elbo < expected
