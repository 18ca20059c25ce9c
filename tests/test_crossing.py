"""Pairwise cases leave out no pair."""

from itertools import combinations, product

from tests.crossing import cover_pairs


def test_every_two_values_meet_in_fewer_rows_than_all_crossings() -> None:
    columns = ["ab", "cde", "fghi", "jk"]
    rows = cover_pairs(columns)
    for one, other in combinations(range(4), 2):
        met = {(row[one], row[other]) for row in rows}
        assert met == set(product(columns[one], columns[other]))
    assert 12 <= len(rows) <= 15  # of 48
