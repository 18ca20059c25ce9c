"""The tied guide: the posterior is the prior, gates included."""

from __future__ import annotations

import pytest
import torch
from pyro.infer.enum import get_importance_trace

from latentheads.batch import Batch
from latentheads.guides import Tied
from latentheads.inference.bound import terms, traces
from latentheads.models import PRIORS
from tests.tiny import KINDS, bernoulli_gate, build


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", PRIORS)
def test_every_divergence_is_zero(kind: str, prior: str, batch: Batch) -> None:
    model = build(kind, prior=prior, gate=bernoulli_gate()).eval()
    bound_terms = terms(model, Tied(model), batch)
    noise = {"fixed"} if PRIORS[prior].deterministic else {"tied"}
    assert {bound_terms.how[block.site()] for block in model.blocks} == noise
    assert set(bound_terms.how.values()) <= {"tied", "fixed"}
    assert torch.equal(bound_terms.log_ratio, torch.zeros(3))
    assert torch.equal(bound_terms.total_kl, torch.zeros(3))
    assert torch.equal(bound_terms.elbo, bound_terms.log_likelihood)


@pytest.mark.parametrize("prior", PRIORS)
def test_it_hands_back_the_very_prior(prior: str, batch: Batch) -> None:
    model = build(prior=prior, gate=bernoulli_gate())
    for model_trace, guide_trace in (
        traces(model, Tied(model), batch),
        get_importance_trace("flat", 1, model, Tied(model), (batch,), {}),
    ):
        latent = [n for n, s in guide_trace.nodes.items() if s["type"] == "sample"]
        assert len(latent) == 2 * len(model.blocks)
        for name in latent:
            assert guide_trace.nodes[name]["fn"] is model_trace.nodes[name]["fn"]


def test_it_has_no_parameters_and_costs_one_pass() -> None:
    guide = Tied(build())
    assert not list(guide.parameters())
    assert guide.passes == 1


def test_it_has_no_options() -> None:
    """So that a run folder can say what it is, though nobody below wrote a constructor."""
    assert Tied(build()).config == {}
