"""Priors of alignments by name, with options of their own; and one of the reader's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pytest
import torch

from latentheads.experiments.cli.command_line import read_command_line
from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.alignments.priors import (
    AlignmentPrior,
    CascadedPrior,
    ChainPrior,
    MixturePrior,
    PriorName,
    PriorParameters,
    SoftPrior,
)
from latentheads.options import OptionError, options_class
from latentheads.runs.settings import Settings
from latentheads.runs.trainer import name_trusted
from tests.latentheads.latents.alignments.models import aligned
from tests.tiny import small_batch
from tests.typechecking import unchecked


def test_an_editor_completes_the_names_that_there_are() -> None:
    assert get_args(PriorName) == tuple(AlignmentPrior.choices())


@pytest.mark.parametrize(
    ("given", "prior"),
    [
        ("chain", ChainPrior()),
        ({"class": "chain", "reach": 5}, ChainPrior(5)),
        ({"class": "mixture", "components": 3}, MixturePrior(3)),
        (SoftPrior(), SoftPrior()),
        ({"reach": 7}, CascadedPrior(7)),
    ],
)
def test_a_prior_is_a_name_or_a_class_with_options(given: Any, prior: AlignmentPrior) -> None:
    blocks = 1 if prior.chained else 2
    assert AlignmentOptions(blocks, prior=given).prior == prior


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reach": 3}, "reach is not an option: did you mean prior.reach?"),
        ({"components": 3}, "components is not an option: did you mean prior.components?"),
        (
            {"prior": {"class": "soft", "reach": 3}},
            "prior.reach is not an option of soft, but of cascaded, chain",
        ),
        (
            {"prior": {"components": 3}},
            "prior.components is not an option of cascaded, but of mixture",
        ),
        (
            {"blocks": 1, "prior": {"reach": 5}},
            "prior.reach is for two blocks, and there is one: drop it",
        ),
        (
            {"heads": 2, "prior": {"reach": 5}},
            "prior.reach is for two blocks, and there is one: drop it",
        ),
        ({"prior": {"class": "chain", "reach": -1}}, "prior.reach must be at least 0, got -1"),
    ],
)
def test_an_option_without_effect_cannot_be_said(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        unchecked(AlignmentOptions)(**options)
    assert str(refused.value) == message


class UniformParameters(PriorParameters):
    """All positions are equally probable, as in model 1 of Brown et al. 1993."""

    def forward(self, scores: Any, keys: Any, below: Any) -> CategoricalParameters:
        uniform = scores.masked_fill(scores > NOWHERE / 2, 0.0)
        return CategoricalParameters(uniform, first_head=self.heads.start)


@options_class()
class Uniform(AlignmentPrior):
    """All positions are equally probable."""

    def make(self, heads: range, size: int, null: bool) -> PriorParameters:
        return UniformParameters(heads)


OWN = f"{__name__}:Uniform"


@torch.no_grad()
def test_a_prior_of_ones_own_is_summed_out_exactly() -> None:
    model = aligned(AlignmentOptions(1, 1, Uniform(), 5))
    batch = small_batch()
    alignment_pass = model.token_distribution(batch).alignment_pass
    by_position = [
        alignment_pass.aligned_states(torch.full((*batch.target.shape, 1), position))
        for position in range(batch.source.shape[1])
    ]
    log_probs = torch.stack([model.output(states).log_softmax(-1) for states in by_position])
    index = batch.target.expand(len(log_probs), -1, -1)[..., None]
    real = batch.source_valid.T[..., None]
    word = log_probs.gather(-1, index)[..., 0].masked_fill(~real, -torch.inf).logsumexp(0)
    word = word - batch.source_valid.sum(-1, keepdim=True).log()
    expected = (word * batch.target_valid).sum(-1)
    torch.testing.assert_close(model.token_distribution(batch).log_evidence(batch.target), expected)


def test_a_prior_of_ones_own_names_the_heads_of_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    model = aligned(AlignmentOptions(2, 1, Uniform(), 5))
    monkeypatch.setattr(
        UniformParameters, "forward", lambda _, scores, *__: CategoricalParameters(scores)
    )
    expected = r"^the prior of decoder.1.alignment: first_head must be 1, .* first head, got 0$"
    with pytest.raises(ValueError, match=expected):
        model.token_distribution(small_batch())


def test_a_prior_of_ones_own_is_named_with_trust() -> None:
    options = {"alignments": {"blocks": 1, "prior": OWN}}
    with pytest.raises(OptionError, match=r"^alignments.prior .*say so: --trust"):
        Settings.from_options(options)
    settings = Settings.from_options(options, trusted=OWN)
    assert settings.latents == (AlignmentOptions(1, prior=Uniform()),)
    assert settings.own_classes == [OWN]
    assert Settings.from_options(settings.to_options(), trusted=OWN) == settings
    assert OWN in name_trusted(settings, None).split(",")
    line = read_command_line(["--alignments.prior", OWN, "--alignments.blocks", "1"])
    assert Settings.from_nested(line.options, line.trusted) == settings
