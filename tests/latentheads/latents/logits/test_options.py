"""Options of latent logits that would have no effect."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.latents.logits.options import LogitsOptions, PriorSpec
from latentheads.models import Translation, make_prior
from latentheads.options import OptionError
from latentheads.runs.settings import Settings
from tests.tiny import sizes


def test_blocks_are_of_a_prior_that_differs_from_the_scores() -> None:
    assert LogitsOptions(PriorSpec("residual"), "decoder-self").blocks == "decoder-self"
    with pytest.raises(OptionError, match=r"^blocks is for a prior that differs from delta: drop"):
        LogitsOptions(PriorSpec("delta"), "decoder-self")
    options: dict[str, Any] = {"prior": "delta", "blocks": "decoder-self"}
    with pytest.raises(OptionError, match=r"^logits.blocks is for a prior that differs"):
        Settings.from_options({"latents": "logits", "logits": options, "guide": "tied"})


@pytest.mark.parametrize("latent", [(), ("decoder-self",), None])
def test_a_model_without_a_prior_of_logits_has_no_options_of_them(latent: Any) -> None:
    model = Translation(11, 13, make_prior("delta"), sizes(), latent)
    assert LogitsOptions.describe(model, 5) is None
