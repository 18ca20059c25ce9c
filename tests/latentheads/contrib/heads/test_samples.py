"""Weights under many draws: their mean and standard deviation."""

from __future__ import annotations

import pytest
import torch

from latentheads.contrib.heads import Recording, record_heads
from latentheads.contrib.heads.samples import BAND, record_prior_heads, sample_weights
from latentheads.guides import Cascaded, Tied
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.logits.latent import Logits
from latentheads.models import Translation, make_prior
from latentheads.names import ATTENTION_TYPES
from tests.latentheads.latents.bernoulli_heads import models as bernoulli
from tests.tiny import HEADS, KINDS, SOURCE_TYPES, TARGET_TYPES, attach, build, sizes, small_batch
from tests.typechecking import unchecked

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_mean_and_deviation_are_those_of_the_draws(kind: str) -> None:
    model = build(kind).eval()
    guide, batch = Cascaded(model).double(), small_batch()
    sampled_weights = sample_weights(model, guide, batch, num_samples=5, seed=3)
    for name, drawn in sampled_weights.items():
        weights = [heads[name].weights for _, heads in record_heads(model, [batch] * 5, guide, 3)]
        deviation, mean = torch.std_mean(torch.stack(weights), 0)
        ends = torch.quantile(torch.stack(weights), torch.tensor(BAND, dtype=mean.dtype), 0)
        torch.testing.assert_close(torch.stack([drawn.low, drawn.high]), ends)
        torch.testing.assert_close(drawn.mean, mean)
        torch.testing.assert_close(drawn.deviation, deviation)
    assert min(float(drawn.deviation.max()) for drawn in sampled_weights.values()) > 0.01


@every_kind
def test_heads_without_noise_do_not_vary(kind: str) -> None:
    model, batch = build(kind, "delta").eval(), small_batch()
    sampled_weights = sample_weights(model, Tied(model), batch, num_samples=3)
    with Recording(model) as heads:
        model.states(batch)
    for name, drawn in sampled_weights.items():
        torch.testing.assert_close(drawn.mean, heads[name].weights)
        assert float(drawn.deviation.max()) < 1e-7


def test_one_draw_has_no_deviation() -> None:
    model = build().eval()
    with pytest.raises(ValueError, match="num_samples must be at least 2, got 1"):
        sample_weights(model, Tied(model), small_batch(), num_samples=1)


@pytest.mark.parametrize("sample", [sample_weights, record_prior_heads])
def test_samples_are_of_one_batch(sample: Any) -> None:
    model = build().eval()
    with pytest.raises(ValueError, match=r"^a model runs on a Batch, got list$"):
        list(unchecked(sample)(model, Tied(model), [small_batch()], num_samples=2))


def test_a_gate_is_open_or_closed_whatever_the_seed() -> None:
    gates = Gating(HEADS, ATTENTION_TYPES)
    logit_prior, types = make_prior("independent"), (SOURCE_TYPES, TARGET_TYPES)
    model = Translation(*types, sizes(), latents=[Logits(logit_prior), gates]).eval()
    guide = Tied(model)
    with torch.no_grad():
        for family in guide.selections.values():
            family.weight.copy_(torch.tensor([1.0, -4.0, 1.0]) / gates.gain)
    for seed in range(5):
        for drawn in sample_weights(model, guide, small_batch(), num_samples=2, seed=seed).values():
            for statistic in (drawn.mean, drawn.deviation, drawn.low, drawn.high):
                silent = statistic.isnan().flatten(2).all(-1)
                assert silent.tolist() == [[False, True, False]] * 3


@every_kind
def test_draws_of_the_prior_are_those_of_a_guide_that_is_the_prior(kind: str) -> None:
    model, batch = build(kind).eval(), small_batch()
    tied, other = (
        [heads for _, heads in record_heads(model, [batch] * 3, guide, 5)]
        for guide in (Tied(model), attach("cascaded", model))
    )
    prior = list(record_prior_heads(model, Tied(model), batch, 3, 5))
    for block in prior[0].attention_blocks:
        mine, same, apart = (
            torch.stack([item[block.name].weights for item in drawn])
            for drawn in (prior, tied, other)
        )
        assert torch.equal(mine, same)
        assert not torch.allclose(mine, apart)
        assert float(mine.std(0).max()) > 0.01


def test_of_bernoulli_heads_statistics_are_over_the_samples_with_a_head() -> None:
    block = "decoder.1.cross"
    model, batch = bernoulli.build("decoder.0.cross", "autoregressive"), small_batch()
    guide = bernoulli.attach(model, "exact")
    samples = sample_weights(model, guide, batch, num_samples=16, seed=3)[block]
    recorded = [heads[block] for _, heads in record_heads(model, [batch] * 16, guide, 3)]
    active = torch.stack([heads.active for heads in recorded])
    weights = torch.stack([heads.weights for heads in recorded])
    torch.testing.assert_close(samples.active, active.double().mean(0))
    for sentence, head in ((s, h) for s in range(len(batch)) for h in range(HEADS)):
        rows = weights[active[:, sentence, head], sentence, head]
        torch.testing.assert_close(samples.mean[sentence, head], rows.mean(0))
        torch.testing.assert_close(samples.deviation[sentence, head], rows.std(0))
        low, high = torch.quantile(rows, torch.tensor(BAND, dtype=rows.dtype), 0)
        torch.testing.assert_close(samples.low[sentence, head], low)
        torch.testing.assert_close(samples.high[sentence, head], high)
    assert float(samples.deviation.max()) > 1e-7  # heads below vary


def test_gates_of_the_prior_are_sampled() -> None:
    model, batch = bernoulli.build("decoder.0.cross", "autoregressive"), small_batch()
    guide = bernoulli.attach(model, "tied")
    prior = [h["decoder.0.cross"] for h in record_prior_heads(model, guide, batch, 9, 3)]
    tied = [h["decoder.0.cross"] for _, h in record_heads(model, [batch] * 9, guide, 3)]
    assert not torch.stack([heads.active for heads in prior]).all()
    for one, other in zip(prior, tied, strict=True):
        assert one.active.equal(other.active)
