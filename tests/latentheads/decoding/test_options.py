"""What is asked of decoding goes together."""

from __future__ import annotations

import pytest

from latentheads.decoding.beam_search import beam_search
from latentheads.decoding.options import Decoding
from tests.tiny import build, small_batch


def test_a_length_penalty_is_for_hypotheses_to_rank() -> None:
    model, batch = build(prior="cascaded").eval(), small_batch()
    one, other = (beam_search(model, batch, 1, penalty) for penalty in (0.0, 3.0))
    assert [best.tokens for best, *_ in one] == [best.tokens for best, *_ in other]
    with pytest.raises(
        ValueError, match=r"^length_penalty is for num_beams 2 or more: .*, got 3 with"
    ):
        Decoding(length_penalty=3.0)
    searching = Decoding(4, 0.6, num_samples=2)
    assert searching.with_options({"num_beams": 1}) == Decoding(num_samples=2)
    assert searching.with_options({"num_beams": 3}) == Decoding(3, 0.6, num_samples=2)
    assert Decoding().with_options({"num_beams": 2, "length_penalty": 2.0}) == Decoding(2, 2.0)
    for changes in ({"length_penalty": 2.0}, {"num_beams": 1, "length_penalty": 2.0}):
        with pytest.raises(ValueError, match=r"^length_penalty is for num_beams 2 or more"):
            Decoding().with_options(changes)
