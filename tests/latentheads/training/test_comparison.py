"""Guides side by side: the model stays, figures are those of evaluate, a row each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch

import latentheads as lh
from latentheads.guides import Cascaded, Exact, MeanField, Tied
from latentheads.latents.logits.options import LogitsOptions
from latentheads.models import Translation
from tests.typechecking import unchecked

SIZES = {"width": 8, "feed_forward": 8, "heads": 2, "layers": 1}
COMPARED: dict[str, Any] = {"num_samples": 2}
BRIEF: dict[str, Any] = {"steps": 4, "tokens": 128, **COMPARED}


@pytest.fixture(scope="module")
def corpus() -> Any:
    return lh.data.Grammar(sentences=60, held_out=8).load()


def aligned(corpus: Any) -> Any:
    torch.manual_seed(0)
    options = lh.latents.AlignmentOptions(blocks=1, width=4)
    return Translation.of(corpus, latents=[options], **SIZES)


def copies(*modules: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for module in modules for p in module.parameters()]


def test_guides_of_one_model_are_trained_and_it_stays(corpus: Any) -> None:
    model = aligned(corpus)
    guides = {"prior": Tied(model), "q": MeanField(model), "Bayes": Exact(model)}
    before, learned = copies(model), copies(guides["q"])
    comparison = lh.compare(model, guides, corpus, **BRIEF)
    assert all(map(torch.equal, copies(model), before))
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not all(map(torch.equal, copies(guides["q"]), learned))
    table = comparison.to_frame()
    assert list(table.index) == ["prior", "q", "Bayes"]
    assert list(table.columns) == [
        *("ELBO", "KL", "exact log p", "gap", "gap of the prior", "IWAE, K = 2", "seconds"),
        *("ELBO less prior's", "from", "to"),
    ]
    assert table["gap of the prior"].to_list() == pytest.approx([table.loc["prior", "gap"]] * 3)
    assert table["exact log p"].nunique() == 1
    assert table.loc["Bayes", "gap"] == pytest.approx(0, abs=1e-9)
    assert table.loc["prior", "KL"] == 0
    for name, guide in guides.items():
        again = lh.evaluate(
            model, guide, corpus.test, num_samples=2, truth=corpus.test.true_log_probs
        )
        assert comparison.reports[name].elbo == again.elbo
        assert comparison.guides[name] is guide
        assert again.elbo + again.gap == pytest.approx(again.exact)
    of_seeds = "; guides of other seeds may differ by more"
    assert str(comparison).endswith(f" 95 % intervals, bootstrap over 8 sentences{of_seeds}")
    assert "<table" in comparison._repr_html_()


def test_each_guide_may_have_a_model_of_its_own(corpus: Any) -> None:
    model = aligned(corpus)
    before = copies(model)
    comparison = lh.compare(model, [Tied(model), Cascaded(model)], corpus, train="all", **BRIEF)
    assert all(map(torch.equal, copies(model), before))
    assert list(comparison.reports) == ["Tied", "Cascaded"]
    table = comparison.to_frame()
    assert table["exact log p"].nunique() == 2
    less = table["exact log p"]["Cascaded"] - table["exact log p"]["Tied"]
    assert table["exact log p less Tied's"]["Cascaded"] == pytest.approx(less)
    assert "each row has a model of its own" in str(comparison)
    own = comparison.guides["Cascaded"].model
    assert own is not model
    assert not all(map(torch.equal, copies(own), before))


def test_without_training_nothing_moves_and_figures_without_a_row_are_left_out(corpus: Any) -> None:
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    guides = [Cascaded(model), Cascaded(model)]
    before = copies(model, *guides)
    comparison = lh.compare(model, guides, corpus, train="none", num_samples=2)
    assert all(map(torch.equal, copies(model, *guides), before))
    assert list(comparison.reports) == ["Cascaded 1", "Cascaded 2"]
    table = comparison.to_frame()
    assert list(table.columns[:4]) == ["ELBO", "KL", "IWAE, K = 2", "seconds"]
    assert list(table.columns[4:]) == ["ELBO less Cascaded 1's", "from", "to"]


@pytest.mark.parametrize("strategy", ["group", None])
def test_a_difference_is_that_of_the_bounds_and_its_interval_holds_it(
    corpus: Any, strategy: Literal["group"] | None
) -> None:
    selection = lh.latents.SelectionOptions(strategy="group") if strategy else LogitsOptions()
    model = Translation.of(corpus, latents=[selection], **SIZES)
    guides = {"prior": Tied(model), "q": Tied(model) if strategy else MeanField(model)}
    options = {"train": "all", **BRIEF} if strategy else {"train": "none", **COMPARED}
    comparison = lh.compare(model, guides, corpus, **options)
    prior, guide = (comparison.reports[name].elbo for name in guides)
    estimate = comparison.differences["q"]
    assert list(comparison.differences) == ["q"]
    assert estimate.score == pytest.approx(guide - prior, abs=1e-12)
    assert estimate.low < estimate.score < estimate.high
    nats, tokens = (
        torch.stack([report.by_sentence[name] for report in comparison.reports.values()])
        for name in ("elbo", "tokens")
    )
    # the standard error of a ratio of sums, by linearisation
    residual = (nats[1] - nats[0]) - (nats[1] - nats[0]).sum() / tokens[0].sum() * tokens[0]
    error = residual.square().sum().sqrt() / tokens[0].sum()
    assert (estimate.high - estimate.low) / 2 == pytest.approx(1.96 * float(error), rel=0.3)


@pytest.mark.parametrize(
    ("guides", "options", "message"),
    [
        ([], {}, "guides must be at least one"),
        (["cascaded"], {}, "guide 'str': guide must be one such as"),
        (None, {}, "guide 'Tied': guide must be one of this model"),
        ({}, {"train": "model"}, "train must be one of guide, all, none; got 'model'"),
        (..., {"step": 3}, "step"),
        (..., {"num_samples": 0}, "num_samples must be at least 1, got 0"),
        (..., {"train": "none", "steps": 3}, "steps has no effect here: train is none"),
    ],
)
def test_a_mistake_is_one_line(corpus: Any, guides: Any, options: Any, message: str) -> None:
    model = aligned(corpus)
    given = [Tied(aligned(corpus))] if guides is None else guides
    given = [MeanField(model)] if given is ... else given
    with pytest.raises(ValueError, match=f"^{message}|{message}") as caught:
        unchecked(lh.compare)(model, given, corpus, **options)
    assert "\n" not in str(caught.value)


def test_a_guide_that_equals_the_prior_but_for_rounding_is_not_named(corpus: Any) -> None:
    torch.manual_seed(0)
    options = lh.latents.AlignmentOptions(blocks=1, width=4)
    model = Translation.of(corpus, latents=[options], **SIZES)
    comparison = lh.compare(model, [Tied(model), MeanField(model)], corpus, **BRIEF)
    assert abs(comparison.differences["MeanField"].score) < 1e-4
    assert "below the bound" not in comparison.note


def test_intervals_say_that_they_lack_the_noise_of_shared_latents(corpus: Any) -> None:
    model = Translation.of(corpus, latents=[lh.latents.GateOptions()], **SIZES)
    comparison = lh.compare(model, [Tied(model), Tied(model)], corpus, **BRIEF)
    assert ", without the noise of the latents that these share; guides of" in comparison.note
    reports = {name: replace(report, shared_kl=1e-3) for name, report in comparison.reports.items()}
    assert replace(comparison, reports=reports).note == comparison.note


def test_a_guide_below_the_prior_is_named(corpus: Any) -> None:
    model = aligned(corpus)
    guides = {"prior": Tied(model), "worse": MeanField(model)}
    with torch.no_grad():
        for parameter in guides["worse"].parameters():
            parameter.normal_(0, 5)
    comparison = lh.compare(model, guides, corpus, train="none", num_samples=2)
    assert comparison.note.endswith("; below the bound of the prior: worse")


@pytest.mark.parametrize("train", ["none", "all"])
def test_without_an_exact_gap_a_row_of_the_prior_says_which_guides_are_below_it(
    corpus: Any, train: Literal["none", "all"]
) -> None:
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    guides = {"worse": MeanField(model), "prior": Tied(model)}
    for parameter in guides["worse"].parameters():
        torch.nn.init.constant_(parameter, 2.0)
    options: dict[str, Any] = BRIEF if train == "all" else {"num_samples": 2}
    comparison = lh.compare(model, guides, corpus, train=train, **options)
    assert comparison.reports["worse"].elbo < comparison.reports["prior"].elbo
    is_named = comparison.note.endswith("; below the bound of the prior: worse")
    assert is_named == (train == "none")  # each on a model of its own: it may be the model


def test_below_the_prior_is_a_guide_whose_whole_interval_is(corpus: Any) -> None:
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    guides = {"prior": Tied(model), "surely": MeanField(model), "perhaps": MeanField(model)}
    report = lh.evaluate(model, guides["prior"], corpus.test)
    sentences = torch.arange(report.sentences)
    losses = {"prior": 0.0 * sentences, "surely": 1.0 + sentences, "perhaps": 8.0 - 2 * sentences}
    reports = {
        name: replace(
            report, by_sentence=report.by_sentence | {"elbo": report.by_sentence["elbo"] - loss}
        )
        for name, loss in losses.items()
    }
    comparison = lh.inference.Comparison(
        reports, dict.fromkeys(guides, 1.0), guides, one_model=True
    )
    assert comparison.differences["perhaps"].low < 0 < comparison.differences["perhaps"].high
    assert comparison.note.endswith("; below the bound of the prior: surely")
    shared = {name: replace(report, shared_kl=1e-3) for name, report in reports.items()}
    note = replace(comparison, reports=shared).note
    assert "below the bound" not in note, "no interval has the noise of what sentences share"
