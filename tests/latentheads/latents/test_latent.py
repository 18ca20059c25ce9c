"""What a latent is that says nothing of itself, and what a model does with several."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from latentheads.latents.latent import Latent, check_model
from latentheads.latents.network import Choice
from tests.tiny import build, small_batch


class Plain(Latent):
    """A latent that leaves all to the defaults."""

    name = "plain"


class Selecting(Plain):
    """A latent that decides about one block."""

    selects_heads = True

    def __init__(self, block: str = "decoder.0.self") -> None:
        self.block = block

    def select_heads(
        self, model: Any, batch: Any, values: Mapping[str, Tensor] | None = None
    ) -> dict[str, Choice]:
        return {self.block: Choice(torch.ones(3))}


class Running(Plain):
    """A latent that runs the network."""

    runs_network = True  # type: ignore[assignment]


def test_a_latent_that_says_nothing_changes_nothing() -> None:
    latent, model, batch = Plain(), build(), small_batch()
    assert not any([latent.modules_to_save, latent.sites, latent.fixed_blocks])
    assert not any([latent.is_summed_out, latent.has_penalty, latent.before_blocks])
    assert latent.select_heads(model, batch) == {}
    assert latent.token_distribution(model, batch, None) is None
    assert latent.decoding_mixture(model, batch) is None
    assert latent.make_posterior(model, "cascaded", "source") is None
    prior = object()
    assert latent.exact_posterior(prior, batch) is prior


@pytest.mark.parametrize(("kind", "other"), [*product((Plain, Selecting, Running), repeat=2)])
def test_two_of_one_role_exclude_each_other_and_no_others_do(
    kind: type[Latent], other: type[Latent]
) -> None:
    assert kind().excludes(other()) == other().excludes(kind())
    assert kind().excludes(other()) == (kind is other is not Plain)


def test_a_latent_that_selects_heads_is_made_before_the_blocks() -> None:
    assert Selecting().before_blocks
    assert not Running().before_blocks


def test_a_model_joins_the_choices_of_its_latents() -> None:
    model = build()
    model.latents = {"first": Selecting(), "second": Selecting("encoder.1.self")}
    assert set(model.select_heads(small_batch())) == {"decoder.0.self", "encoder.1.self"}


@pytest.mark.parametrize("value", [nn.Linear(2, 2), None, Plain()])
def test_what_is_no_model_of_heads_is_named(value: object) -> None:
    check_model(build())
    with pytest.raises(ValueError, match=f"^model must be .*, got {type(value).__name__}$"):
        check_model(value)
