"""Selecting heads from the command line: real runs, what they print and what they refuse."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import yaml

from latentheads.runs.folder import REPORT_FILES
from latentheads.training import checkpoints
from tests.experiments.programs import SHORT, TINY, assert_refused, made, results_of, succeed


@pytest.mark.parametrize(
    ("words", "recipe", "latent"),
    [
        ("--latents=selection --selection.strategy=group", "transformer+group", None),
        (
            "--recipe=cascaded+subset --selection.strategy.candidates=5 "
            "--selection.strategy.gradient=score",
            "cascaded+subset",
            "analytic",
        ),
    ],
)
def test_a_law_behind_a_name_selects_and_both_divergences_are_told(
    words: str, recipe: str, latent: str | None, tmp_path: Path
) -> None:
    out = str(tmp_path)
    with made() if latent == "analytic" else nullcontext():
        done = succeed("run.py", *words.split(), *TINY, *SHORT, "--out", out, "--verbose")
    results = results_of(tmp_path)
    assert results["recipe"] == recipe
    assert results["select"] == recipe.partition("+")[2]
    ends = {site.rsplit(".", 1)[1]: how for site, how in results["kl_how"].items()}
    assert ends == {"selection": "analytic"} | ({"logits": latent} if latent else {})
    assert {"selection.png"} <= {path.name for path in tmp_path.glob("*.png")} <= {*REPORT_FILES}
    selected = {s for s in results["kl_by_site"] if s.endswith("selection")}
    assert len(selected) == 4
    assert all(results["kl_by_site"][site] > 0 for site in selected)
    assert "encoder.0.self.selection" in done.stdout
    if latent is None:
        again = succeed("run.py", "--config", str(tmp_path / "config.yaml"), "--out", out)
        assert "is finished" in again.stdout
    succeed("translate.py", out, "--num_samples=2", text="a b\n")
    assert succeed("translate.py", out, text="a b\n\nc\n").stdout.count("\n") == 3


def test_a_small_network_learns_from_all_choices(tmp_path: Path) -> None:
    words = ["--recipe=group", "--selection.strategy.gradient=enumerate", *TINY, *SHORT]
    few = ["--network.layers=1", "--selection.blocks=decoder-self", "--out", str(tmp_path / "few")]
    succeed("run.py", *words, *few)
    probabilities = results_of(tmp_path / "few")["selection"]["decoder-self"]["probabilities"]
    assert probabilities["decoder.0.self"][0] != [0.5] * 4
    many = ["--network.layers=2", "--selection.blocks=all", "--out", str(tmp_path / "many")]
    says = "at most 64, not 4096; score takes any number\n"
    assert_refused("run.py", *words, *many, says=says, quiet=False)


def test_a_file_may_name_the_law(tmp_path: Path) -> None:
    for text in ("latents: selection\nselection: {strategy: group}\n", "recipe: group\n"):
        (tmp_path / "some.yaml").write_text(text)
        words = ["--config", str(tmp_path / "some.yaml"), "--print_config", *TINY]
        config = yaml.safe_load(succeed("run.py", *words).stdout)
        assert (config["latents"], config["selection"]["strategy"]["class"]) == (
            "selection",
            "group",
        )
        assert config["guide"] == {"class": "tied"}


ENGLISH = "--recipe coda+static --data.tasks"
MISTAKES = [
    ("--recipe coda+top", "latent of recipe coda+top must be one of "),
    (
        "--recipe coda+static --data.tasks.names velu --selection.strategy.families de",
        "task of families must be one of ",
    ),
    (
        f"{ENGLISH} velu,tamir --selection.strategy.families velu|velu,tamir",
        "'velu' is in two families",
    ),
    ("--recipe group --selection.blocks none", "--selection.blocks must name an attention"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_costs_one_line(words: str, message: str, tmp_path: Path) -> None:
    given = [*words.split(), *TINY[:2], *SHORT, "--out", str(tmp_path / "run")]
    assert_refused("run.py", *given, says=message, quiet=False)


def test_adapters_learn_in_a_network_that_stays_as_it_was(tmp_path: Path) -> None:
    tasks = ["--recipe=transformer", "--data.tasks=velu,tamir", *TINY, *SHORT, "--network.layers=1"]
    base, out = tmp_path / "base", tmp_path / "adapted"
    succeed("run.py", *tasks, "--out", str(base))
    more = ["--adapters=3", "--start", str(base), "--train_only=adapters", "--out", str(out)]
    succeed("run.py", *tasks, *more)
    shared = checkpoints.load(base / "checkpoints" / "best.safetensors")[0]
    adapted = checkpoints.load(out / "checkpoints" / "best.safetensors")[0]
    assert all(torch.equal(adapted[name], tensor) for name, tensor in shared.items())
    new = adapted.keys() - shared.keys()
    assert new
    assert all(".adapters." in name for name in new)
    assert any(adapted[name].abs().sum() > 0 for name in new if name.endswith("outer"))
