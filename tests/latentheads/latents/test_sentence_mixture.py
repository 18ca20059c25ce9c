"""A latent with few values of which each sentence has one, against sums over its values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pyro.distributions import Categorical, Delta
from pyro.poutine import Trace

from latentheads.distributions import Tokens
from latentheads.latents.sentence_mixture import MixtureChoice, MixtureTokens, SiteEnumeration

SITE = "decoder.0.alignment.style"
VALUES, SENTENCES, TARGET, VOCAB = 3, 2, 5, 7


def make() -> tuple[MixtureChoice, torch.Tensor]:
    torch.manual_seed(0)
    logits = torch.randn(VALUES, SENTENCES, TARGET, VOCAB, dtype=torch.float64)
    valid = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    prior = MixtureChoice(torch.randn(SENTENCES, VALUES).double(), Tokens(logits, valid))
    return prior, torch.randint(VOCAB, (SENTENCES, TARGET))


def trace_of(**sites: Any) -> Trace:
    trace = Trace()
    for name, (distribution, value) in sites.items():
        trace.add_node(name, type="sample", fn=distribution, value=value)
    return trace


def traces(target: MixtureTokens, posterior: Any, tokens: Any) -> tuple[Trace, Trace]:
    model = trace_of(**{SITE: (target.prior, target.value), "target": (target, tokens)})
    return model, trace_of(**{SITE: (posterior, target.value)})


def test_evidence_and_posterior_are_sums_over_the_values() -> None:
    prior, tokens = make()
    target = MixtureTokens(SITE, prior, torch.tensor([2, 0]))
    assert torch.equal(target.log_prob(tokens)[0], prior.log_likelihoods(tokens)[0, 2])
    assert torch.equal(target.log_prob(tokens)[1], prior.log_likelihoods(tokens)[1, 0])
    joint = torch.zeros(SENTENCES, VALUES).double()
    for sentence, length in enumerate((5, 3)):
        for value in range(VALUES):
            rows = prior.tokens.states[value, sentence].softmax(-1)
            factors = [rows[t, tokens[sentence, t]] for t in range(length)]
            joint[sentence, value] = prior.probs[sentence, value] * torch.stack(factors).prod()
    torch.testing.assert_close(target.log_evidence(tokens), joint.sum(-1).log())
    exact = prior.posterior(tokens)
    torch.testing.assert_close(exact.probs, joint / joint.sum(-1, keepdim=True))
    q = Categorical(logits=torch.randn(SENTENCES, VALUES).double())
    sums = target.enumerate_latents(*traces(target, q, tokens))
    torch.testing.assert_close(sums.log_likelihood, (q.probs * (joint / prior.probs).log()).sum(-1))
    kl, gap = sums.kl()[SITE], sums.gap()[SITE]
    torch.testing.assert_close(kl, torch.distributions.kl_divergence(q, prior))
    torch.testing.assert_close(gap, torch.distributions.kl_divergence(q, exact))
    torch.testing.assert_close(sums.log_likelihood - kl + gap, sums.log_evidence)


def test_the_exact_posterior_sums_to_one_in_float32_for_long_sentences() -> None:
    logits = torch.randn(VALUES, 11, 199, VOCAB, dtype=torch.float32)
    tokens = Tokens(logits, torch.ones(11, 199, dtype=torch.bool))
    prior = MixtureChoice(torch.zeros(11, VALUES, dtype=torch.float32), tokens)
    posterior = prior.posterior(torch.randint(VOCAB, (11, 199)))
    total = posterior.logits.double().exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(11), rtol=0, atol=1e-6)


@pytest.mark.parametrize("values", [1, 4])
def test_a_posterior_of_another_number_of_values_is_refused(values: int) -> None:
    prior, tokens = make()
    target = MixtureTokens(SITE, prior, torch.tensor([0, 0]))
    posterior = Categorical(logits=torch.zeros(SENTENCES, values))
    with pytest.raises(ValueError, match=rf"the posterior must be of 3 values, got {values}$"):
        target.enumerate_latents(*traces(target, posterior, tokens))


def test_another_distribution_as_posterior_is_refused() -> None:
    prior, tokens = make()
    target = MixtureTokens(SITE, prior, torch.tensor([2, 0]))
    with pytest.raises(ValueError, match=rf"^site '{SITE}': the posterior must be .* got Delta$"):
        target.enumerate_latents(*traces(target, Delta(target.value), tokens))


def test_a_label_that_is_observed_is_no_latent() -> None:
    prior = make()[0]
    target = MixtureTokens(SITE, prior, torch.tensor([2, 0]))
    label = Categorical(logits=torch.zeros(SENTENCES, 2))
    trace = trace_of(label=(label, torch.tensor([1, 0])), **{SITE: (prior, target.value)})
    for site, is_observed in (("label", True), (SITE, False)):
        trace.nodes[site]["is_observed"] = is_observed
    target.check_not_observed(trace)
    trace.nodes[SITE]["is_observed"] = True
    with pytest.raises(ValueError, match=rf"^site '{SITE}' is observed"):
        target.check_not_observed(trace)


def test_a_tied_posterior_has_no_kl_and_a_left_out_site_keeps_the_prior() -> None:
    prior, tokens = make()
    target = MixtureTokens(SITE, prior, torch.tensor([2, 0]))
    model, _ = traces(target, prior, tokens)
    sums = target.enumerate_latents(model, Trace())
    assert isinstance(sums, SiteEnumeration)
    assert (sums.kl()[SITE] == 0).all()
    log_likelihood, kl, has_kl = target.loss_terms(*traces(target, prior, tokens), "bound", 1)
    assert has_kl
    torch.testing.assert_close(log_likelihood, sums.log_likelihood)
    assert list(kl) == [SITE]


def test_another_objective_is_an_error() -> None:
    prior, tokens = make()
    target = MixtureTokens(SITE, prior, torch.tensor([2, 0]))
    with pytest.raises(ValueError, match=r"^MixtureTokens is trained by its bound, .* no iwae$"):
        target.loss_terms(*traces(target, prior, tokens), "iwae", 5)


def test_particles_stand_in_front() -> None:
    prior, tokens = make()
    assert prior.expand([SENTENCES]) is prior
    wide = prior.expand([13, SENTENCES])
    torch.testing.assert_close(wide.posterior(tokens).probs[4], prior.posterior(tokens).probs)
    target = MixtureTokens(SITE, prior, torch.tensor([2, 0]))
    assert target.expand([SENTENCES]) is target
    of_particles = MixtureTokens(SITE, wide, wide.sample())
    assert of_particles.log_prob(tokens).shape == (13, SENTENCES)
    torch.testing.assert_close(
        target.expand([13, SENTENCES]).log_prob(tokens)[7], target.log_prob(tokens)
    )


@pytest.mark.parametrize("particles", [1, SENTENCES, VALUES])
def test_states_may_have_particles_too(particles: int) -> None:
    torch.manual_seed(0)
    states = torch.randn(VALUES, particles, SENTENCES, TARGET, VOCAB, dtype=torch.float64)
    valid, tokens = torch.ones(SENTENCES, TARGET).bool(), torch.randint(VOCAB, (SENTENCES, TARGET))
    logits = torch.randn(SENTENCES, VALUES).double()
    prior = MixtureChoice(logits.expand(particles, -1, -1), Tokens(states, valid))
    value = prior.sample()
    target = MixtureTokens(SITE, prior, value)
    assert target.batch_shape == (particles, SENTENCES)
    for particle in range(particles):
        alone = MixtureChoice(logits, Tokens(states[:, particle], valid))
        of_one = MixtureTokens(SITE, alone, value[particle])
        torch.testing.assert_close(target.log_prob(tokens)[particle], of_one.log_prob(tokens))
        evidence = target.log_evidence(tokens)[particle]
        torch.testing.assert_close(evidence, of_one.log_evidence(tokens))
        posterior = prior.posterior(tokens).probs[particle]
        torch.testing.assert_close(posterior, alone.posterior(tokens).probs)


@pytest.mark.parametrize("of_prior", [False, True])
def test_a_value_of_probability_zero_counts_nothing(of_prior: bool) -> None:
    prior, tokens = make()
    logits = prior.logits.index_fill(1, torch.tensor([1]), -torch.inf)
    target = MixtureTokens(SITE, MixtureChoice(logits, prior.tokens), torch.tensor([2, 0]))
    other = prior.logits.clone().index_fill_(1, torch.tensor([1]), -1e3)
    without = MixtureTokens(SITE, MixtureChoice(other, prior.tokens), torch.tensor([2, 0]))
    free = torch.randn(SENTENCES, VALUES).double().index_fill(1, torch.tensor([1]), -torch.inf)
    q = target.prior if of_prior else Categorical(logits=free.requires_grad_())
    enumerate_latents = target.enumerate_latents(*traces(target, q, tokens))
    expected = without.enumerate_latents(*traces(without, q, tokens))
    torch.testing.assert_close(enumerate_latents.log_likelihood, expected.log_likelihood)
    torch.testing.assert_close(enumerate_latents.log_evidence, expected.log_evidence)
    assert of_prior == bool((enumerate_latents.kl()[SITE] == 0).all())
    terms = [(e.gap() | e.entropies()) for e in (enumerate_latents, expected)]
    torch.testing.assert_close(*terms)
    if not of_prior:
        torch.testing.assert_close(enumerate_latents.kl(), expected.kl())
        bound = enumerate_latents.log_likelihood - enumerate_latents.kl()[SITE]
        (gradient,) = torch.autograd.grad(bound.sum(), free)
        assert gradient.isfinite().all()
