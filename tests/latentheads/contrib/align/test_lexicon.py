"""The translation table: normalised distributions, classes of prefixes, words spelt alike."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from latentheads.contrib.align.bitext import Bitext, make_bitext
from latentheads.contrib.align.lexicon import (
    CONCENTRATION,
    NULL_CONCENTRATION,
    Lexicon,
    LexiconCounts,
)

SOURCE = ["parlament", "parlamente", "haus", "otawa"]
TARGET = ["parliament", "parliaments", "house", "otawa"]


def full_bitext() -> Bitext:
    """Every source word with every target word, in one pair."""
    return make_bitext([(SOURCE, TARGET)])


def counts_of(lexicon: Lexicon, **pairs: float) -> LexiconCounts:
    counts = lexicon.new_counts()
    text = lexicon.bitext
    for pair, count in pairs.items():
        source, target = pair.split("_")
        is_entry = text.pair_source == text.source.encode([source])[0]
        is_entry &= text.pair_target == text.target.encode([target])[0]
        counts.links[:-1][is_entry] += count
    return counts


def table_of(lexicon: Lexicon, values: Tensor) -> Tensor:
    text = lexicon.bitext
    table = torch.zeros(len(text.source), len(text.target))
    table[text.pair_source, text.pair_target] = values
    return table


@pytest.fixture
def lexicon() -> Lexicon:
    text = full_bitext()
    return Lexicon(text, text.target_counts.double())


def test_mean_and_predictive_table_are_distributions(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, parlament_parliament=3.0, haus_house=2.0, haus_parliament=0.5)
    counts.null += torch.rand(4)
    ones = torch.ones(4)
    torch.testing.assert_close(table_of(lexicon, lexicon.mean(counts.links[:-1])).sum(1), ones)
    predictive = lexicon.predictive(counts)
    torch.testing.assert_close(table_of(lexicon, predictive.links[:-1]).sum(1), ones)
    torch.testing.assert_close(predictive.null.sum(), ones[0])
    assert float(predictive.links[-1]) == 0


def test_the_predictive_table_is_the_mean_of_a_dirichlet(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, haus_house=7.0)
    mean = table_of(lexicon, lexicon.mean(counts.links[:-1]))[2, 2]
    table = table_of(lexicon, lexicon.predictive(counts).links[:-1])
    torch.testing.assert_close(table[2, 2], (7 + CONCENTRATION * mean) / (7 + CONCENTRATION))


def test_a_word_without_counts_is_translated_as_those_of_its_prefix(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, parlament_parliament=5.0)
    mean = table_of(lexicon, lexicon.mean(counts.links[:-1]))
    # both words share their first letters, and so do both translations
    assert float(mean[1, 0]) == pytest.approx(float(mean[1, 1]))
    assert float(mean[1, 0]) > 2 * float(mean[1, 2])
    before = table_of(lexicon, lexicon.mean(lexicon.new_counts().links[:-1]))
    assert float(mean[2, 0]) == pytest.approx(float(before[2, 0]))


def test_a_word_that_is_spelt_alike_is_likelier(lexicon: Lexicon) -> None:
    mean = table_of(lexicon, lexicon.mean(lexicon.new_counts().links[:-1]))
    torch.testing.assert_close(mean[3], torch.tensor([0.225, 0.225, 0.225, 0.325]))
    torch.testing.assert_close(mean[2], torch.full((4,), 0.25))


def test_the_variational_table_prefers_frequent_pairs(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, haus_house=7.0, haus_parliament=0.2)
    table = table_of(lexicon, lexicon.variational(counts).links[:-1])[2]
    mean = table_of(lexicon, lexicon.predictive(counts).links[:-1])[2]
    assert float(table.sum()) < 1
    assert float(table[0] / table[2]) < float(mean[0] / mean[2])
    parameter = counts.links[:-1] + CONCENTRATION * lexicon.mean(counts.links[:-1])
    expected = torch.digamma(table_of(lexicon, parameter)[2]) - torch.digamma(
        torch.tensor(7.2 + CONCENTRATION)
    )
    torch.testing.assert_close(table, expected.exp())


def test_null_backs_off_to_frequencies(lexicon: Lexicon) -> None:
    counts = lexicon.new_counts()
    counts.null[1] = 500.0
    null = lexicon.predictive(counts).null
    expected = (500 + NULL_CONCENTRATION / 4) / (500 + NULL_CONCENTRATION)
    assert float(null[1]) == pytest.approx(expected)


def test_training_starts_from_words_that_occur_together() -> None:
    text = make_bitext([(["a", "b"], ["x", "y"]), (["a"], ["x"]), (["b", "c"], ["y", "z"])])
    lexicon = Lexicon(text, text.target_counts.double())
    table = table_of(lexicon, lexicon.associations().links[:-1])
    torch.testing.assert_close(table.sum(1), torch.ones(3))
    # a occurs 1.5 times with x, once half with y: n^3 / (n(a) n(f)) with n(x) = 2, n(y) = 2
    weights = torch.tensor([1.5**3 / (2 * 2), 0.5**3 / (2 * 2)])
    torch.testing.assert_close(table[0, :2], weights / weights.sum())
    assert float(table[0, 2]) == 0
