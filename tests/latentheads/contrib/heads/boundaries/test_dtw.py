"""Dynamic time warping is that of OpenAI's code, and of ``transformers`` on its rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.generation.utils import GenerateEncoderDecoderOutput
from transformers.models.whisper import generation_whisper

from latentheads.contrib.heads.boundaries.dtw import dtw_starts, median_filter


@pytest.mark.parametrize("seed", range(3))
def test_starts_are_those_of_transformers_in_a_whole_sound(seed: int) -> None:
    torch.manual_seed(seed)
    heads, prompt, tokens, positions = [(0, 1), (2, 0)], 2, 5, 31
    cross = tuple(torch.rand(1, 2, prompt + tokens, positions).softmax(-1) for _ in range(3))
    whisper = SimpleNamespace(config=SimpleNamespace(decoder_layers=3, median_filter_width=7))
    sequences = torch.zeros(1, prompt + tokens + 1).long()
    outputs = GenerateEncoderDecoderOutput(cross_attentions=[cross], sequences=sequences)
    times = generation_whisper.WhisperGenerationMixin._extract_token_timestamps(
        whisper, outputs, heads, num_input_ids=prompt
    )
    weights = torch.stack([cross[layer][0, head, prompt:] for layer, head in heads])
    np.testing.assert_allclose(dtw_starts(weights) * 0.02, times[0, prompt:-1], atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_starts_are_those_of_openai(seed: int) -> None:
    """Scores are cut to the sound before the softmax; the rows of start and end count."""
    scores = 3 * torch.randn(2, 7, 31, generator=torch.Generator().manual_seed(seed))
    scores[0, 2, 25:] += 6  # most of this row lies outside the sound
    starts = dtw_starts(scores.softmax(-1)[..., :23], slice(1, -1))

    weights = scores[..., :23].softmax(-1)
    std, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    matrix = generation_whisper._median_filter((weights - mean) / std, 7).mean(0)[1:-1]
    text, times = generation_whisper._dynamic_time_warping(-matrix.double().numpy())
    jumps = np.pad(np.diff(text), (1, 0), constant_values=1).astype(bool)
    np.testing.assert_array_equal(starts, times[jumps])


def test_a_position_of_one_weight_in_all_rows_says_nothing() -> None:
    weights = torch.zeros(2, 4, 37)  # as most weights of half precision are
    for row, start in enumerate((1, 11, 19, 28)):
        weights[:, row, start : start + 7] = 1 / 7
    np.testing.assert_array_equal(dtw_starts(weights), [0, 11, 19, 28])


def test_few_positions_are_not_filtered() -> None:
    values = torch.tensor([[3.0, 1.0, 2.0]])
    assert torch.equal(median_filter(values, 7), values)
