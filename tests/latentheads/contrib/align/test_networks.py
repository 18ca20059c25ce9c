"""Two networks that align a text: one of each direction, with latent alignments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from latentheads.contrib.align.networks import align_by_networks
from latentheads.corpora import Words
from latentheads.data import Pairs
from latentheads.guides import GUIDES
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.logits.latent import Logits
from latentheads.latents.options import LatentOptions
from latentheads.models import Translation
from latentheads.runs.trained_model import TrainedModel
from tests.tiny import sizes
from tests.typechecking import unchecked

AB = Words(["a", "b"])


def network(
    name: str, source: str, target: str, latent: LatentOptions, sides: Sequence[Words] = (AB, AB)
) -> TrainedModel:
    model = Translation(*map(len, sides), sizes(), latents=[Logits(attention_types=()), latent])
    data: Any = Pairs("here", source=source, target=target)
    return TrainedModel(
        model.double().eval(), GUIDES["exact"](model), data.processor(*sides[::-1]), name
    )


def test_networks_in_the_wrong_order_are_warned_of() -> None:
    cd = Words(["c", "d"])
    forward = network("f", "de", "en", AlignmentOptions(1), (AB, cd))
    backward = network("b", "en", "de", AlignmentOptions(1), (cd, AB))
    lines = ["a b", "b"], ["c", "d c"]
    align_by_networks(*lines, forward, backward)
    with pytest.warns(UserWarning, match="^b does not seem to translate the source to the target"):
        align_by_networks(*lines, backward, forward)
    with pytest.warns(UserWarning, match="^f does not seem to translate the source to the target"):
        align_by_networks(*lines[::-1], forward, backward)


def test_networks_of_one_direction_are_refused(tmp_path: Path) -> None:
    forward, backward = (
        network(name, *pair, AlignmentOptions(1))
        for name, pair in (("f", ("de", "en")), ("b", ("en", "de")))
    )
    aligned = align_by_networks(["a b"], ["b"], forward, backward)
    assert aligned.posteriors[0].forward.shape == (2, 1)
    with pytest.raises(ValueError, match=r"^source\[0\] must be a line of text, got \['a'\]$"):
        unchecked(align_by_networks)([["a"]], ["b"], forward, backward)
    with pytest.raises(ValueError, match=r"^f and f both translate from de to en: give a run of "):
        align_by_networks(["a b"], ["b"], forward, forward)
    with pytest.raises(ValueError, match=r"nowhere is not a run folder"):
        align_by_networks(["a b"], ["b"], forward, tmp_path / "nowhere")


def test_copy_heads_are_refused() -> None:
    forward = network("f", "de", "en", AlignmentOptions(1))
    copy = network("c", "en", "de", CopyOptions(width=5))
    with pytest.raises(ValueError, match=r"^c has copy heads: give a run with latent alignments$"):
        align_by_networks(["a b"], ["b"], forward, copy)
