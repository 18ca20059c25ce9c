"""The Pyro model has the evidence and the posterior that the chain sums out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate

from latentheads.contrib.heads.boundaries.pyro_model import attention_model
from tests.latentheads.contrib.heads.boundaries.tiny import make_attention, make_model


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("labelled", [True, False])
def test_the_evidence_is_that_of_the_chain(kinds: int, labelled: bool) -> None:
    model, attention = make_model(kinds), make_attention()
    if kinds == 2:
        model = replace(model, energy_offsets=torch.tensor([0.5, -1.0]).double())
        attention = replace(attention, energy=torch.tensor([0.1, 2.0, 1.0, 0.3, 1.5]).double())
    enumerated = config_enumerate(attention_model, "parallel")
    # boundaries, and for each two heads, are enumerated
    elbo = TraceEnum_ELBO(max_plate_nesting=0)
    arguments: Any = (enumerated, lambda *_, **__: None, model, attention)
    evidence = -elbo.loss(*arguments, with_labels=labelled)
    posterior = model.posterior(attention, with_labels=labelled)
    assert evidence == pytest.approx(posterior.log_evidence.item(), rel=1e-9)
    marginals = elbo.compute_marginals(*arguments, with_labels=labelled)
    first = marginals["start_0"].probs[:-1]
    torch.testing.assert_close(first, posterior.marginals[0, 0])


def test_a_shift_moves_the_label() -> None:
    model, attention = make_model(), make_attention()
    values = {f"{kind}_{word}": torch.tensor(2) for kind in ("start", "end") for word in (0, 1)}
    values |= {f"shift_{kind}": torch.tensor(0.9).double() for kind in ("start", "end")}
    conditioned = poutine.condition(attention_model, values)
    with pyro.validation_enabled():
        trace = poutine.trace(conditioned).get_trace(model, attention, shift_scale=2.0)
    trace.compute_log_prob()
    label = trace.nodes["label_start_0"]["fn"]
    assert label.loc.item() == pytest.approx(2 + 0.5 + 0.9)
    assert trace.nodes["shift_end"]["fn"].loc == model.shift[1]
