"""What is not finite is named, be it of one sentence alone."""

from __future__ import annotations

import pytest
import torch

from latentheads.batch import Batch
from latentheads.distributions import HeadContext, NormalHeads
from latentheads.families import Family
from latentheads.inference.non_finite import describe_non_finite
from tests.tiny import attach, build


class Spoilt(Family):
    """Around the scores, but in one sentence."""

    def __init__(self, location: float) -> None:
        super().__init__()
        self.location = location

    def forward(self, context: HeadContext) -> NormalHeads:
        return NormalHeads(context.scores.index_fill(0, torch.tensor(1), self.location), context)


@pytest.mark.parametrize(
    ("location", "of", "fault"),
    [
        (1e300, "prior", "the prior's log-density is not finite"),
        (torch.nan, "guide", "a sampled value is not finite"),
    ],
)
def test_the_site_of_one_sentence_is_named(
    location: float, of: str, fault: str, batch: Batch
) -> None:
    model = build("language-model").eval()
    guide = attach("cascaded", model)
    if of == "prior":
        model.decoder.layers[1].inner.prior = Spoilt(location)
    else:
        guide.families["decoder_1_self"] = Spoilt(location)
    assert describe_non_finite(model, guide, [batch]) == f"site decoder.1.self.logits: {fault}"
