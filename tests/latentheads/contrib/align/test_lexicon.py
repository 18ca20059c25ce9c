"""The translation table: normalised distributions, classes of prefixes, words spelt alike."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from latentheads.contrib.align.bitext import Bitext, make_bitext
from latentheads.contrib.align.counts import CountTable
from latentheads.contrib.align.lexicon import ALIKE, CONCENTRATION, NULL_CONCENTRATION, Lexicon
from latentheads.contrib.align.spelling import make_spelling

SOURCE = ["parlament", "parlamente", "haus", "otawa"]
TARGET = ["parliament", "parliaments", "house", "otawa"]


def full_bitext() -> Bitext:
    """Every source word with every target word, in one pair."""
    return make_bitext([(SOURCE, TARGET)])


def counts_of(lexicon: Lexicon, **values: float) -> CountTable:
    pairs = lexicon.pairs
    links = torch.zeros(pairs.entries + 1)
    for pair, count in values.items():
        source, target = pair.split("_")
        is_entry = pairs.pair_source == pairs.source.encode([source])[0]
        is_entry &= pairs.pair_target == pairs.target.encode([target])[0]
        links[:-1][is_entry] += count
    words = pairs.source.words, pairs.target.words
    return CountTable(pairs, make_spelling(*words, pairs.pair_source, pairs.pair_target), links)


def table_of(lexicon: Lexicon, values: Tensor) -> Tensor:
    pairs = lexicon.pairs
    table = torch.zeros(len(pairs.source), len(pairs.target))
    table[pairs.pair_source, pairs.pair_target] = values
    return table


@pytest.fixture
def lexicon() -> Lexicon:
    text = full_bitext()
    return Lexicon(text.pairs, text.target_counts.double())


def test_mean_and_predictive_table_are_distributions(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, parlament_parliament=3.0, haus_house=2.0, haus_parliament=0.5)
    ones = torch.ones(4)
    torch.testing.assert_close(table_of(lexicon, lexicon.mean(counts)).sum(1), ones)
    predictive = lexicon.predictive(counts, torch.rand(4))
    torch.testing.assert_close(table_of(lexicon, predictive.links[:-1]).sum(1), ones)
    torch.testing.assert_close(predictive.null.sum(), ones[0])
    assert float(predictive.links[-1]) == 0


def test_the_predictive_table_is_the_mean_of_a_dirichlet(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, haus_house=7.0)
    mean = table_of(lexicon, lexicon.mean(counts))[2, 2]
    table = table_of(lexicon, lexicon.predictive(counts, torch.rand(4)).links[:-1])
    torch.testing.assert_close(table[2, 2], (7 + CONCENTRATION * mean) / (7 + CONCENTRATION))


def test_a_word_without_counts_is_translated_as_those_of_its_prefix(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, parlament_parliament=5.0)
    mean = table_of(lexicon, lexicon.mean(counts))
    # both words share their first letters, and so do both translations
    assert float(mean[1, 0]) == pytest.approx(float(mean[1, 1]))
    assert float(mean[1, 0]) > 2 * float(mean[1, 2])
    before = table_of(lexicon, lexicon.mean(counts_of(lexicon)))
    assert float(mean[2, 0]) == pytest.approx(float(before[2, 0]))


def test_words_that_are_spelt_alike_are_likelier(lexicon: Lexicon) -> None:
    mean = table_of(lexicon, lexicon.mean(counts_of(lexicon)))
    others = torch.full((4,), (1 - ALIKE) / 4)
    torch.testing.assert_close(mean[3], others + torch.tensor([0, 0, 0, ALIKE]))
    # "parlament" is like two words, which share what that is worth
    torch.testing.assert_close(mean[0], others + torch.tensor([ALIKE / 2, ALIKE / 2, 0, 0]))


def test_the_weight_of_words_spelt_alike_is_what_their_links_say(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, otawa_otawa=9.0, parlament_parliament=9.0)
    lexicon.learn_alike(counts)
    high = lexicon.alike
    lexicon.learn_alike(counts_of(lexicon, otawa_house=9.0, parlament_house=9.0))
    assert lexicon.alike < ALIKE < high <= 1


def test_words_keep_a_probability_where_all_links_are_of_words_spelt_alike(
    lexicon: Lexicon,
) -> None:
    counts = counts_of(lexicon, otawa_otawa=9.0)
    for _ in range(50):
        lexicon.learn_alike(counts)
    assert lexicon.alike > 0.99
    assert float(lexicon.mean(counts).min()) > 1e-6


def test_the_variational_table_prefers_frequent_pairs(lexicon: Lexicon) -> None:
    counts = counts_of(lexicon, haus_house=7.0, haus_parliament=0.2)
    table = table_of(lexicon, lexicon.variational(counts, torch.zeros(4)).links[:-1])[2]
    mean = table_of(lexicon, lexicon.predictive(counts, torch.rand(4)).links[:-1])[2]
    assert float(table.sum()) < 1
    assert float(table[0] / table[2]) < float(mean[0] / mean[2])
    parameter = counts.links[:-1] + CONCENTRATION * lexicon.mean(counts)
    expected = torch.digamma(table_of(lexicon, parameter)[2]) - torch.digamma(
        torch.tensor(7.2 + CONCENTRATION)
    )
    torch.testing.assert_close(table, expected.exp())


def test_tables_are_the_same_whatever_is_computed_at_once(
    lexicon: Lexicon, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counts_of(lexicon, haus_house=7.0, haus_parliament=0.2, otawa_otawa=3.0)
    null = torch.rand(4)

    def tables() -> list[Tensor]:
        two = lexicon.variational(counts, null), lexicon.predictive(counts, null)
        return [table.links for table in (*two, lexicon.associations(full_bitext()))]

    whole = tables()
    monkeypatch.setattr("latentheads.contrib.align.lexicon.CHUNK", 3)
    torch.testing.assert_close(tables(), whole)


def test_null_backs_off_to_frequencies(lexicon: Lexicon) -> None:
    null = lexicon.predictive(counts_of(lexicon), torch.tensor([0.0, 500.0, 0.0, 0.0])).null
    expected = (500 + NULL_CONCENTRATION / 4) / (500 + NULL_CONCENTRATION)
    assert float(null[1]) == pytest.approx(expected)


def test_training_starts_from_words_that_occur_together() -> None:
    text = make_bitext([(["a", "b"], ["x", "y"]), (["a"], ["x"]), (["b", "c"], ["y", "z"])])
    lexicon = Lexicon(text.pairs, text.target_counts.double())
    table = table_of(lexicon, lexicon.associations(text).links[:-1])
    torch.testing.assert_close(table.sum(1), torch.ones(3))
    # a occurs 1.5 times with x, once half with y: n^3 / (n(a) n(f)) with n(x) = 2, n(y) = 2
    weights = torch.tensor([1.5**3 / (2 * 2), 0.5**3 / (2 * 2)])
    torch.testing.assert_close(table[0, :2], weights / weights.sum())
    assert float(table[0, 2]) == 0


def test_a_pair_of_sentences_weighs_by_its_longer_side() -> None:
    text = make_bitext([(["a", "b"], ["x"]), (["a"], ["y"])])
    lexicon = Lexicon(text.pairs, text.target_counts.double())
    table = table_of(lexicon, lexicon.associations(text).links[:-1])
    # n(a, x) = 1 / 2, n(a, y) = 1, n(x) = n(y) = 1: the weights are as their cubes
    torch.testing.assert_close(table[0], torch.tensor([1 / 9, 8 / 9]))
