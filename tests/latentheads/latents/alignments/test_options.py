"""Options of alignment heads: which guides are the same posterior."""

from __future__ import annotations

from itertools import combinations
from typing import Any, get_args

import pytest

from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.alignments.posterior import AlignmentPosterior
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.latent import Structure


@pytest.mark.parametrize(
    "options",
    [{"blocks": 1}, {"blocks": 2}, {"blocks": 1, "heads": 2}, {"prior": "chain", "blocks": 1}],
)
def test_guides_with_the_same_conditioned_heads_are_named(options: dict[str, Any]) -> None:
    made = AlignmentOptions(**options)
    form = made.number_of_blocks, made.heads, 3
    posteriors = {
        s: AlignmentPosterior(*form, s, "target", made.chained) for s in get_args(Structure)
    }
    for pair in combinations(posteriors, 2):
        one, other = (posteriors[structure] for structure in pair)
        is_same = (one.chained, {*one.pairs}) == (other.chained, {*other.pairs})
        assert len({*map(made.reduced_structure, pair)}) == (1 if is_same else 2)


def test_a_choice_of_copy_heads_is_conditioned_on_the_one_before_alone() -> None:
    independent, chain = CopyOptions(heads=2), CopyOptions(prior="chain")
    assert {*map(independent.reduced_structure, get_args(Structure))} == {"mean-field"}
    assert [*map(chain.reduced_structure, get_args(Structure))] == [
        *("mean-field", "mean-field", "cascaded")
    ]


@pytest.mark.parametrize(("blocks", "prior"), [(1, "independent"), (2, "cascaded")])
def test_a_single_block_has_no_other_to_be_conditioned_on(blocks: int, prior: str) -> None:
    assert f"(prior: {prior})" in AlignmentOptions(blocks=blocks).phrase
