"""Links of both directions, against cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from latentheads.contrib.align.symmetrization import (
    SYMMETRIZATIONS,
    LinkPosterior,
    grow_diag_final_and,
    select_links,
)

FORWARD = np.array([[0.9, 0.0, 0.1], [0.0, 0.64, 0.4], [0.0, 0.06, 0.3]])
BACKWARD = np.array([[0.9, 0.05, 0.0], [0.0, 0.25, 0.7], [0.1, 0.1, 0.3]])
POSTERIOR = LinkPosterior(FORWARD, BACKWARD, (-1.0, -2.0))


@pytest.mark.parametrize(
    ("symmetrize", "links"),
    [
        ("forward", {(0, 0), (1, 1), (1, 2)}),
        ("backward", {(0, 0), (1, 2)}),  # the last source word is likelier to have no link
        ("intersection", {(0, 0), (1, 2)}),
        ("product", {(0, 0), (1, 1), (1, 2)}),
        ("grow-diag-final-and", {(0, 0), (1, 1), (1, 2)}),
    ],
)
def test_links_of_a_pair_by_hand(symmetrize: str, links: set[tuple[int, int]]) -> None:
    assert select_links(POSTERIOR, symmetrize, 0.4) == links
    assert set(SYMMETRIZATIONS) == {
        *("forward", "backward", "intersection", "product", "grow", "grow-diag-final-and")
    }


def test_the_threshold_is_of_the_geometric_mean() -> None:
    assert np.isclose(POSTERIOR.product[1, 1], 0.4)
    assert select_links(POSTERIOR, "product", 0.41) == {(0, 0), (1, 2)}
    assert select_links(POSTERIOR, "product", 0.25) == {(0, 0), (1, 1), (1, 2), (2, 2)}


def test_what_is_missing_from_a_word_is_the_probability_of_none() -> None:
    np.testing.assert_allclose(POSTERIOR.null_target, [0.1, 0.3, 0.2])
    np.testing.assert_allclose(POSTERIOR.null_source, [0.05, 0.05, 0.5])


def test_a_link_that_is_as_likely_as_none_is_not_chosen() -> None:
    tied = LinkPosterior(np.array([[0.5]]), np.array([[0.5]]), (-1.0, -1.0))
    assert select_links(tied, "forward") == select_links(tied, "backward") == set()


def test_growing_adds_neighbours_while_a_word_is_free_and_then_free_pairs() -> None:
    forward = {(0, 0), (1, 1), (2, 1), (4, 4), (5, 2)}
    backward = {(0, 0), (1, 1), (1, 2), (4, 4), (3, 2)}
    # (2, 1) and (1, 2) are neighbours of (1, 1) with a free word; (5, 2) is no free pair at the
    # end, since 2 is taken; (3, 2) is a neighbour of (2, 1), and 3 is free
    assert grow_diag_final_and(frozenset(forward), frozenset(backward)) == {
        *((0, 0), (1, 1), (2, 1), (1, 2), (3, 2), (4, 4))
    }


def test_a_link_that_was_just_added_grows_in_the_same_pass() -> None:
    forward, backward = frozenset({(1, 0), (2, 2), (0, 1)}), frozenset({(1, 0), (0, 2), (2, 1)})
    # (1, 0) adds (0, 1) and (2, 1); (2, 1) comes later in the pass and adds (2, 2), before the next
    # pass, in which (0, 1) would add (0, 2), comes to 0 and 2
    assert grow_diag_final_and(forward, backward) == {(1, 0), (0, 1), (2, 1), (2, 2)}


def test_the_last_step_joins_free_words_that_one_direction_links() -> None:
    forward, backward = frozenset({(0, 0), (4, 2)}), frozenset({(0, 0), (4, 3), (2, 4)})
    assert grow_diag_final_and(forward, backward) == {(0, 0), (4, 2), (2, 4)}


def test_no_links_grow_from_none() -> None:
    assert grow_diag_final_and(frozenset(), frozenset()) == frozenset()


def test_an_unknown_name_is_one_line() -> None:
    with pytest.raises(ValueError, match="symmetrize must be one of product"):
        select_links(POSTERIOR, "union")


def test_growing_adds_likely_neighbours_of_words_without_a_link() -> None:
    forward = np.array([[0.1, 0.0, 0.0], [0.8, 0.1, 0.0], [0.0, 0.3, 0.9], [0.0, 0.5, 0.1]])
    backward = np.array([[0.7, 0.0, 0.0], [0.9, 0.0, 0.0], [0.0, 0.1, 0.7], [0.0, 0.4, 0.5]])
    posterior = LinkPosterior(forward, backward, (0.0, 0.0))
    product = {(1, 0), (2, 2), (3, 1)}
    assert select_links(posterior, "product", 0.4) == product
    # the first source word joins its neighbour; (0, 0) is no neighbour of a link without (1, 0)
    assert select_links(posterior, "grow", 0.4) == product | {(0, 0)}
    far = LinkPosterior(forward[[1, 3, 2, 0]], backward[[1, 3, 2, 0]], (0.0, 0.0))
    assert (3, 0) not in select_links(far, "grow", 0.4)
    # of words that are all free the neighbour of a neighbour follows
    chain = LinkPosterior(np.array([[0.9, 0.7, 0.7]]), np.array([[0.9, 0.0, 0.0]]), (0.0, 0.0))
    assert select_links(chain, "grow", 0.4) == {(0, 0), (0, 1), (0, 2)}
    least = LinkPosterior(np.array([[0.9, 0.6, 0.7]]), np.array([[0.9, 0.0, 0.0]]), (0.0, 0.0))
    assert select_links(least, "grow", 0.4) == {(0, 0), (0, 1), (0, 2)}
