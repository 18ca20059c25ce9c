"""The Pyro model and its guides: sites, bounds, gradients."""

from __future__ import annotations

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from torch.distributions import kl_divergence

from latentheads.contrib.align.bitext import make_bitext
from latentheads.contrib.align.lexicon import TranslationTable
from latentheads.contrib.align.model import GUIDES, LinkGuide, LinkModel, TargetWords
from tests.latentheads.contrib.align.tiny_chains import NULL, tiny_batch, tiny_bitext, tiny_model


def test_the_links_of_a_batch_are_one_site() -> None:
    trace = poutine.trace(tiny_model()).get_trace(tiny_batch())
    sites = [name for name, site in trace.nodes.items() if site["type"] == "sample"]
    assert sites == ["pairs", "links", "target"]
    assert trace.nodes["target"]["is_observed"]
    assert trace.nodes["links"]["value"].shape == (3, 3)


def test_the_bound_of_the_exact_guide_is_log_p_in_every_sample() -> None:
    model, batch = tiny_model(), tiny_batch()
    log_p = float(model.posterior(batch).log_normaliser.sum())
    guide = LinkGuide(model)
    for _ in range(3):
        assert -Trace_ELBO().loss(model, guide, batch) == pytest.approx(log_p)


@pytest.mark.parametrize("name", sorted(GUIDES))
def test_pyros_bound_is_log_p_less_the_divergence(name: str) -> None:
    model, batch = tiny_model(), tiny_batch()
    guide = LinkGuide(model, name)
    posterior = model.posterior(batch)
    expected = (posterior.log_normaliser - kl_divergence(guide.posterior(batch), posterior)).sum()
    bounds = torch.tensor([-Trace_ELBO().loss(model, guide, batch) for _ in range(100)])
    error = 4 * float(bounds.std()) / 10 + 1e-9
    assert float(bounds.mean()) == pytest.approx(float(expected), abs=error)


def test_the_gradient_of_log_p_is_the_expected_counts() -> None:
    bitext, batch = tiny_bitext(), tiny_batch()
    model = tiny_model(bitext)
    logits = model.table.links[:-1].log().requires_grad_()
    links = torch.nn.functional.pad(logits.exp(), (0, 1))
    posterior = LinkModel(TranslationTable(links, model.table.null), model.jumps).posterior(batch)
    posterior.log_normaliser.sum().backward()
    counts = torch.zeros(bitext.pairs.entries + 1)
    counts.index_add_(0, batch.entries.flatten(), posterior.marginals.detach().flatten())
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, counts[:-1])


@pytest.mark.parametrize(("name", "looks_ahead"), [("exact", True), ("filtered", False)])
def test_a_filtered_link_is_told_of_no_later_word(name: str, looks_ahead: bool) -> None:
    bitext = make_bitext([(["a", "b"], ["x", "y"]), (["a", "b"], ["x", "z"])])
    (batch,) = bitext.batches
    first, other = GUIDES[name](tiny_model(bitext), batch).marginals[:, 0]
    assert torch.allclose(first, other) is not looks_ahead


def test_the_lexical_guide_is_the_posterior_of_ibm_model_1() -> None:
    model, batch = tiny_model(), tiny_batch()
    linked = model.table.linked(batch) * batch.cell_mask * (1 - NULL)
    linked /= batch.source_mask.sum(-1)[:, None, None]
    total = linked.sum(-1, keepdim=True) + NULL * model.table.without_link(batch)
    marginals = GUIDES["lexical"](model, batch).marginals
    torch.testing.assert_close(marginals, linked / total)


def test_links_of_padding_change_no_probability_of_the_words() -> None:
    model, batch = tiny_model(), tiny_batch()
    links = model.posterior(batch).likeliest()
    tables = model.table.linked(batch), model.table.without_link(batch)
    other = torch.where(batch.target_mask, links, 1)
    assert not torch.equal(links, other)
    log_probs = [TargetWords(*tables, z).log_prob(batch.target) for z in (links, other)]
    torch.testing.assert_close(log_probs[1], log_probs[0])


def test_a_guide_of_no_name_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="guide must be one of exact, filtered"):
        LinkGuide(tiny_model(), "best")


def test_the_tied_guide_is_the_prior() -> None:
    model, batch = tiny_model(), tiny_batch()
    trace = poutine.trace(LinkGuide(model, "tied")).get_trace(batch)
    links = trace.nodes["links"]["value"]
    expected = model.prior(batch).log_prob(links)
    torch.testing.assert_close(trace.nodes["links"]["fn"].log_prob(links), expected)
    pyro.clear_param_store()
