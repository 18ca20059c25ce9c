"""Guides of logits that are conditioned on the words before, or on the whole target, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import latentheads as lh
from latentheads.batch import Batch
from latentheads.families import Gaussian, HeadScale, Identity, TargetConditioned
from latentheads.guides import GUIDES, Autoregressive, Cascaded, Guide, MeanField, ModelGuide
from latentheads.inference.bound import terms, traces
from latentheads.layers.target_encoder import TargetEncoder
from latentheads.names import Block
from latentheads.pruning import remove_heads
from tests.crossing import pairwise
from tests.tiny import NoiseTape, build, jiggle, sizes

TOP = {
    "translation": "decoder.1.cross",
    "language-model": "decoder.1.self",
    "adaptive": "decoder.1.self",
}
LEARNED = ("mean-field", "autoregressive", "cascaded")
every_guide = pytest.mark.parametrize("name", LEARNED)
every_kind = pytest.mark.parametrize("kind", TOP)


def told_part(guide: Any) -> Any:
    (actual,) = (
        family for family in guide.families.values() if isinstance(family, TargetConditioned)
    )
    return actual.scores


def prior_and_posterior(model: Any, guide: Any, batch: Batch, block: str) -> tuple[Any, Any]:
    """Prior and posterior of a block in one pass."""
    prior, posterior = (t.nodes[f"{block}.logits"]["fn"] for t in traces(model, guide, batch))
    return prior, posterior


def wrong(batch: Batch) -> Batch:
    """Other words at the same places."""
    words = torch.where(batch.target > 4, 17 - batch.target, batch.target)
    return replace(batch, target=words)


@pairwise(kind=TOP, name=LEARNED, condition_on=["prefix", "target"])
def test_the_uppermost_block_alone_is_told_and_begins_untold(
    name: str, kind: str, condition_on: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build(kind).eval()
    guides = []
    for item in ("source", condition_on):
        torch.manual_seed(3)
        guides.append(GUIDES[name](model, condition_on=item).double())
    source, guide = guides
    for key, family in source.families.items():  # all but what is told begins alike
        own = guide.families[key]
        inner = own.family if isinstance(own, TargetConditioned) else own
        inner.load_state_dict(family.state_dict())
    (key,) = (
        key
        for key, one_family in guide.families.items()
        if isinstance(one_family, TargetConditioned)
    )
    assert key == TOP[kind].replace(".", "_")
    tape.rewind()
    expected = terms(model, source, batch)
    tape.rewind()
    bound_terms = terms(model, guide, batch)
    torch.testing.assert_close(bound_terms.elbo, expected.elbo, rtol=0, atol=1e-12)
    jiggle(told_part(guide), 0.3)
    tape.rewind()
    moved = terms(model, guide, batch)
    changed = [n for n, kl in moved.kl.items() if not torch.allclose(kl, expected.kl[n])]
    assert changed == [f"{TOP[kind]}.logits"]


@every_kind
@every_guide
def test_rows_are_moved_by_nothing_on_average_and_by_what_the_target_says(
    name: str, kind: str, batch: Batch
) -> None:
    model = build(kind).eval()
    guide = GUIDES[name](model, condition_on="target").double()
    part = jiggle(told_part(guide), 0.3)
    seen: list[torch.Tensor] = []
    part.register_forward_hook(lambda _, __, actual: seen.append(actual))
    prior, _ = prior_and_posterior(model, guide, batch, TOP[kind])
    latent = prior.context.mask.latent.unsqueeze(-3)
    (moved,) = seen
    assert moved.abs().max() > 0.05
    assert torch.equal(moved * (1 - latent), torch.zeros_like(moved))
    torch.testing.assert_close(moved.sum(-1), torch.zeros_like(moved.sum(-1)), rtol=0, atol=1e-12)
    with guide.conditioned_on(wrong(batch)):
        prior_and_posterior(model, guide, batch, TOP[kind])
    assert (seen[1] - moved).abs().max() > 0.01


@every_kind
def test_the_words_before_are_read_from_the_states_alone(
    kind: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build(kind).eval()
    guide = Cascaded(model, condition_on="prefix").double()
    jiggle(told_part(guide), 0.3)
    tape.rewind()
    right = terms(model, guide, batch).elbo
    tape.rewind()
    with guide.conditioned_on(wrong(batch)):
        assert torch.equal(terms(model, guide, batch).elbo, right)
    whole = jiggle(Cascaded(model, condition_on="target").double(), 0.3)
    tape.rewind()
    right = terms(model, whole, batch).elbo
    tape.rewind()
    with whole.conditioned_on(wrong(batch)):
        with whole.conditioned_on(batch):
            assert torch.equal(terms(model, whole, batch).elbo, right)
        tape.rewind()
        assert not torch.allclose(terms(model, whole, batch).elbo, right)


@every_guide
def test_the_kl_is_that_of_the_laws(name: str, batch: Batch) -> None:
    model = build().eval()
    guide = jiggle(GUIDES[name](model, condition_on="target").double(), 0.2)
    bound_terms = terms(model, guide, batch)
    assert bound_terms.how["decoder.1.cross.logits"] == "analytic"
    torch.manual_seed(0)
    prior, posterior = prior_and_posterior(model, guide, batch, TOP["translation"])
    drawn = posterior.rsample(torch.Size([20000]))
    sampled = posterior.log_prob(drawn) - prior.log_prob(drawn)
    expected = torch.distributions.kl_divergence(posterior, prior)
    error = sampled.std(0) / len(sampled) ** 0.5
    assert ((sampled.mean(0) - expected).abs() < 4.5 * error).all()


def test_mean_field_reads_no_sampled_head_though_it_is_told(batch: Batch) -> None:
    model = build().eval()
    for condition_on in ("prefix", "target"):
        guide = jiggle(MeanField(model, condition_on=condition_on).double(), 0.3)
        first, second = (
            prior_and_posterior(model, guide, batch, TOP["translation"])[1] for _ in range(2)
        )
        assert torch.equal(first.location, second.location)


@every_guide
def test_what_it_takes_of_the_model_is_detached(name: str, batch: Batch) -> None:
    model = build().eval()
    guide = GUIDES[name](model, condition_on="target").double()
    part, seen = jiggle(told_part(guide), 0.3), []
    part.register_forward_hook(lambda _, __, actual: seen.append(actual))
    traces(model, guide, batch)
    seen[0].square().sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.grad is not None for parameter in part.parameters())


@pairwise(name=LEARNED, condition_on=["source", "prefix", "target"])
def test_the_gradient_of_a_guide_lacks_the_path_through_states_of_sampled_heads(
    name: str, condition_on: str, batch: Batch, tape: NoiseTape
) -> None:
    """Against a finite difference along the gradient, with the same noise."""
    model = build().eval()
    guide = jiggle(GUIDES[name](model, condition_on=condition_on).double(), 0.2)

    parameters = list(guide.parameters())

    def loss() -> Tensor:
        tape.rewind()
        return lh.Head_ELBO(analytic=True).differentiable_loss(model, guide, batch)

    gradients = torch.autograd.grad(loss(), parameters)
    norm, values = torch.stack([g.norm() for g in gradients]).norm(), []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(step * gradient / norm)
            values.append(loss())
    difference = (values[0] - values[1]) / 2e-6
    is_whole = name == "mean-field" or condition_on == "source"
    assert bool(abs(difference - norm) < 1e-6 * norm) == is_whole


def test_auto_is_the_target_of_alignments_and_the_source_of_logits() -> None:
    logits = build()
    assert [make(logits).condition_on for make in (MeanField, Autoregressive, Cascaded)] == [
        "source"
    ] * 3
    assert not Cascaded(logits).is_target_conditioned
    assert Cascaded(logits, condition_on="prefix").is_target_conditioned
    both = lh.models.Translation(
        11, 13, sizes(), latents=[lh.latents.LogitsOptions(), lh.latents.AlignmentOptions(1)]
    )
    auto, cascaded = Cascaded(both), Cascaded(both, condition_on="target")
    assert (auto.condition_on, cascaded.condition_on) == ("target", "target")
    assert not any(isinstance(family, TargetConditioned) for family in auto.families.values())
    assert told_part(cascaded).target is not None


def test_a_class_with_posteriors_of_its_own_says_what_they_are_conditioned_on() -> None:
    class OfTarget(ModelGuide):
        condition_on = "target"

        def get_posterior(self, name: str, prior: Any) -> Any:
            return prior

    guide = OfTarget(build())
    assert (guide.is_target_conditioned, guide.condition_on) == (True, "target")
    assert not GUIDES["tied"](build()).is_target_conditioned


def test_what_cannot_be_told_is_refused() -> None:
    message = (
        r"^guide\.condition_on applies only to discrete latents and, where words have rows, to log"
    )
    for model in (build(blocks="encoder-self"), build("language-model", prior="delta")):
        with pytest.raises(ValueError, match=message):
            Cascaded(model, condition_on="target")
    with pytest.raises((ValueError, TypeError), match="condition_on"):
        Cascaded(build(), condition_on="everything")


class Plainly(Guide):
    """A guide of a user, whose heads do not read each other."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.condition_on = "target"

    def family(self, block: Block) -> Gaussian:
        return Gaussian(Identity(), HeadScale(block.heads, learned=True))


@pytest.mark.parametrize("kept", [[0, 2], [1]])
def test_heads_that_are_removed_leave_what_is_told_the_others(
    kept: list[int], batch: Batch
) -> None:
    model = build(blocks="decoder-cross", layers=1).eval()
    guide = jiggle(Plainly(model).double(), 0.3)
    part, seen = told_part(guide), list[torch.Tensor]()
    part.register_forward_hook(lambda _, __, actual: seen.append(actual))
    prior_and_posterior(model, guide, batch, "decoder.0.cross")
    remove_heads(model, {"decoder.0.cross": kept}, guide)
    prior_and_posterior(model, guide, batch, "decoder.0.cross")
    whole, left = seen
    torch.testing.assert_close(left, whole[:, kept], rtol=0, atol=1e-12)
    assert part.word.out_features == part.position.out_features == 4 * len(kept)
    assert terms(model, guide, batch).elbo.isfinite().all()


def test_a_text_in_windows_is_told_its_own_words() -> None:
    model = build("language-model").eval()
    guide = jiggle(Cascaded(model, condition_on="target").double(), 0.3)
    rows = [[5, 6, 7, 8, 9, 10], [8, 5, 6, 11, 12, 5]]
    target = torch.tensor(rows)
    assert terms(model, guide, Batch(target, context=2)).elbo.isfinite().all()


def test_logits_of_a_window_are_not_told_and_what_lies_below_is(batch: Batch) -> None:
    """Scores of a window stand at offsets, those of a word at positions."""
    local = build("language-model", layers=1, mixers="local", windows="2")
    with pytest.raises(ValueError, match=r"^guide.condition_on applies only to"):
        Cascaded(local, condition_on="target")
    mixed = build("language-model", mixers="attention,local", windows="1,2").eval()
    guide = Cascaded(mixed, condition_on="target").double().eval()
    assert told_part(guide) is guide.families["decoder_0_self"].scores
    assert terms(mixed, jiggle(guide, 0.1), batch).elbo.isfinite().all()


def test_padding_on_either_side_moves_no_word() -> None:
    reader = TargetEncoder(3, 4).double()
    words = torch.randn(1, 3, 3, dtype=torch.float64)
    real = torch.ones(1, 3, dtype=torch.bool)
    alone = reader(words, real)
    for pads in ((2, 0), (0, 2)):
        padded = reader(F.pad(words, (0, 0, *pads), value=7.0), F.pad(real, pads))
        shown = padded[:, pads[0] : pads[0] + 3]
        torch.testing.assert_close(shown, alone, rtol=0, atol=1e-12)
