"""The measures of the study of word times, and what its program refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation.utils import GenerateEncoderDecoderOutput
from transformers.models.whisper import generation_whisper

from latentheads.contrib.heads.boundaries.dtw import dtw_starts
from latentheads.contrib.heads.word_attention import WHISPER_STEP
from latentheads.experiments.studies.word_times.cache import CachedUtterance
from latentheads.experiments.studies.word_times.measures import (
    average_listed,
    list_for_dtw,
    measure_alone,
    measure_lists,
    measure_rivals,
    only_listed,
)
from latentheads.experiments.studies.word_times.rivals import (
    norm_heads,
    openai_starts,
    transformers_starts,
    warped_times,
)
from latentheads.experiments.studies.word_times.speech import LETTERS, read_captions
from latentheads.experiments.studies.word_times.stability import attention_scores
from tests.experiments.programs import assert_refused
from tests.experiments.studies.word_times.cached import HEADS, LISTED


def _planted() -> CachedUtterance:
    """All heads attend to ten positions from 10 i while word i is predicted.

    The rows are those of two tokens of the start, three words and the end; the sound ends within
    the last position, to which all attend.
    """
    weights = torch.full((len(HEADS), 6, 41), 1e-3)
    for row in range(4):
        weights[:, row + 1, 10 * row : 10 * row + 10] = 1.0
    weights[3, :, 35] = 50.0  # concentrated, but on one position
    weights[..., 40] = 0.5
    starts = [0.0, 0.2, float("nan")]
    spans, energy = [(2, 3), (3, 4), (4, 5)], torch.ones(41)
    return CachedUtterance(
        *("test/0", ["a", "b", "c"], spans, weights, 40, starts, None, energy, HEADS, LISTED)
    )


def test_rivals_warp_the_rows_that_predict_words() -> None:
    results = measure_rivals([_planted()], [_planted()], 1)
    assert results["openai"]["starts"]["within"]["20 ms"][0] == 100
    assert abs(results["upper, bias removed"]["starts"]["bias"]) <= 0.01
    assert HEADS[norm_heads(_planted(), 1)[0]] == (0, 3)


def test_heads_of_one_utterance_are_measured_against_those_of_a_pool() -> None:
    rows = measure_alone([_planted()], [_planted()] * 2)
    assert rows["pool"] == rows["alone"]
    assert rows["pool"]["boundaries"] == 4
    assert rows["pool_less_alone"]["50 ms"] == [0.0]


def test_lists_of_heads_are_warped_as_other_programs_do() -> None:
    times = {"starts": SimpleNamespace(median=torch.tensor([0.0, 0.2, 0.4]))}
    heads: Any = SimpleNamespace(
        heads=HEADS,
        times=lambda *_, **__: times,
        probabilities={(2, 1): 1.0, (2, 2): 0.5},
        chosen=[(0, 3)],
        sufficient=lambda: [(2, 1)],
        model=SimpleNamespace(chain=SimpleNamespace(kinds=1)),
    )
    utterance = _planted()
    utterance.weights[:4] = utterance.weights[0].roll(10, -1)  # heads that are a word behind
    warped = list_for_dtw(heads, [utterance])
    assert warped == [HEADS[4]]
    for rows in measure_lists(heads, warped, [utterance]).values():
        assert [row["heads"] for row in rows.values()] == [8, 1, 1, 1, 1]
        for name in ("openai", "likely", "sufficient", "dtw"):
            assert rows[name]["within"]["20 ms"][0] == 100
        wrong = rows["chosen"]
        assert wrong["within"]["20 ms"][0] == 50
        assert wrong["less_openai"]["20 ms"][0] == -50.0


def test_times_are_those_of_all_tokens_within_the_sound() -> None:
    """A start, its second token, three words of which one has two tokens, and the end."""
    scores = 3 * torch.randn(len(HEADS), 7, 30, generator=torch.Generator().manual_seed(0))
    scores[..., 29] += 4
    spans = [(2, 3), (3, 5), (5, 6)]
    utterance = replace(_planted(), weights=scores.softmax(-1), whole_positions=29, spans=spans)
    inside = scores[[HEADS.index(head) for head in LISTED], :, :29].softmax(-1)
    entered = WHISPER_STEP * dtw_starts(inside, slice(1, 6))
    starts, ends = warped_times(utterance, openai_starts)
    np.testing.assert_allclose(starts, entered[[0, 1, 3]])
    np.testing.assert_allclose(ends, entered[[1, 3, 4]])


def test_times_of_transformers_are_those_of_generated_tokens() -> None:
    scores = 3 * torch.randn(len(HEADS), 7, 30, generator=torch.Generator().manual_seed(1))
    cross = scores.softmax(-1).view(1, 4, 6, 7, 30).unbind(1)
    whisper = SimpleNamespace(config=SimpleNamespace(decoder_layers=4, median_filter_width=7))
    outputs = GenerateEncoderDecoderOutput(
        cross_attentions=[tuple(layer[:, :, :6] for layer in cross)],  # none of the end token
        sequences=torch.zeros(1, 7).long(),
    )
    times = generation_whisper.WhisperGenerationMixin._extract_token_timestamps(
        whisper, outputs, LISTED, num_frames=58, num_input_ids=1
    )
    spans, weights = [(2, 3), (3, 5), (5, 6)], scores.softmax(-1)
    utterance = replace(_planted(), weights=weights, whole_positions=29, spans=spans)
    starts, ends = warped_times(utterance, transformers_starts)
    np.testing.assert_allclose(starts, times[0, [1, 2, 4]], atol=1e-6)
    np.testing.assert_allclose(ends, times[0, [2, 4, 5]], atol=1e-6)


def test_a_score_is_the_share_of_peaks_within_words() -> None:
    scores = attention_scores([_planted()])  # the end of the second word is not known
    assert scores[1, 0] == 1.0
    assert scores[0, 3] == 0.0
    assert np.isfinite([*scores.values()]).all()


def test_only_listed_heads_are_kept() -> None:
    kept = only_listed(_planted())
    assert kept.heads == kept.listed == LISTED
    for index, (layer, head) in enumerate(LISTED):
        assert torch.equal(kept.weights[index], _planted().weights[6 * layer + head])


def test_words_of_other_languages_have_letters_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "train.de"
    path.write_text("Zwei weiße Männer über dem Fluß.\nEin 2 Jahre alter Hund im Schnee.\n")
    assert read_captions(path, LETTERS) == [["Zwei", "weiße", "Männer", "über", "dem", "Fluß"]]
    assert read_captions(path) == []


def test_the_average_of_listed_heads_is_one_head() -> None:
    averaged, kept = average_listed(_planted()), only_listed(_planted())
    torch.testing.assert_close(averaged.weights[0], kept.weights.float().mean(0))
    assert len(averaged.heads) == len(averaged.weights) == 1


@pytest.mark.parametrize("part", ["cache", "long"])
def test_a_network_is_a_folder(part: str, tmp_path: Path) -> None:
    folders = (f"--{name}={tmp_path / 'gone'}" for name in ("network", "multi30k", "fsdd"))
    files = (f"--cache={tmp_path / 'cache'}", f"--out={tmp_path / 'out'}")
    assert_refused("bench_word_times.py", part, *folders, *files, says="there is no folder ")


@pytest.mark.parametrize("content", [b"", b"text", b"\x80", None])
def test_another_file_is_no_cache(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "cache"
    torch.save({"name": torch.ones(2)}, path) if content is None else path.write_bytes(content)
    words = ("sentences", f"--cache={path}", f"--out={tmp_path / 'out'}")
    says = f"{path} is no cache of bench_word_times.py"
    assert_refused("bench_word_times.py", *words, says=says)


@pytest.mark.parametrize(
    ("part", "words", "says"),
    [
        ("heads", ["--out=out", "--pool=b"], "--pool is of sentences and digits, not of heads"),
        ("heads", ["--out=gone/out"], "argument --out: "),
        ("heads", ["--out=a"], "--out: cannot write a: it is read too"),
        ("cache", ["--network=.", "--multi30k=.", "--fsdd=.", "--cache=gone/a"], "--cache: "),
    ],
)
def test_files_are_checked_first(
    part: str, words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").touch()
    assert_refused("bench_word_times.py", part, "--cache=a", *words, says=says)
