"""Words that say what mixes positions in each layer."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.models import Network
from latentheads.models.mixing import (
    MixerConfig,
    attention_layer_below,
    parse_by_layer,
    parse_mixers,
)

A, N = MixerConfig("attention"), MixerConfig("ngram", 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("a", ("a", "a", "a")),
        ("a*2,b", ("a", "a", "b")),
        ("a,b,c", ("a", "b", "c")),
        ("a*3", ("a", "a", "a")),
        ("encoder=a,b,c decoder=d", ("a", "b", "c")),
        ("decoder=d encoder=a", ("a", "a", "a")),
        ("decoder=d", ()),
    ],
)
def test_words_are_dealt_to_layers(text: str, expected: tuple[str, ...]) -> None:
    assert parse_by_layer("mixers", text, "encoder", 3) == expected


def test_the_papers_hybrids() -> None:
    message = "encoder=ngram*3,attention*3 decoder=ngram"
    assert parse_mixers(message, "", "", "encoder", 6) == (N,) * 3 + (A,) * 3
    assert parse_mixers(message, "", "", "decoder", 6) == (N,) * 6
    assert parse_mixers("", "", "", "decoder", 2) == (A,) * 2


def test_windows_and_widths_go_to_the_layers_that_have_them() -> None:
    mixers = parse_mixers("attention,local,ngram", "2,3,7", "11", "encoder", 3)
    assert mixers == (A, MixerConfig("local", 3), MixerConfig("ngram", 7, 11))


def test_a_number_is_the_word_for_it() -> None:
    network = Network(mixers="ngram", windows=3, ngram_width=7)
    assert network == Network(mixers="ngram", windows="3", ngram_width="7")
    assert network.stack("encoder") == (MixerConfig("ngram", 3, 7),) * 2
    for width in (0, "0"):
        assert Network(ngram_width=width).stack("encoder") == Network().stack("encoder")


def test_a_chain_passes_by_what_draws_nothing() -> None:
    stack = (N, A, N, N, A, A)
    assert [attention_layer_below(stack, n) for n in range(6)] == [None, None, 1, 1, 1, 4]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mixers": "atention"}, "mixer must be one of attention, local, ngram; got 'atention'"),
        ({"mixers": "ngram*3"}, r"mixers 'ngram\*3' is for 3 layers: a stack has 2"),
        ({"mixers": "ngram*x"}, r"mixers 'ngram\*x': expected WORD or WORD\*TIMES with commas .*"),
        ({"mixers": "coder=ngram"}, "stack of mixers must be one of .*"),
        ({"mixers": "ngram decoder=local"}, "mixers .*: give it once for each stack, .*"),
        ({"mixers": "local", "windows": "0"}, "windows must be whole numbers from 1 on, got '0'"),
        ({"mixers": "local", "windows": "3,5,7"}, "windows '3,5,7' is for 3 layers: a stack has 2"),
        ({"windows": "3"}, "windows are for local and ngram layers: mixers has none"),
        (
            {"mixers": "decoder=ngram", "windows": "encoder=3"},
            "windows is for local and ngram layers: the encoder has none",
        ),
        (
            {"mixers": "encoder=ngram decoder=local", "ngram_width": "encoder=3 decoder=5"},
            "ngram_width is for ngram layers: the decoder has none",
        ),
        ({"ngram_width": 3}, "ngram_width is for ngram layers: mixers has none"),
        ({"ngram_heads": 2}, "ngram_heads is for ngram layers: mixers has none"),
        ({"mixers": "ngram", "ngram_width": "-2"}, "ngram_width must be whole .*, got '-2'"),
        ({"mixers": "ngram", "ngram_heads": -1}, "ngram_heads must be at least 0, got -1"),
        (
            {"mixers": "ngram", "ngram_heads": 5, "ngram_slices": True},
            "ngram_heads must divide the width 64 for slices, got 5",
        ),
        (
            {"mixers": "decoder=ngram", "ngram_context": True},
            "ngram_context is for ngram layers of the encoder: it has none",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Network(**wrong)
