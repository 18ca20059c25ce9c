"""The term that rewards heads for differing, against loops over heads and tokens."""

from __future__ import annotations

from dataclasses import replace

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO

from latentheads.attention.disagreement import Disagreement, agreement
from latentheads.guides import GUIDES
from latentheads.inference.bound import terms
from latentheads.inference.objective import Head_ELBO
from latentheads.model import HeadModel
from tests.tiny import HEADS, attach, build, context, small_batch

KINDS = ("subspace", "position", "output")


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_agreement_is_the_mean_product_of_all_pairs(diagonal: bool) -> None:
    x = torch.randn(2, 3, 5, 7)
    pairs = [(i, j) for i in range(3) for j in range(3) if diagonal or i != j]
    expected = torch.stack([(x[:, i] * x[:, j]).sum(-1) for i, j in pairs]).mean(0)
    torch.testing.assert_close(agreement(x, diagonal), expected)


@pytest.mark.parametrize("diagonal", [True, False])
def test_heads_that_are_silent_agree_with_nobody(diagonal: bool) -> None:
    x, speaking = torch.randn(2, 4, 5, 7), torch.tensor([[True, False, True, True], [False] * 4])
    agreements = agreement(x, diagonal, speaking)
    torch.testing.assert_close(agreements[0], agreement(x[:1, speaking[0]], diagonal)[0])
    assert not agreements[1].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("diagonal", [True, False])
def test_a_block_is_compared_token_by_token(kind: str, diagonal: bool) -> None:
    head_context = context()
    values = torch.randn(2, HEADS, 7, 3)
    term = Disagreement((kind,), diagonal=diagonal)
    agreements = term.agreement_of_block(head_context.scores, values, head_context.mask)
    weights = torch.softmax(head_context.scores + head_context.mask.bias, -1)
    of_kind = {"subspace": values, "position": weights, "output": weights @ values}[kind]
    side = -2 if kind == "subspace" else -1
    for sentence in range(2):
        counted = head_context.mask.latent[sentence].amax(side).nonzero().flatten().tolist()
        total = 0.0
        for token in counted:
            vectors = [of_kind[sentence, head, token] for head in range(HEADS)]
            if kind != "position":
                vectors = [vector / vector.norm() for vector in vectors]
            products = [
                float(one @ other)
                for i, one in enumerate(vectors)
                for j, other in enumerate(vectors)
                if diagonal or i != j
            ]
            total += sum(products) / len(products)
        assert float(agreements[sentence]) == pytest.approx(total / len(counted))
    assert len(counted) < head_context.scores.shape[side + 1 if side == -2 else -2]


def test_outputs_are_averaged_over_their_queries() -> None:
    heads, queries = torch.randn(3, 2, 5, 7), torch.ones(3, 5, dtype=torch.bool)
    queries[1, 1:], queries[2] = False, False
    actual = Disagreement(("output",)).agreement_of_outputs(heads, queries)
    each = agreement(torch.nn.functional.normalize(heads, dim=-1))
    torch.testing.assert_close(actual, torch.stack([each[0].mean(), each[1, 0], torch.zeros(())]))


def made(**options: object) -> Disagreement:
    return Disagreement(**{"kinds": KINDS, "weight": 0.7, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["translation", "language model"])
@pytest.mark.parametrize("guide", ["tied", "cascaded"])
@pytest.mark.parametrize("unscored", [0, 2])
def test_the_loss_grows_by_the_agreement_a_token_and_block(
    kind: str, guide: str, unscored: int
) -> None:
    model, batch = build(kind.split()[0]), replace(small_batch(), context=unscored)
    made_of = attach if guide in ("tied", "cascaded") else lambda name, m: GUIDES[name](m).double()
    reader = made_of(guide, model)
    model.train()
    losses = []
    for term in (None, made()):
        model.disagreement = term
        torch.manual_seed(3)
        losses.append(Head_ELBO().loss(model, reader, batch))
    model.disagreement = None
    torch.manual_seed(3)
    with made().record_agreement(model) as recorded:
        reader(batch)
    tokens = batch.target_valid[:, unscored:].sum(-1)
    assert len(recorded) == len(model.blocks)
    expected = sum(float((0.7 * tokens * value.detach()).sum()) for value in recorded.values())
    assert losses[1] - losses[0] == pytest.approx(expected)


def test_no_figure_is_reported_with_it() -> None:
    model, batch = build(), small_batch()
    guide = attach("cascaded", model)
    model.eval(), guide.eval()
    torch.manual_seed(0)
    plain = terms(model, guide, batch)
    model.disagreement = made(weight=9.0)
    torch.manual_seed(0)
    torch.testing.assert_close(terms(model, guide, batch).elbo, plain.elbo, rtol=0, atol=0)


def test_only_the_chains_asked_for_and_blocks_of_several_heads_are_compared() -> None:
    model, batch = build(), small_batch()
    model.train()
    model.disagreement = made(attention_types=("decoder-cross",))
    sites = poutine.trace(model).get_trace(batch).nodes
    named = [name for name in sites if name.endswith("disagreement")]
    assert named == ["decoder.0.cross.disagreement", "decoder.1.cross.disagreement"]
    single = build(heads=1)
    single.train()
    single.disagreement = made()
    sites = poutine.trace(single).get_trace(batch).nodes
    assert not [name for name in sites if name.endswith("disagreement")]


def trained_with(term: Disagreement | None) -> HeadModel:
    pyro.clear_param_store()
    torch.manual_seed(1)
    model = build(prior="delta")
    model.disagreement = term
    svi = SVI(model, GUIDES["tied"](model), pyro.optim.Adam({"lr": 0.04}), Trace_ELBO())
    for _ in range(6):
        svi.step(small_batch())
    return model


def likeness(model: HeadModel, term: Disagreement) -> float:
    with term.record_agreement(model) as recorded, torch.no_grad():
        model.states(small_batch())
    return float(sum(value.mean() for value in recorded.values()))


def test_training_with_it_makes_heads_differ() -> None:
    plain = trained_with(None)
    for kind in KINDS:
        term = made(kinds=(kind,), weight=30.0, diagonal=False)
        assert likeness(trained_with(term), term) < likeness(plain, term) - 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ()}, "kinds must be at least one, got none"),
        ({"kinds": ("outputs",)}, "kinds must be one of subspace, position, output; got 'outputs'"),
        ({"weight": -0.5}, "weight must be at least 0, got -0.5"),
        ({"attention_types": ("self",)}, "attention_types must be one of encoder-self"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)
