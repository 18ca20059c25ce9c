"""Latent logits as options and in Python, and options that would have no effect."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.data.in_memory import data_of
from latentheads.families import Family, Gaussian, HeadScale, Identity
from latentheads.guides import MeanField
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.logits.options import LogitsOptions, PriorSpec
from latentheads.latents.logits.priors import Independent
from latentheads.models import LanguageModel, Translation
from latentheads.names import Block
from latentheads.options import OptionError
from latentheads.runs.build import make_model
from latentheads.runs.settings import Settings
from tests.latentheads.corpora.texts import pets, story
from tests.tiny import sizes


def test_blocks_are_of_a_prior_that_differs_from_the_scores() -> None:
    assert LogitsOptions(PriorSpec("residual"), "decoder-self").blocks == "decoder-self"
    with pytest.raises(OptionError, match=r"^blocks is for a prior that differs from delta: drop"):
        LogitsOptions(PriorSpec("delta"), "decoder-self")
    options: dict[str, Any] = {"prior": "delta", "blocks": "decoder-self"}
    with pytest.raises(OptionError, match=r"^logits.blocks is for a prior that differs"):
        Settings.from_options({"latents": "logits", "logits": options, "guide": "tied"})


def test_a_model_without_a_prior_of_logits_has_no_options_of_them() -> None:
    corpus = pets()
    model = Translation.of(corpus, latents=[LogitsOptions("delta"), AlignmentOptions()], width=8)
    assert Settings.of(model, MeanField(model), corpus).latent_names == ("alignments",)


class Halved(Independent):
    def __call__(self, block: Block) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads, self.scale / 2))


@pytest.mark.parametrize("prior", ["cascaded", {"class": "cascaded", "hidden": 2}, Halved(0.7)])
def test_a_model_has_the_logits_of_its_options_and_is_described_by_them(prior: Any) -> None:
    options = LogitsOptions(prior, blocks="decoder-self,decoder-cross")
    model = Translation.of(pets(), latents=[options], width=8, heads=2, layers=2)
    assert {block.block.attention_type for block in model.latent_blocks} == {
        *("decoder-self", "decoder-cross")
    }
    assert Settings.of(model, MeanField(model), pets()).logits == options


@pytest.mark.parametrize("kind", [Translation, LanguageModel])
def test_a_model_of_python_is_that_of_the_command_line(kind: Any) -> None:
    corpus = pets() if kind is Translation else story()
    widths: dict[str, Any] = {"width": 6, "heads": 3}
    own = kind.of(corpus, **widths)
    settings = Settings(data=data_of(corpus), network=own.network)
    model = make_model(settings, corpus.target, corpus.source)
    assert [*own.latents] == [*model.latents] == [*settings.latent_names] == ["alignments"]
    assert not own.samples_heads
    shapes, others = ({n: p.shape for n, p in m.named_parameters()} for m in (own, model))
    assert shapes == others
    noisy = kind.of(corpus, latents=[LogitsOptions()], **widths)
    assert [*noisy.latents] == ["logits"]
    assert noisy.samples_heads


def test_a_tied_prior_needs_a_run() -> None:
    with pytest.raises(ValueError, match=r"^logits.prior tied needs a run, with a guide"):
        Translation(11, 13, sizes(), latents=[LogitsOptions("tied")])
