"""What runs draw, and options that would draw nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latentheads.runs.trained_model import TrainedModel, check_is_stochastic
from tests.latentheads.runs.trained import load, train

KINDS: Any = ("heads", "selections", "alignments")
GROUP = ("--latents=selection", "--selection.strategy=group", "--selection.strategy.candidates=4")
RUNS = {
    "plain": ("--recipe=transformer",),
    "heads": ("--recipe=cascaded",),
    "alignments": ("--guide=cascaded", "--alignments.blocks=1"),
    "selections": (*GROUP, "--data.tasks.names=velu,tamir"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedModel]:
    folder: Path = tmp_path_factory.mktemp("runs")
    for name, words in RUNS.items():
        train(folder / name, *words, "--data.sentences=90", "--data.held_out=9")
    return {name: load(folder / name) for name in RUNS}


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_acts_on_the_run_that_draws_what_it_draws(
    runs: dict[str, TrainedModel], kind: Any
) -> None:
    for name, run in runs.items():
        if name == kind:
            check_is_stochastic([runs["plain"], run], "num_samples", [kind])
        else:
            with pytest.raises(
                ValueError, match=r"^num_samples has no effect here: it needs a run"
            ):
                check_is_stochastic([run], "num_samples", [kind])


def test_the_refusal_names_all_that_the_option_draws(runs: dict[str, TrainedModel]) -> None:
    with pytest.raises(ValueError) as refused:
        check_is_stochastic([runs["plain"]], "--decode.num_samples", KINDS)
    assert str(refused.value) == (
        "--decode.num_samples has no effect here: it needs a run that samples its heads, or the "
        "selection of heads, or alignments"
    )


def test_heads_are_what_is_asked_for_by_itself(runs: dict[str, TrainedModel]) -> None:
    check_is_stochastic([runs["heads"]], "num_samples")
    with pytest.raises(ValueError, match=r"a run that samples its heads$"):
        check_is_stochastic([runs["alignments"], runs["selections"]], "num_samples")
    assert [name for name, run in runs.items() if run.model.samples_heads] == ["heads"]
