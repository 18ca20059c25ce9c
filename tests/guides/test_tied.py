"""The tied guide: the posterior is the prior, gates included."""

from __future__ import annotations

import pytest
from pyro.infer.enum import get_importance_trace

from latentheads.batch import Batch
from latentheads.guides import Tied
from latentheads.inference.bound import traces
from latentheads.models import PRIORS
from tests.tiny import bernoulli_gate, build


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
