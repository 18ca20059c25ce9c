"""Guides of alignments: one model, one exact log p, and for each guide exactly what it lacks."""

from __future__ import annotations

import math
import warnings
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, get_args

import pyro
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import Batch
from latentheads.guide import ModelGuide
from latentheads.guides import GUIDES
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import evaluate, plug_in_log_likelihood
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.alignments import emission
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import NOWHERE, Alignments, CategoricalParameters
from latentheads.latents.alignments.enumeration import AlignmentEnumeration
from latentheads.latents.alignments.posterior import with_parameters
from latentheads.latents.summed_out import Objective
from tests.crossing import in_turn, pairwise
from tests.guides.attached import LEARNED, SUMMED, attach
from tests.latentheads.latents.alignments.memory import Largest
from tests.latentheads.latents.alignments.models import (
    ALIGNED_KINDS,
    MIXTURE,
    SHAPES,
    SOFT,
    aligned,
)
from tests.tiny import KINDS, TARGET_TYPES, NoiseTape, padded, rows

READS = ("source", "prefix", "target")
OBJECTIVES = [name for name in get_args(Objective) if name != "relaxed"]
every_kind = pytest.mark.parametrize("kind", ALIGNED_KINDS)


@pairwise(shape=SHAPES, name=SUMMED, condition_on=READS, kind=ALIGNED_KINDS)
def test_a_bound_lacks_its_gap_of_the_exact_log_p(
    shape: str, name: str, condition_on: str, kind: str, batch: Batch
) -> None:
    model = aligned(SHAPES[shape], kind=kind)
    guide = attach(name, model, condition_on)
    bound_terms = terms(model, guide, batch)
    assert bound_terms.enumeration is not None
    exact, gap = bound_terms.enumeration.log_evidence, sum(bound_terms.enumeration.gap().values())
    assert torch.allclose(exact, plug_in_log_likelihood(model, batch), rtol=1e-12, atol=0)
    assert torch.allclose(bound_terms.elbo, exact - gap, rtol=0, atol=1e-10)
    assert (bound_terms.elbo <= exact + 1e-10).all()
    tied, best = name == "tied", name == "exact"
    assert bool((gap.abs() < 1e-10).all()) == best
    assert all((kl == 0).all() == tied for kl in bound_terms.kl.values())
    assert set(bound_terms.how.values()) == {"tied" if tied else "enumerated"}


@pytest.mark.parametrize(
    ("shape", "objective"),
    [*product(("one head", "two blocks", "chain"), ("bound", "marginal")), ("soft", "bound")],
)
def test_vectorised_particles_share_what_is_summed(
    shape: str, objective: str, batch: Batch
) -> None:
    model = aligned({**SHAPES, **SOFT}[shape])
    guide = attach("tied" if shape == "soft" else "cascaded", model)
    options = {"num_particles": 3, "vectorize_particles": True, "max_plate_nesting": 1}
    together = Head_ELBO(objective=objective, **options).differentiable_loss(model, guide, batch)
    alone = Head_ELBO(objective=objective).differentiable_loss(model, guide, batch)
    torch.testing.assert_close(together, alone)


@pairwise(shape=SHAPES, name=["tied", *LEARNED], objective=["bound", "marginal"])
def test_vectorised_particles_of_the_decoder_alone_are_a_mean(
    shape: str, name: str, objective: str, batch: Batch, tape: NoiseTape
) -> None:
    """What the heads point at is shared by all particles."""
    model = aligned(SHAPES[shape], prior="independent", blocks="decoder-self")
    guide = attach(name, model)
    options = {"num_particles": 2, "vectorize_particles": True, "max_plate_nesting": 1}
    # as many sentences as particles, and as many words as both together
    pair = Batch(torch.tensor([[5, 6, 7, 2], [8, 9, 10, 2]]), rows(batch, [0, 2]).source)
    together = Head_ELBO(objective=objective, **options).loss(model, guide, pair)
    losses = []
    for particle in range(2):
        tape.rewind(particle=particle)
        losses.append(Head_ELBO(objective=objective).loss(model, guide, pair))
    assert together == pytest.approx(sum(losses) / 2)


@pytest.mark.parametrize(
    ("shape", "name", "objective"),
    [
        ("one head", "cascaded", "marginal"),
        ("two blocks", "cascaded", "bound"),
        ("two heads", "mean-field", "bound"),
        ("two blocks", "exact", "bound"),
        ("one head", "tied", "bound"),
    ],
)
def test_training_makes_no_scores_a_second_time(
    shape: str, name: str, objective: Any, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the objective asks of the table of words is foreseen."""
    model = aligned(SHAPES[shape])
    loss = Head_ELBO(objective=objective).differentiable_loss(model, attach(name, model), batch)
    monkeypatch.delattr(emission, "_Scores")
    (loss / 7).backward()
    assert model.output.table.weight.grad.isfinite().all()


@pairwise(
    form=[*product(("two blocks", "two heads"), LEARNED), ("chain", "cascaded")],
    condition_on=READS,
    objective=["bound", "marginal", "sampled"],
)
def test_training_moves_all_that_a_guide_has(
    form: tuple[str, str], condition_on: str, objective: Any, batch: Batch
) -> None:
    """Processes that share a training wait for the gradient of every weight."""
    shape, name = form
    model = aligned(SHAPES[shape])
    guide = attach(name, model, condition_on)
    Head_ELBO(objective=objective).differentiable_loss(model, guide, batch).backward()
    assert not [name for name, tensor in guide.named_parameters() if tensor.grad is None]


@pytest.mark.parametrize("shape", SHAPES)
def test_drawn_alignments_have_the_enumerated_bound_as_their_mean(shape: str, batch: Batch) -> None:
    model = aligned(SHAPES[shape])
    guide = attach("cascaded", model)
    bound_terms = terms(model, guide, batch)
    draws = torch.stack([terms(model, guide, batch).log_weight for _ in range(30)])
    error = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - bound_terms.elbo).abs() < 5 * error).all()
    iwae = draws.logsumexp(0) - math.log(len(draws))
    assert bound_terms.enumeration is not None
    assert (
        (bound_terms.elbo - 3 * error < iwae) & (iwae < bound_terms.enumeration.log_evidence + 0.5)
    ).all()


@pairwise(shape={**SHAPES, **MIXTURE}, name=LEARNED, condition_on=READS, kind=ALIGNED_KINDS)
def test_a_guide_starts_at_the_prior_without_the_coupling_that_it_leaves_out(
    shape: str, name: str, condition_on: str, kind: str, batch: Batch
) -> None:
    model = aligned({**SHAPES, **MIXTURE}[shape], kind=kind)
    guide = GUIDES[name](model, condition_on=condition_on).double().eval()
    bound, prior = terms(model, guide, batch), terms(model, GUIDES["tied"](model).eval(), batch)
    if shape not in ("two blocks", "chain") or name == "cascaded":
        assert (bound.total_kl.abs() < 1e-12).all()
        torch.testing.assert_close(bound.elbo, prior.elbo, rtol=0, atol=1e-12)
        return
    assert isinstance(prior.enumeration, AlignmentEnumeration)
    inference = prior.enumeration.inference
    product = [CategoricalParameters(p.scores, first_head=p.first_head) for p in inference.priors]
    expected = torch.stack(inference.kl(product)).sum(0)
    assert expected.max() > 1e-6
    torch.testing.assert_close(bound.total_kl, expected, rtol=0, atol=1e-12)


@in_turn(name=LEARNED, kind=ALIGNED_KINDS)
def test_padding_is_nothing_to_a_guide(name: str, kind: str, batch: Batch) -> None:
    model = aligned(SHAPES["two heads" if name == "autoregressive" else "two blocks"], kind=kind)
    guide = attach(name, model)
    elbo, more = (terms(model, guide, item).elbo for item in (batch, padded(batch, 2, 3)))
    assert torch.allclose(elbo, more, rtol=0, atol=1e-12)


@every_kind
@pytest.mark.parametrize("condition_on", READS)
def test_what_a_guide_may_read(condition_on: str, kind: str, batch: Batch) -> None:
    model = aligned(SHAPES["one head"], kind=kind)
    guide = attach("mean-field", model, condition_on)
    batch = rows(batch, [0])
    first = 0 if kind == "translation" else 1  # the first word of a text points at null alone

    def probs_given(given: Batch) -> torch.Tensor:
        guide(given)
        scores: torch.Tensor = guide.trace.nodes["decoder.0.alignment.choice"][
            "fn"
        ].parameters.scores
        return scores.log_softmax(-1).exp()

    later = batch.target.clone()
    later[0, 2] = 9
    before, after = probs_given(batch), probs_given(Batch(later, batch.source))
    same = [torch.allclose(before[0, t], after[0, t], rtol=0, atol=1e-12) for t in range(4)]
    wanted = {"source": [True] * 4, "prefix": [True] * 3 + [False], "target": [False] * 4}
    if (
        condition_on == "source"
    ):  # its own scores stand on the prior's, which reads the words before
        same, wanted["source"] = same[:3], [True] * 3
    assert same[first:] == wanted[condition_on][first:]


@pairwise(shape=SHAPES, marginal=[False, True], kind=ALIGNED_KINDS)
def test_every_parameter_is_trained(shape: str, marginal: bool, kind: str, batch: Batch) -> None:
    model = aligned(SHAPES[shape], kind=kind)
    guide = attach("cascaded", model)
    objective = Head_ELBO(analytic=True, objective="marginal" if marginal else "bound")
    loss = objective.differentiable_loss(model, guide, batch)
    loss.backward()
    assert all(p.grad is not None for p in (*model.parameters(), *guide.parameters()))
    bound_terms = terms(model, guide, batch)
    assert bound_terms.enumeration is not None
    wanted = bound_terms.enumeration.log_evidence if marginal else bound_terms.elbo
    assert loss.item() == pytest.approx(-wanted.sum().item(), rel=1e-12)


@in_turn(shape=[*SHAPES, "mixture"], kind=ALIGNED_KINDS)
def test_the_marginal_has_the_gradient_of_the_exact_guide_whatever_the_guide(
    shape: str, kind: str, batch: Batch
) -> None:
    model = aligned({**SHAPES, **MIXTURE}[shape], kind=kind)
    computed_gradients = []
    for name, marginal in (("exact", False), ("exact", True), ("tied", True), ("cascaded", True)):
        model.zero_grad()
        guide = attach(name, model)
        objective = Head_ELBO(analytic=True, objective="marginal" if marginal else "bound")
        objective.differentiable_loss(model, guide, batch).backward()
        computed_gradients.append([p.grad.clone() for p in model.parameters()])
    for one, *others in zip(*computed_gradients, strict=True):
        for other in others:
            assert torch.allclose(one, other, rtol=1e-9, atol=1e-10)


def gradients(model: Any, guide: Any, objective: str, batch: Batch) -> list[Tensor]:
    """Those of the model."""
    model.zero_grad()
    elbo = Head_ELBO(analytic=True, objective=objective)
    elbo.differentiable_loss(model, guide, batch).backward()
    return [p.grad.clone() for p in model.parameters()]


@pairwise(shape=SHAPES, name=LEARNED, kind=ALIGNED_KINDS)
def test_the_model_is_not_reached_through_the_guide(
    shape: str, name: str, kind: str, batch: Batch
) -> None:
    model = aligned(SHAPES[shape], kind=kind)
    guide = attach(name, model)
    grads = gradients(model, guide, "bound", batch)
    own = guide.latent_posterior
    guide.latent_posterior = lambda name, prior: with_parameters(
        prior, own(name, prior).parameters.detached()
    )
    torch.testing.assert_close(grads, gradients(model, guide, "bound", batch))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda own: CategoricalParameters(own.scores),
            r"decoder.1.alignment.choice': first_head must be 1, the number of the block's first",
        ),
        (
            lambda own: CategoricalParameters(own.scores[..., 0, :], first_head=own.first_head),
            r"decoder.0.alignment.choice': scores must be of sentences, words, heads and positions",
        ),
        (
            lambda own: CategoricalParameters(
                own.scores[:1].expand(7, -1, -1, -1), first_head=own.first_head
            ),
            r"scores must be of sentences, words, heads and positions of shape \(3, .*got \(7, ",
        ),
        (
            lambda own: (
                replace(own, pairs={(1, 0): own.scores[..., :1, :]}) if own.first_head else own
            ),
            r"decoder.1.*of words, or 1 for all, and pairs of positions of shape",
        ),
        (
            lambda own: replace(
                own, pairs={(own.first_head, own.first_head + 1): own.scores[..., :1, :]}
            ),
            r"pairs must be of a head of the block, of \[0\], and one below it, got \(0, 1\)",
        ),
        (
            lambda own: replace(
                own, pairs={(own.first_head, own.first_head): own.scores[..., :1, :]}
            ),
            r"pairs must be of a head of the block, of \[0\], and one below it, got \(0, 0\)",
        ),
    ],
)
def test_parameters_of_no_law_of_the_block_are_refused(
    wrong: Any, message: str, batch: Batch
) -> None:
    model = aligned(SHAPES["two blocks"])
    guide = attach("tied", model)
    guide.get_posterior = lambda name, prior: with_parameters(prior, wrong(prior.parameters))
    with pytest.raises(ValueError, match=message):
        terms(model, guide, batch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["one head", "two blocks", "chain"])
def test_labels_are_smoothed_at_each_position_in_training_alone(
    shape: str, kind: str, batch: Batch
) -> None:
    model = aligned(SHAPES[shape], kind=kind)
    guide = attach("tied", model)
    exact = terms(model, guide, batch)
    model.label_smoothing = 0.3
    again = terms(model, guide, batch)
    assert torch.equal(exact.elbo, again.elbo)
    model.training = True  # of the whole alone: nothing is dropped
    tokens = model.token_distribution(batch)
    words, summed = batch.scored, tokens.exact_inference(batch.scored)
    every = [
        tokens.exact_inference(torch.full_like(words, v)).emissions for v in range(TARGET_TYPES)
    ]
    model.training = False
    plain = model.token_distribution(batch)
    emissions = [
        plain.exact_inference(torch.full_like(words, v)).emissions for v in range(TARGET_TYPES)
    ]
    mean = torch.stack(emissions).mean(0)
    wanted = 0.7 * plain.exact_inference(words).emissions + 0.3 * mean
    assert torch.allclose(summed.emissions, wanted, rtol=1e-12, atol=1e-12)
    assert torch.allclose(torch.stack(every).mean(0), mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "objective"),
    [*(("one head", objective) for objective in OBJECTIVES), ("soft", "bound")],
)
def test_every_objective_is_trained_with_smoothed_labels(
    shape: str, objective: str, batch: Batch
) -> None:
    model, loss_values = aligned({**SHAPES, **SOFT}[shape]), []
    model.training = True
    for model.label_smoothing in (0.0, 0.3):
        torch.manual_seed(0)
        elbo = Head_ELBO(analytic=True, objective=objective)
        loss_values.append(elbo.differentiable_loss(model, attach("tied", model), batch).item())
    assert loss_values[0] != loss_values[1]


@pytest.mark.parametrize("objective", ["marginal", "iwae", "rws"])
def test_free_bits_are_not_taken_of_a_kl_that_is_in_the_weights(
    objective: str, batch: Batch
) -> None:
    model = aligned(SHAPES["one head"])
    guide, loss_values = attach("mean-field", model), []
    for free_bits in (0.0, 9.0):
        torch.manual_seed(0)
        elbo = Head_ELBO(analytic=True, free_bits=free_bits, objective=objective)
        loss_values.append(elbo.differentiable_loss(model, guide, batch).item())
    assert loss_values[0] == loss_values[1]


def tiny(batch: Batch) -> Batch:
    """Two sentences of two words, and of two and three positions: few alignments."""
    return Batch(batch.target[1:3, :2], batch.source[1:3, :3])


def on_its_own(guide: Any) -> Any:
    """A guide's posteriors as sites of a guide that runs before the model, which Pyro sums."""

    @config_enumerate
    def proposal(batch: Batch) -> None:
        with pyro.poutine.block():
            guide(batch)
        drawn: Tensor | None = None
        with pyro.plate("sentences", len(batch)):
            for name, site in guide.trace.nodes.items():
                if isinstance(site["fn"], Alignments):
                    distribution = site["fn"]
                    value = pyro.sample(
                        name, Alignments(distribution.parameters, distribution.valid, drawn)
                    )
                    both = (value,) if drawn is None else torch.broadcast_tensors(drawn, value)
                    drawn = torch.cat(both, -1)

    return proposal


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        *product(SHAPES, ("tied", "cascaded", "exact")),
        *product(("two heads", "two blocks"), ("mean-field", "autoregressive")),
    ],
)
def test_pyro_enumerates_a_guide_to_the_same_bound_and_gradient(
    shape: str, name: str, batch: Batch
) -> None:
    batch, model = tiny(batch), aligned(SHAPES[shape])
    guide = attach(name, model)
    wanted = Head_ELBO().differentiable_loss(model, guide, batch)
    given_gradients = torch.autograd.grad(wanted, [*model.parameters(), *guide.parameters()])
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    loss_value = elbo.differentiable_loss(model, on_its_own(guide), batch)
    assert loss_value.item() == pytest.approx(wanted.item(), rel=1e-9)
    own = torch.autograd.grad(loss_value, [*model.parameters(), *guide.parameters()])
    torch.testing.assert_close(own, given_gradients, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_pyro_enumerates_a_model_and_trains_it_by_the_exact_log_p(shape: str, batch: Batch) -> None:
    batch, model = tiny(batch), aligned(SHAPES[shape])
    grads = gradients(model, attach("exact", model), "marginal", batch)
    model.zero_grad()
    elbo, nobody = TraceEnum_ELBO(max_plate_nesting=1), lambda batch: None
    elbo.differentiable_loss(config_enumerate(model), nobody, batch).backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], grads, rtol=1e-8, atol=1e-10)
    model.zero_grad()
    svi = SVI(config_enumerate(model), nobody, pyro.optim.Adam({"lr": 0.05}), elbo)
    before = plug_in_log_likelihood(model, batch).sum().item()
    assert svi.step(batch) == pytest.approx(-before, rel=1e-9)
    for _ in range(7):
        svi.step(batch)
    assert plug_in_log_likelihood(model, batch).sum().item() > before + 0.6


@in_turn(shape=SHAPES, objective=["bound", "marginal", "iwae"])
def test_alignments_that_are_given_are_scored_by_the_prior_and_not_summed(
    shape: str, objective: str, batch: Batch
) -> None:
    model = aligned(SHAPES[shape])
    guide = attach("cascaded", model)
    sites = pyro.poutine.trace(model).get_trace(batch).nodes.items()
    given = {name: site["value"] for name, site in sites if name.endswith("choice")}
    with pyro.poutine.condition(data=given):
        expected = pyro.poutine.trace(model).get_trace(batch).log_prob_sum()
        assert Trace_ELBO().loss(model, guide, batch) == pytest.approx(-expected.item())
        with pytest.raises(ValueError, match=r"choice' is observed, and Head_ELBO sums over"):
            Head_ELBO(objective=objective).loss(model, guide, batch)


def test_bayes_needs_alignments() -> None:
    with pytest.raises(ValueError, match="guide exact needs a latent that is summed out, such as"):
        GUIDES["exact"](aligned(None))


def test_a_report_says_what_is_exact(batch: Batch) -> None:
    model = aligned(SHAPES["two blocks"])
    report = evaluate(model, attach("cascaded", model), [batch], num_samples=3)
    assert report.exact is not None
    assert report.gap is not None
    assert report.exact - report.elbo == pytest.approx(report.gap, rel=1e-9)
    assert sum(report.gap_by_site.values()) == pytest.approx(report.gap, rel=1e-12)
    assert report.elbo < report.iwae < report.exact + 0.2
    assert 1 < report.effective_sample_size < 3
    assert report.plug_in == pytest.approx(report.exact, rel=1e-12)
    assert report.information is not None
    assert report.information > 0
    assert report.perplexities()["exact"] == pytest.approx(math.exp(-report.exact), rel=1e-12)
    plain = aligned(None)
    assert "gap" not in evaluate(plain, GUIDES["tied"](plain), [batch]).scores()


@pytest.mark.parametrize("shape", SHAPES)
def test_alignments_are_drawn_anew_without_a_pass(shape: str, batch: Batch) -> None:
    """Weights of the guide's own draws: their mean is the bound, that of their powers log p."""
    model = aligned(SHAPES[shape])
    bound_terms = terms(
        model, attach("cascaded", model, size=0.05), batch
    )  # near the prior: light tails
    assert bound_terms.enumeration is not None
    weights = bound_terms.enumeration.log_weights(3000)
    error = weights.std(0) / math.sqrt(len(weights))
    assert ((weights.mean(0) - bound_terms.elbo).abs() < 5 * error + 1e-9).all()
    ratios = (weights - bound_terms.enumeration.log_evidence).exp()
    assert ((ratios.mean(0) - 1).abs() < 5 * ratios.std(0) / math.sqrt(len(ratios)) + 1e-9).all()


def test_a_guide_that_leaves_alignments_out_keeps_their_prior(batch: Batch) -> None:
    model = aligned(SHAPES["two blocks"])
    bound_terms = terms(model, lambda batch: None, batch)
    tied = terms(model, attach("tied", model), batch)
    assert torch.allclose(bound_terms.elbo, tied.elbo, rtol=1e-12, atol=0)


def test_a_posterior_of_another_kind_is_refused_by_its_site(batch: Batch) -> None:
    model = aligned(SHAPES["one head"])
    shape = model.hidden(batch).states.shape[:-1]

    def guide(batch: Batch) -> None:
        with pyro.plate("sentences", len(batch)):
            categorical = pyro.distributions.Categorical(torch.ones(*shape, 1, 2)).to_event(2)
            pyro.sample("decoder.0.alignment.choice", categorical)

    with pytest.raises(ValueError, match=r"decoder.0.alignment.choice.*got Independent"):
        terms(model, guide, batch)


@pytest.mark.parametrize("shape", ["one head", "two heads"])
def test_a_chain_explains_no_words_that_stand_apart(shape: str, batch: Batch) -> None:
    """Their sums would not know what a word reads of the one before, and its KL would be wrong."""
    model = aligned(SHAPES[shape])
    guide = attach("tied", model)

    def chain(name: str, prior: Any) -> Any:
        own = prior.parameters
        keys = own.scores.shape[-1]
        return with_parameters(
            prior,
            ChainParameters(
                own.scores, transition_scores=torch.zeros(*own.scores.shape[:-3], 1, keys, keys)
            ),
        )

    guide.get_posterior = chain
    with pytest.raises(ValueError, match="ChainParameters is for prior chain alone: give"):
        terms(model, guide, batch)


@in_turn(name=SUMMED, shape=SHAPES)
def test_half_precision_changes_the_bound_by_little(name: str, shape: str, batch: Batch) -> None:
    guide = attach(name, aligned(SHAPES[shape])).float()
    expected = terms(guide.model.float(), guide, batch).elbo
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype):
            assert torch.allclose(terms(guide.model, guide, batch).elbo, expected, rtol=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_minus_infinity_masks_in_every_precision(dtype: torch.dtype, batch: Batch) -> None:
    model = aligned(SHAPES["one head"])
    guide = attach("tied", model)

    def first(name: str, prior: Any) -> Any:
        scores = torch.zeros(prior.parameters.scores.shape, dtype=dtype)
        scores[..., 1] = -math.inf
        return with_parameters(prior, CategoricalParameters(scores))

    guide.get_posterior = first
    assert terms(model, guide, batch).elbo.isfinite().all()


@pytest.mark.parametrize("outside", [-math.inf, 0.0, 1e30])
def test_a_posterior_points_where_its_prior_may_whatever_its_scores(
    outside: float, batch: Batch
) -> None:
    """Padding has no mass, whether a guide masks it by minus infinity or not at all."""
    model = aligned(SHAPES["one head"])
    guide = attach("tied", model)
    scores = torch.randn_like(
        model.token_distribution(batch).exact_inference(batch.scored).priors[0].scores
    )
    posterior, actual = scores.requires_grad_(), []
    for other in (NOWHERE, outside):

        def own(name: str, prior: Any, other: float = other) -> Any:
            masked = prior.parameters.scores == NOWHERE
            return with_parameters(
                prior, CategoricalParameters(posterior.masked_fill(masked, other))
            )

        guide.get_posterior = own
        loss = Head_ELBO().differentiable_loss(model, guide, batch)
        actual.append((loss, *torch.autograd.grad(loss, [posterior])))
    assert torch.equal(actual[0][0], actual[1][0])
    assert torch.equal(actual[0][1], actual[1][1])
    assert actual[0][1].isfinite().all()


def test_a_posterior_may_leave_out_by_minus_infinity_what_its_prior_does_not(batch: Batch) -> None:
    model = aligned(SHAPES["one head"])
    guide = attach("tied", model)

    def first(name: str, prior: Any) -> Any:
        scores = torch.full_like(prior.parameters.scores, -math.inf)
        scores[..., 0] = 0.0
        return with_parameters(prior, CategoricalParameters(scores))

    guide.get_posterior = first
    bound_terms = terms(model, guide, batch)
    assert bound_terms.elbo.isfinite().all()
    assert (bound_terms.elbo <= plug_in_log_likelihood(model, batch)).all()


def test_a_posterior_that_leaves_a_word_no_position_is_refused(batch: Batch) -> None:
    model = aligned(SHAPES["one head"])
    guide = attach("tied", model)

    def answer(name: str, prior: Any) -> Any:
        return with_parameters(
            prior, CategoricalParameters(torch.full_like(prior.parameters.scores, -math.inf))
        )

    guide.get_posterior = answer
    site = "decoder.0.alignment.choice"
    with pytest.raises(ValueError, match=f"^site '{site}': scores mask all positions of a word"):
        terms(model, guide, batch)


@pytest.mark.parametrize("shape", ["two heads", "chain"])
@pytest.mark.parametrize("stays", [False, True])
def test_given_what_it_reads_each_word_must_keep_a_position(
    shape: str, stays: bool, batch: Batch
) -> None:
    """Of real positions, where one to the right of the last has none, unless it may stay."""
    model = aligned(SHAPES[shape])
    guide = attach("tied", model)

    def answer(name: str, prior: Any) -> Any:
        parameters = prior.parameters
        keys = parameters.scores.shape[-1]
        back = torch.ones(keys, keys).tril(-1 if stays else 0).bool()
        read = torch.zeros(1, keys, keys, dtype=parameters.scores.dtype).masked_fill(back, NOWHERE)
        if shape == "chain":
            return with_parameters(
                prior, ChainParameters(parameters.scores, transition_scores=read)
            )
        read = read.expand(*parameters.scores.shape[:-3], -1, -1, -1)
        return with_parameters(prior, CategoricalParameters(parameters.scores, {(1, 0): read}))

    guide.get_posterior = answer
    if stays:
        bound_terms = terms(model, guide, batch)
        assert (bound_terms.elbo > -1e4).all()
    else:
        with pytest.raises(ValueError, match="mask all positions of a word"):
            terms(model, guide, batch)


def test_a_position_that_only_a_last_word_takes_needs_no_way_on(batch: Batch) -> None:
    model = aligned(SHAPES["chain"])
    guide = attach("tied", model)
    is_last = batch.scored_mask & ~F.pad(batch.scored_mask[:, 1:], (0, 1))

    def answer(name: str, prior: Any) -> Any:
        scores = prior.parameters.scores.clone()
        scores[..., 0, 1].masked_fill_(~is_last, NOWHERE)
        read = torch.zeros(1, scores.shape[-1], scores.shape[-1]).double()
        read[:, 1] = NOWHERE
        return with_parameters(prior, ChainParameters(scores, transition_scores=read))

    guide.get_posterior = answer
    assert (terms(model, guide, batch).elbo > -1e4).all()


def test_a_sentence_without_a_source_has_a_bound(batch: Batch) -> None:
    assert batch.source is not None
    empty = replace(batch, source=batch.source * torch.tensor([[1], [0], [1]]))
    for shape in SHAPES:
        model = aligned(SHAPES[shape])
        bound_terms = terms(model, attach("cascaded", model), empty)
        assert bound_terms.enumeration is not None
        assert (bound_terms.elbo <= bound_terms.enumeration.log_evidence + 1e-9).all()


def test_a_chain_that_masks_nothing_is_checked_without_all_pairs_of_positions(batch: Batch) -> None:
    prior = (
        aligned(SHAPES["chain"]).token_distribution(batch).exact_inference(batch.scored).priors[0]
    )
    alignments = Alignments(prior, batch.scored_mask)
    with Largest() as made:
        with_parameters(alignments, replace(prior, scores=prior.scores + 1))
    assert made.size == prior.scores.numel()


@pytest.mark.parametrize("shape", ["two heads", "two blocks", "chain"])
def test_what_is_read_of_another_is_masked_by_a_finite_number(shape: str, batch: Batch) -> None:
    model = aligned(SHAPES[shape])
    guide = attach("tied" if shape == "chain" else "cascaded", model)

    def answer(name: str, prior: Any, outside: float) -> Any:
        parameters = prior.parameters
        keys = parameters.scores.shape[-1]
        read = torch.linspace(-1, 1, keys**2, dtype=parameters.scores.dtype).view(1, keys, keys)
        read = read.masked_fill(torch.ones(keys, keys).triu(2).bool(), outside)
        if shape == "chain":
            return with_parameters(
                prior, ChainParameters(parameters.scores, transition_scores=read)
            )
        read = read.expand(*parameters.scores.shape[:-3], -1, -1, -1)
        pairs = {(head, lower): read for head in parameters.heads for lower in range(head)}
        return with_parameters(
            prior, CategoricalParameters(parameters.scores, pairs, parameters.first_head)
        )

    guide.get_posterior = partial(answer, outside=NOWHERE)
    bound_terms = terms(model, guide, batch)
    assert bound_terms.enumeration is not None
    assert (bound_terms.elbo <= bound_terms.enumeration.log_evidence).all()
    assert bound_terms.elbo.isfinite().all()
    guide.get_posterior = partial(answer, outside=-math.inf)
    with pytest.raises(ValueError, match="must be finite: mask them by NOWHERE, -1e"):
        terms(model, guide, batch)


def test_on_a_cpu_a_reader_takes_no_fused_kernel(batch: Batch) -> None:
    guide = attach("mean-field", aligned(SHAPES["one head"])).float()
    model = guide.model.float().train()
    with torch.profiler.profile() as profile, torch.autocast("cpu", torch.bfloat16):
        Head_ELBO().differentiable_loss(model, guide.train(), batch).backward()
    names = {event.key for event in profile.key_averages()}
    assert any("_scaled_dot_product" in name for name in names)
    assert not any("_scaled_dot_product_flash" in name for name in names)


class CountsAll(ModelGuide):
    """A guide whose posterior counts padded words, which no prior pays for."""

    def get_posterior(self, name: str, prior: Any) -> Any:
        if not isinstance(prior, Alignments):
            return prior
        every = torch.ones_like(prior.valid)
        return Alignments(prior.parameters.detached(), every, prior.below, prior.context)


def test_a_posterior_that_counts_other_words_is_refused(batch: Batch) -> None:
    model = aligned(SHAPES["one head"])
    guide = CountsAll(model)
    with pytest.raises(ValueError, match=r"^site '.*choice': the posterior must count the prior's"):
        terms(model, guide, batch)
    for objective in OBJECTIVES:
        with pytest.raises(ValueError, match="must count the prior's words"):
            Head_ELBO(objective=objective).loss(model, guide, batch)
    whole = Batch.of([[5, 6, 2], [7, 8, 2]], [[4, 2], [9, 2]])
    assert (terms(model, guide, whole).elbo < 0).all()  # no word is padded: it counts the same


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_block_that_a_plain_guide_leaves_out_keeps_its_prior(
    objective: str, batch: Batch
) -> None:
    """A function of Pyro that draws no block is the guide tied, whatever trains it."""
    model, values = aligned(SHAPES["two blocks"]), []

    def empty(batch: Batch) -> None:
        pass

    for guide in (empty, attach("tied", model)):
        torch.manual_seed(0)
        elbo = Head_ELBO(objective=objective, num_samples=3)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found vars in model but not guide")
            values.append(elbo.loss(model, guide, batch))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_a_report_is_made_in_inference_mode(batch: Batch) -> None:
    model = aligned(SHAPES["one head"])
    guide = attach("cascaded", model)
    with torch.inference_mode():
        report = evaluate(model, guide, [batch])
        made_within = deepcopy((model, guide))
        assert evaluate(*made_within, [batch]).elbo == report.elbo
    assert report.exact == pytest.approx(evaluate(model, guide, [batch]).exact, rel=1e-12)
