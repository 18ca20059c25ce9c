"""Links of words from attention: how tokens are joined, and how systems are compared."""

from __future__ import annotations

import pytest
import torch

from latentheads.experiments.studies import bench_word_links as program
from latentheads.experiments.studies.word_aligners.measures import Gold


def test_tokens_are_joined_to_words_at_both_steps() -> None:
    weights = torch.arange(12, dtype=torch.float64).view(1, 4, 3)
    attention = program.join_words(weights, [0, 0, 1], [0, 1, 1])
    at_output, at_input = attention.weights
    assert at_output.tolist() == [[0 + 1, 2], [3 + 4, 5]]  # rows of the first token of each word
    assert at_input.tolist() == [[3 + 4, 5], [9 + 10, 11]]  # rows after the last token of each word


def test_a_system_is_compared_with_the_first_over_resamples_of_lines() -> None:
    gold = Gold([frozenset({(0, 0), (1, 1)})] * 5, [frozenset({(0, 0), (1, 1)})] * 5)
    right, wrong = torch.eye(2).double(), torch.eye(2).double().flip(0)
    rows = program.measure({"right": [right] * 5, "one wrong": [right] * 4 + [wrong]}, gold)
    assert rows["right"]["aer"] == 0
    difference, low, high = rows["one wrong"]["aer_less_first"]
    assert difference == pytest.approx(0.2)
    assert 0 <= low < difference < high <= 1
