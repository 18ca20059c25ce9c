"""Copy heads at the limits of numbers, and in batches that differ only in their padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import latentheads as lh
from latentheads.guides import GUIDES
from latentheads.latents.copy.emission import Slip, copy_emissions
from latentheads.models import LanguageModel, Translation
from tests.guides.attached import SUMMED
from tests.tiny import TARGET_TYPES, jiggle, padded, rows, sizes, small_batch

KINDS = ("translation", "language-model")
every_kind = pytest.mark.parametrize("kind", KINDS)


def build(kind: str, prior: Any = "independent", lexicon: bool = False) -> Any:
    latents = [lh.latents.CopyOptions(prior=prior, lexicon=lexicon)]
    if kind == "translation":
        model: Any = Translation(TARGET_TYPES, TARGET_TYPES, sizes(), latents=latents)
    else:
        model = LanguageModel(TARGET_TYPES, sizes(), latents=latents)
    return jiggle(model, 0.4).double().eval()


def batch_of(kind: str) -> lh.data.Batch:
    batch = small_batch()
    return batch if kind == "translation" else lh.data.Batch(batch.target, index=batch.index)


@every_kind
@torch.no_grad()
def test_a_token_that_float32_cannot_represent_keeps_its_score(kind: str) -> None:
    model, batch = build(kind).float(), batch_of(kind)
    for weight in model.output.parameters():
        weight.mul_(60)
    state = model.begin(batch)
    steps = [model.step(token, state) for token in batch.decoder_input.split(1, 1)]
    scores = torch.cat(steps, 1).gather(-1, batch.target[..., None])[..., 0]
    whole = model.token_distribution(batch).log_evidence(batch.scored)
    assert (scores[batch.target_valid] < -110).any()  # exp is 0
    step_sums = scores.masked_fill(~batch.target_valid, 0.0).sum(-1)
    torch.testing.assert_close(step_sums, whole, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("prior", ["independent", "chain"])
@pytest.mark.parametrize("name", SUMMED)
@every_kind
@torch.no_grad()
def test_padding_and_order_change_no_bound(kind: str, name: str, prior: str) -> None:
    model, batch = build(kind, prior), batch_of(kind)
    guide = jiggle(GUIDES[name](model).double(), 0.2).eval()
    bound = lh.terms(model, guide, batch).elbo
    torch.testing.assert_close(lh.terms(model, guide, padded(batch, 3, 2)).elbo, bound)
    torch.testing.assert_close(lh.terms(model, guide, rows(batch, [2, 0])).elbo, bound[[2, 0]])


def test_without_a_slip_the_prior_has_a_bound_of_minus_infinity() -> None:
    generated, matches = torch.tensor([-1.0]), torch.tensor([[False, True]])
    prior = torch.tensor([[0.5, 0.25, 0.25]])
    emissions = copy_emissions(generated, matches, Slip(torch.tensor([-torch.inf]), torch.zeros(1)))
    assert (prior * emissions).sum() == -torch.inf
    evidence = (prior.log() + emissions).logsumexp(-1)
    expected = torch.log(0.5 * torch.exp(generated) + 0.25)
    torch.testing.assert_close(evidence, expected)
    slipped = copy_emissions(generated, matches, Slip.of(0.01, 1, generated))
    assert (prior * slipped).sum().isfinite()


@every_kind
def test_a_model_in_bfloat16_sums_in_float32(kind: str) -> None:
    model, batch = build(kind).float(), batch_of(kind)
    wide = model.token_distribution(batch).log_evidence(batch.scored)
    with torch.autocast("cpu", torch.bfloat16):
        half = model.token_distribution(batch).log_evidence(batch.scored)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, wide, rtol=0.05, atol=0.2)


@torch.no_grad()
def test_in_bfloat16_a_lexicon_head_gives_the_next_token_probabilities_of_float32() -> None:
    model, batch = build("translation", lexicon=True).float(), batch_of("translation")
    tokens = batch.decoder_input[:, :1]
    with torch.autocast("cpu", torch.bfloat16):
        scores = model.step(tokens, model.begin(batch))
    assert scores.dtype == torch.float32
    sums = scores.logsumexp(-1)
    torch.testing.assert_close(sums, torch.zeros_like(sums), rtol=0, atol=1e-5)
