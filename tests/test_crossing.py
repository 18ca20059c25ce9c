"""Pairwise cases leave out no pair, and cases in turn no value."""

from itertools import combinations, product

from tests.crossing import cover_pairs, in_turn


def test_every_two_values_meet_in_fewer_rows_than_all_crossings() -> None:
    columns = ["ab", "cde", "fghi", "jk"]
    rows = cover_pairs(columns)
    for one, other in combinations(range(4), 2):
        met = {(row[one], row[other]) for row in rows}
        assert met == set(product(columns[one], columns[other]))
    assert 12 <= len(rows) <= 15  # of 48


def test_every_value_comes_in_its_turn() -> None:
    names, rows = in_turn(one="ab", other="cdefg", third=(True, False, None)).args
    assert names == ("one", "other", "third")
    assert [set(column) for column in zip(*rows)] == [{*"ab"}, {*"cdefg"}, {True, False, None}]
    assert len(rows) == 5
