"""Tables of several seeds are drawn as their means, with intervals over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from latentheads.experiments.studies.retrieval.drawing import draw_encoder

HITS = {(0, 5): 0.5, (1, 5): 0.7, (2, 5): 0.9, (0, 3): 0.4, (1, 3): 0.7, (2, 3): 0.7}
"""The share that is found, by the seed and the heads that stay."""


def rows(seeds: int) -> tuple[list[dict[str, Any]], ...]:
    heads = [
        {"seed": seed, "block": f"encoder.{layer}.self", "head": head, "alone": seed + layer + head}
        for seed in range(seeds)
        for layer in range(2)
        for head in range(3 - layer)
    ]
    noise = [
        {"seed": seed, "price": price, "allocation": "learned", "kl": kl + seed, "hits": 0.5}
        for seed in range(seeds)
        for price, kl in ((1.0, 1.0), (0.1, 7.0))
    ]
    removal = [
        {"seed": seed, "by": by, "heads": number, "hits": hits, "nats": -seed - 1 / number}
        for (seed, number), hits in HITS.items()
        for by in ("gates", "chance")
        if seed < seeds
    ]
    return heads, noise, removal


def panels(seeds: int) -> dict[str, Any]:
    figure = draw_encoder(*rows(seeds), {"alone": "one"}, "here")
    return {axis.get_ylabel(): axis for axis in figure.axes}


def ends(axis: Any, label: str) -> tuple[Any, Any]:
    """The points of a line, and the ends of their intervals."""
    (actual,) = (container for container in axis.containers if container.get_label() == label)
    line, _, (bars,) = actual
    return line.get_ydata(), [bar[:, 1].tolist() for bar in bars.get_segments()]


def test_a_point_is_the_mean_over_seeds_in_its_interval() -> None:
    pruned_network = panels(3)["correct answers of the pruned network"]
    (middle,), (reach,) = ends(pruned_network, "by gates")
    assert (middle, *reach) == pytest.approx([0.6, 0.169735, 1.030265], abs=1e-6)
    under, _ = ends(panels(3)["correct answers under noise"], "noise: learned")
    assert under.tolist() == [0.5, 0.5]


def test_the_whole_network_is_the_mean_over_seeds_too() -> None:
    for name in ("correct answers of the pruned network", "correct answers under noise"):
        (line,) = (
            one_line
            for one_line in panels(3)[name].get_lines()
            if one_line.get_label() == "whole network: 70.0 %"
        )
        assert list(line.get_ydata()) == pytest.approx([0.7, 0.7])


def test_what_is_lost_is_told_seed_by_seed() -> None:
    (middle,), (reach,) = ends(panels(3)["log p minus whole network's, nats"], "by chance")
    assert (middle, *reach) == pytest.approx([1 / 5 - 1 / 3] * 3)


def test_a_map_is_the_mean_over_seeds() -> None:
    (image,) = panels(3)["layer"].images
    assert np.array_equal(image.get_array().filled(-1), [[1, 2, 3], [2, 3, -1]])


def test_a_network_of_which_nothing_goes_is_drawn_too() -> None:
    heads, noise, removal = rows(1)
    whole = [row for row in removal if row["heads"] == 5]
    assert draw_encoder(heads, noise, whole, {"alone": "one"}).axes


def test_rows_of_one_seed_have_no_interval() -> None:
    heads, noise, removal = rows(1)
    for row in (*heads, *noise, *removal):
        del row["seed"]
    axes = draw_encoder(heads, noise, removal, {"alone": "one"}).axes
    (actual,) = (axis for axis in axes if "pruned" in axis.get_ylabel())
    (container,) = (
        one_container
        for one_container in actual.containers
        if one_container.get_label() == "by gates"
    )
    line, _, (bars,) = container
    assert line.get_ydata().tolist() == [0.4]
    assert not any(map(len, bars.get_segments()))
