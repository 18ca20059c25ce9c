"""The curve of a run that loses its heads, made without a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch

import latentheads as lh
from latentheads.corpora import batches
from latentheads.experiments.pruning import networks
from latentheads.experiments.pruning.curve import prune_to, rank_heads, select_stops
from latentheads.pruning import remove_heads
from latentheads.runs.loading import load_run
from tests.tiny import HEADS, build


def test_stops_fall_from_the_whole_network_to_the_heads_that_may_not_go() -> None:
    model, own = build(), 2 * HEADS
    assert select_stops(model) == [18, 16, 14, 12, 10, 9, 7, 5, 3, 1, 0]
    assert select_stops(model, attention_types=("encoder-self",))[-1] == 2 * own
    assert select_stops(model, [5, 11, 5]) == [18, 11, 5]
    with pytest.raises(ValueError, match=r"keep_heads must lie in 6 \.\.\. 18, got 5"):
        select_stops(model, [5], ("encoder-self", "decoder-self"))


def test_the_posterior_ranks_heads_by_the_log_odds_of_their_block(tiny_run: Path) -> None:
    run = load_run(tiny_run)
    part = run.corpus.valid.first(3)
    ranked = rank_heads(run, part, "posterior")
    assert list(ranked) == [block.block.name for block in run.model.head_blocks]
    for name, log_odds in ranked.items():
        alone = lh.head_posterior(run.model, [*batches(part, 64, shuffle=False)], name, tau=1)
        torch.testing.assert_close(log_odds, alone.log_odds, atol=1e-4, rtol=1e-4)


def test_a_run_is_pruned_by_plain_arguments(tiny_run: Path, tmp_path: Path) -> None:
    run = load_run(tiny_run)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    chance = rank_heads(run, run.corpus.valid, "random", seed=3)
    assert rank_heads(run, run.corpus.valid).keys() == chance.keys()
    best = max((float(value), name) for name, item in chance.items() for value in item)[1]
    (one,) = prune_to(run, run.corpus, chance, [1], tmp_path, by="random")
    assert (one.heads, len(one.kept[best])) == (1, 1)
    again = load_run(tmp_path / "heads-1")
    assert again.results is not None
    assert again.results.pruned == {"run": str(run.path), "by": "random", "heads": 1}
    assert all(torch.equal(item, before[name]) for name, item in run.model.state_dict().items())


def test_weights_of_one_network_beside_the_run_are_in_memory(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, copies, counts = load_run(tiny_run), WeakSet[Any](), list[int]()

    def count_and_remove(model: Any, *arguments: Any) -> None:
        copies.add(model)
        counts.append(len(copies))
        remove_heads(model, *arguments)

    monkeypatch.setattr(networks, "remove_heads", count_and_remove)
    chance = rank_heads(run, run.corpus.valid, "random")
    pruned = [*prune_to(run, run.corpus, chance, [2, 1, 0], tmp_path, by="random")]
    networks.time_all(pruned, run, run.corpus.test, rounds=1)
    assert counts == [1] * 9
