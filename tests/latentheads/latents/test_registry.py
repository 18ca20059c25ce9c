"""What every latent of the table does, whatever it is: a new line in it is tested here."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pyro
import pytest
import torch

import latentheads as lh
from latentheads.guides import GUIDES, Guide
from latentheads.latents.options import LatentOptions, check_latents
from latentheads.latents.registry import DEFAULT_LATENT, LATENTS
from latentheads.latents.summed_out import SummedOut
from latentheads.model import HeadModel
from latentheads.models import LanguageModel, Translation
from latentheads.runs.build import make_model
from latentheads.runs.settings import Settings
from latentheads.training.losses import HeadELBOLoss, Loss
from tests.guides.attached import SUMMED
from tests.latentheads.corpora.texts import pets, story
from tests.tiny import SOURCE_TYPES, TARGET_TYPES, jiggle, sizes, small_batch

every_latent = pytest.mark.parametrize("name", LATENTS)
every_kind = pytest.mark.parametrize("kind", ["translation", "language-model"])


def build(name: str, kind: str) -> Any:
    """A model with one latent, at its default options."""
    options = LATENTS[name]()
    if kind == "translation":
        model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=[options])
    else:
        model = LanguageModel(TARGET_TYPES, sizes(), latents=[options])
    return jiggle(model, 0.3).double().eval()


def batch_of(kind: str) -> lh.data.Batch:
    batch = small_batch()
    return batch if kind == "translation" else lh.data.Batch(batch.target, index=batch.index)


def guides_of(model: HeadModel) -> list[Any]:
    """A guide of every structure, and the exact one where it is known."""
    names = SUMMED if model.is_summed_out else [name for name in GUIDES if name != "exact"]
    return [jiggle(GUIDES[name](model).double(), 0.3).eval() for name in names]


@every_latent
def test_its_options_are_read_back_as_they_are_written(name: str) -> None:
    settings = Settings.from_options({"latents": name})
    (options,) = settings.latents
    assert isinstance(options, LatentOptions)
    assert type(settings.latent(name)) is LATENTS[name]
    again = Settings.from_options(settings.to_options())
    assert again == settings
    assert again.recipe == settings.recipe
    assert settings.description.count(options.phrase or name) == 1
    names_it = settings.recipe.endswith(f"+{options.label or name}")
    assert names_it == bool(options.labels(name)), "a recipe must name the latent by its label"


@every_kind
@every_latent
def test_a_model_keeps_the_options_of_its_latents(name: str, kind: str) -> None:
    corpus = pets() if kind == "translation" else story()
    chosen = Translation if kind == "translation" else LanguageModel
    options = LATENTS[name]()
    model: Any = chosen.of(corpus, latents=[options], width=8, heads=2)
    guide = GUIDES["mean-field" if options.has_guide_form else "tied"](model)
    settings = Settings.of(model, guide, corpus)
    assert settings.latents == (options.resolve(kind != "translation"),)
    again = make_model(settings, corpus.target, corpus.source)
    assert weight_shapes(again) == weight_shapes(model)


def weight_shapes(model: Any) -> dict[str, Any]:
    return {weight: tensor.shape for weight, tensor in model.state_dict().items()}


@every_kind
@every_latent
def test_every_guide_has_a_bound_below_what_is_exact(name: str, kind: str) -> None:
    model, batch = build(name, kind), batch_of(kind)
    for guide in guides_of(model):
        bound = lh.terms(model, guide, batch)
        assert bound.elbo.isfinite().all()
        assert all((kl >= 0).all() for kl in bound.kl.values())
        if model.is_summed_out:
            assert bound.enumeration is not None
            exact = bound.enumeration.log_evidence
            assert (bound.elbo <= exact + 1e-9).all()
            gap = sum(bound.enumeration.gap().values(), torch.zeros(()))
            torch.testing.assert_close(bound.elbo + gap, exact)
        if guide.is_tied:
            assert all((kl == 0).all() for kl in bound.kl.values())


@every_kind
@every_latent
def test_it_learns_by_the_default_loss(name: str, kind: str) -> None:
    model, batch = build(name, kind).train(), batch_of(kind)
    (guide, *_) = guides_of(model)
    with pyro.validation_enabled(False):  # as training does: Pyro's check scores every sample
        loss = lh.Head_ELBO(analytic=True).differentiable_loss(model, guide.train(), batch)
    loss.backward()
    learned = [p for p in model.parameters() if p.grad is not None and (p.grad != 0).any()]
    assert loss.isfinite()
    assert learned


def losses_of(model: HeadModel, batch: lh.data.Batch) -> list[str]:
    """The losses by name that can train a model's latents."""
    loss_terms = getattr(type(model.token_distribution(batch)), "loss_terms", SummedOut.loss_terms)
    if loss_terms is SummedOut.loss_terms:  # of the bound alone
        return ["Head_ELBO"]
    is_relaxed = any(latent.temperature is not None for latent in model.latents.values())
    names = [name for name, kind in Loss.choices().items() if issubclass(kind, HeadELBOLoss)]
    return [name for name in names if name != "relaxed" or is_relaxed]


def check_trains_in_bfloat16(model: Any, guide: Any, batch: lh.data.Batch, loss: str) -> None:
    pair = copy.deepcopy((model, guide))
    options: dict[str, Any] = {"steps": 1, "warmup_steps": 1, "learning_rate": 1e-3, "quiet": True}
    lh.fit(*pair, [batch], loss=loss, precision="bf16", **options)
    moved = [
        not torch.equal(p, q) for p, q in zip(model.parameters(), pair[0].parameters(), strict=True)
    ]
    assert any(moved), loss
    assert all(p.isfinite().all() for part in pair for p in part.parameters()), loss


@every_kind
@every_latent
def test_it_is_trained_and_evaluated_in_bfloat16(name: str, kind: str) -> None:
    """A translation: one guide by every loss; a text: another guide by the default one."""
    torch.set_default_dtype(torch.float32)
    batch = replace(batch_of(kind), index=torch.arange(3), corpus_size=3)
    model = build(name, kind).float()
    guide = guides_of(model)[0 if kind == "translation" else -1].float().train()
    for loss in losses_of(model, batch)[: None if kind == "translation" else 1]:
        check_trains_in_bfloat16(model, guide, batch, loss)
    expected = lh.evaluate(model, guide, [batch], num_samples=2)
    with torch.autocast("cpu", torch.bfloat16):
        report = lh.evaluate(model, guide, [batch], num_samples=2)
    if model.is_summed_out:  # elsewhere rounding may change a sample
        assert report.elbo == pytest.approx(expected.elbo, abs=0.1)
    assert math.isfinite(report.elbo)


@every_kind
@every_latent
@torch.no_grad()
def test_token_by_token_it_has_the_distribution_of_whole_sentences(name: str, kind: str) -> None:
    model, batch = build(name, kind), batch_of(kind)
    if model.undecodable:
        pytest.skip(model.undecodable)
    with lh.inference.PlugIn(), lh.latents.WithSelection(GUIDES["tied"](model)):
        state = model.begin(batch)
        steps = [model.step(token, state) for token in batch.decoder_input.split(1, 1)]
        distribution = model.token_distribution(batch)
        whole = getattr(distribution, "log_evidence", distribution.log_prob)(batch.scored)
    log_probs = torch.cat(steps, 1).log_softmax(-1).gather(-1, batch.target[..., None])[..., 0]
    torch.testing.assert_close((log_probs * batch.target_valid).sum(-1), whole)


@every_kind
@every_latent
def test_a_copy_shares_nothing_and_weights_are_loaded(name: str, kind: str) -> None:
    model, other = build(name, kind), build(name, kind)
    twin = copy.deepcopy(model)
    for latent, own in zip(model.latents.values(), twin.latents.values(), strict=True):
        assert own is not latent
        for part, module in own.modules_to_save.items():
            assert getattr(twin, part) is module
    jiggle(other, 0.5)
    other.load_state_dict(model.state_dict())
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_what_is_no_latent_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^latents must be a list such as \[lh.*, got 'gates'$"):
        check_latents("gates")
    with pytest.raises(ValueError, match=r"^latents must be options, .*, got 3$"):
        check_latents([3])


def test_a_run_that_names_none_has_the_default_one() -> None:
    assert Settings().latent_names == (DEFAULT_LATENT,)
    assert issubclass(Settings().guide.find(), Guide)
