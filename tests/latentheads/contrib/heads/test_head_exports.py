"""Each list of heads is read back as the program that takes it reads it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import GenerationConfig

from latentheads.contrib.heads.head_exports import (
    to_generation_config,
    to_nllw,
    to_openai,
    to_whisper_cpp,
)

HEADS = [(3, 1), (0, 4), (2, 4)]
ORDERED = [(0, 4), (2, 4), (3, 1)]


def test_transformers_keeps_the_list(tmp_path: Path) -> None:
    config = GenerationConfig(alignment_heads=to_generation_config(HEADS))
    config.save_pretrained(tmp_path)
    loaded = GenerationConfig.from_pretrained(tmp_path)
    assert [tuple(head) for head in loaded.alignment_heads] == ORDERED
    # CTranslate2 reads pairs of whole numbers from its own file
    assert json.loads(json.dumps({"alignment_heads": to_generation_config(HEADS)}))


def test_whisper_cpp_has_an_initialiser_of_pairs() -> None:
    line = to_whisper_cpp(HEADS, "mine")
    assert line == "static const whisper_ahead g_aheads_mine[] = { {0, 4}, {2, 4}, {3, 1} };"
    pairs = re.findall(r"\{(\d+), (\d+)\}", line)
    assert [(int(layer), int(head)) for layer, head in pairs] == ORDERED


def test_openai_decodes_a_mask() -> None:
    dump = to_openai(HEADS, (5, 6))
    # as whisper/model.py reads it
    mask = np.frombuffer(gzip.decompress(base64.b85decode(dump)), dtype=bool).copy().reshape(5, 6)
    assert [tuple(map(int, head)) for head in np.argwhere(mask)] == ORDERED
    assert to_openai(to_generation_config(HEADS), (5, 6)) == dump  # a pair of a file is a list


def test_nllw_lists_heads_by_score() -> None:
    scores = {(0, 4): 0.25, (3, 1): 1.0, (2, 4): 1.0, (1, 0): 0.0}
    written = to_nllw(scores, (5, 6), "tiny", "en-de")
    data = json.loads(json.dumps(written))
    # as its load_head_config reads it
    heads = data["token_alignment_heads"]
    expected = [(3, 1, 1.0), (2, 4, 1.0), (0, 4, 0.25)]  # of one score, the more informative first
    assert [(h["layer"], h["head"], h["ts"]) for h in heads] == expected
    assert (data["model"], data["direction"]) == ("tiny", "en-de")
    assert (data["num_layers"], data["num_heads"]) == (5, 6)


@pytest.mark.parametrize("write", [to_generation_config, to_whisper_cpp, to_openai])
def test_scores_of_all_heads_are_no_list(write: Any) -> None:
    arguments = [(5, 6)] if write is to_openai else []
    scores = {(0, 4): 0.0, (3, 1): 1.0}
    for heads in (scores, SimpleNamespace(probabilities=scores)):
        with pytest.raises(ValueError, match=r"heads must be a list of \(layer, head\), such as"):
            write(heads, *arguments)
