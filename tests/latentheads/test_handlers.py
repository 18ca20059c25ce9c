"""The plug-in network, and parameters told without Pyro's store."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta
from torch import nn
from torch.func import functional_call

from latentheads.batch import Batch
from latentheads.guides import Exact
from latentheads.handlers import PlugIn, isolated_param_store, plug_in_value
from latentheads.inference.bound import terms
from latentheads.parameters import register_parameters
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import KINDS, NOISY, attach, bernoulli_gate, build


@pytest.mark.parametrize("prior", NOISY)
def test_plug_in_sets_every_latent_to_its_prior_location(prior: str, batch: Batch) -> None:
    model = build(prior=prior)
    with PlugIn():
        assert torch.equal(model.states(batch), model.states(batch))
    with poutine.trace() as trace, PlugIn():
        model(batch)
    assert not torch.equal(model.states(batch), model.states(batch))
    for block in model.blocks:
        site = trace.trace.nodes[block.site()]
        assert torch.equal(site["value"], site["fn"].location)
    assert torch.equal(trace.trace.nodes["target"]["value"], batch.target)


@pytest.mark.parametrize(("probability", "value"), [(0.7, 1.0), (0.3, 0.0)])
def test_plug_in_gate_is_its_likelier_value(probability: float, value: float, batch: Batch) -> None:
    model = build("language-model", gate=bernoulli_gate(probability))
    with poutine.trace() as trace, PlugIn():
        model(batch)
    gate = trace.trace.nodes["decoder.0.self.gate"]["value"]
    assert torch.equal(gate, torch.full_like(gate, value))


PROBABLE = torch.tensor([[0.1, 0.1, 0.8], [0.2, 0.5, 0.3]])
LIKELIEST = {
    "categorical": (dist.Categorical(PROBABLE), [2, 1]),
    "one-hot": (dist.OneHotCategorical(PROBABLE), [[0, 0, 1], [0, 1, 0]]),
    "poisson": (dist.Poisson(torch.tensor([7.3, 0.2])), [7, 0]),
    "binomial": (dist.Binomial(5, torch.tensor([0.9, 0.3])), [5, 1]),
    "geometric": (dist.Geometric(torch.tensor([0.1, 0.9])), [0, 0]),
    "bernoulli": (dist.Bernoulli(torch.tensor([0.5, 0.7])), [0, 1]),
}


@pytest.mark.parametrize("name", LIKELIEST)
def test_plug_in_of_what_is_discrete_is_its_likeliest_value(name: str) -> None:
    plain, likeliest = LIKELIEST[name]
    mask = torch.ones(2, dtype=torch.bool)
    for same in (plain, plain.mask(mask), plain.to_event(1), plain.mask(mask).to_event(1)):
        value = plug_in_value(same)
        assert value.tolist() == likeliest
        assert value.dtype == plain.sample().dtype
        assert plain.support.check(value).all()


@pytest.mark.parametrize(
    ("distribution", "name"),
    [
        (dist.Multinomial(3, PROBABLE).mask(False), "Multinomial"),
        (dist.RelaxedBernoulli(torch.tensor(0.5), probs=PROBABLE).to_event(1), "RelaxedBernoulli"),
    ],
)
def test_a_law_without_a_plug_in_value_is_named_in_one_line(distribution: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"the mean of others: {name} implements neither$"):
        plug_in_value(distribution)
    relaxed = dist.Beta(2.0, 6.0).expand([3]).to_event(1)
    assert torch.allclose(plug_in_value(relaxed), torch.full((3,), 0.25))


def test_plug_in_leaves_an_unobserved_target_to_be_drawn(batch: Batch) -> None:
    model = build()
    with PlugIn():
        drawn = model(batch, observe=False)
    assert drawn.shape == batch.target.shape


def told(param_only: bool) -> dict[str, Any]:
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    module[0].bias.requires_grad_(False)
    with poutine.trace(param_only=param_only) as trace:
        register_parameters("m", module)
    return {name: site["value"] for name, site in trace.trace.nodes.items()}


def test_whoever_captures_parameters_is_told_of_all_that_train_and_others_of_one() -> None:
    assert set(told(True)) == {"m.0.weight", "m.1.weight", "m.1.bias"}
    assert len(told(False)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_two_models_in_one_process_share_nothing(kind: str, batch: Batch) -> None:
    first, second = build(kind), build(kind)
    for one, other in ((first, second), (second, first)):
        mine, theirs = ({n: p.clone() for n, p in m.named_parameters()} for m in (one, other))
        svi = SVI(one, attach("cascaded", one), pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
        svi.step(batch)
        assert any(not torch.equal(p, mine[name]) for name, p in one.named_parameters())
        assert all(torch.equal(p, theirs[name]) for name, p in other.named_parameters())
    assert not list(pyro.get_param_store())


def test_a_model_can_be_copied_and_pickled_after_a_pass(batch: Batch) -> None:
    model = build("language-model")
    model(batch)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with PlugIn():
            assert torch.equal(twin.states(batch), model.states(batch))


def test_parameters_of_a_pass_are_saved_as_those_of_any_module(
    batch: Batch, tmp_path: Path
) -> None:
    model = build("language-model")
    model(batch)
    torch.save(dict(model.named_parameters()), tmp_path / "weights.pt")
    saved = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert all(torch.equal(saved[name], weight) for name, weight in model.named_parameters())


def test_pyro_optimisers_take_options_by_name_and_restore_their_state(batch: Batch) -> None:
    named: list[str] = []

    def options(name: str) -> dict[str, float]:
        named.append(name)
        return {"lr": 1e-2 if name.startswith("guide") else 1e-3}

    model = build()
    guide = attach("cascaded", model)
    optimiser = pyro.optim.Adam(options)
    SVI(model, guide, optimiser, Trace_ELBO()).step(batch)
    assert any(name.startswith("guide.families") for name in named)
    with isolated_param_store():
        assert pyro.get_param_store().param_name(next(model.parameters())) is None
    state = optimiser.get_state()
    assert set(state) == {
        f"{kind}.{name}"
        for kind, module in (("model", model), ("guide", guide))
        for name, _ in module.named_parameters()
    }


OUTPUT = "output.table.weight"


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_that_is_sampled_is_learned_beside_alignments_that_are_enumerated(
    kind: str,
) -> None:
    model = aligned(SHAPES["one head"], size=0.3, kind=kind)
    batch, table = Batch.of([[5, 2], [8, 2]], [[4, 6, 2], [7, 5, 2]]), model.output.table.weight
    prior, start = dist.Normal(table.detach().clone(), 0.5).to_event(2), table.detach() + 0.1

    def bayesian(batch: Batch) -> Any:
        sampled = {OUTPUT: pyro.sample("table", prior)}
        return functional_call(model, sampled, (batch,), tie_weights=False)

    hidden = poutine.block(bayesian, expose=["table"])
    guide = AutoDelta(hidden, init_loc_fn=lambda _: start.clone())
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    svi = SVI(config_enumerate(bayesian), guide, pyro.optim.Adam({"lr": 0.1}), elbo)
    twin = copy.deepcopy(model)
    nn.init.zeros_(twin.output.table.weight).data.add_(start)
    expected = terms(twin, Exact(twin), batch).elbo.sum() + prior.log_prob(start)
    assert svi.step(batch) == pytest.approx(-float(expected))
    assert not torch.equal(guide()["table"], start)
    assert torch.equal(model.output.table.weight, prior.mean)
    assert not torch.equal(
        model.alignments.blocks[0].lexicon.weight, twin.alignments.blocks[0].lexicon.weight
    )


@pytest.mark.parametrize("handler", ["lift", "substitute"])
def test_a_handler_of_parameters_that_does_not_reach_weights_is_an_error(
    handler: str, batch: Batch
) -> None:
    model = build("language-model")
    last, weight = [*model.named_parameters()][-1]
    reason = "lift and substitute do not reach weights: use torch.func.functional_call"
    message = f"^model.{last}: {reason}$"
    zeros = torch.zeros_like(weight)
    value = dist.Delta(zeros, event_dim=zeros.ndim) if handler == "lift" else zeros
    with pytest.raises(ValueError, match=message):
        getattr(poutine, handler)(model, {f"model.{last}": value})(batch)


def test_a_trace_can_be_pickled(batch: Batch) -> None:
    model = build()
    trace = poutine.trace(model).get_trace(batch)
    twin = pickle.loads(pickle.dumps(trace))
    assert torch.equal(twin.log_prob_sum(), trace.log_prob_sum())
