"""Selecting heads from the command line: real runs, what they print and what they refuse."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import yaml

from latentheads.experiments.cli.comparison import ComparisonOptions, plan_all, take_common
from latentheads.experiments.cli.options import read_program
from latentheads.runs.folder import REPORT_FILES
from latentheads.training import checkpoints
from tests.experiments.programs import SHORT, TINY, inside, made, results_of


def results(out: Path) -> dict:
    return results_of(out)


def strategies_of(*words: str) -> list[str]:
    """The selection strategies of the runs of a comparison."""
    kind = ComparisonOptions
    given, line, options = read_program(words, "compare.py", "", kind)
    common = take_common(given, line, "compare.py", kind.replaced)
    plans = plan_all(common, line, options, Path(options.out), "compare.py")
    return [plan.settings.strategy for plan in plans]


@pytest.mark.parametrize(
    ("words", "recipe", "latent"),
    [
        (["--latents=selection", "--selection.strategy=group"], "transformer+group", "fixed"),
        (
            [
                "--recipe=cascaded+subset",
                "--selection.candidates=5",
                "--train.select_gradient=score",
            ],
            "cascaded+subset",
            "analytic",
        ),
        (["--recipe", "coda+bernoulli"], "coda+bernoulli", "tied"),
    ],
)
def test_a_law_behind_a_name_selects_and_both_divergences_are_told(
    words: list[str], recipe: str, latent: str, tmp_path: Path
) -> None:
    with made() if latent == "analytic" else nullcontext():
        done = inside("run.py", *words, *TINY, *SHORT, "--out", str(tmp_path), "--verbose")
    assert done.returncode == 0, done.stderr
    found = results(tmp_path)
    assert found["recipe"] == recipe
    assert found["select"] == recipe.partition("+")[2]
    ends = {site.rsplit(".", 1)[1]: how for site, how in found["kl_how"].items()}
    assert ends == {"logits": latent, "selection": "analytic"}
    assert {"selection.png"} <= {path.name for path in tmp_path.glob("*.png")} <= {*REPORT_FILES}
    selected = {s for s in found["kl_by_site"] if s.endswith("selection")}
    assert len(selected) == 4
    assert all(found["kl_by_site"][site] > 0 for site in selected)
    assert "encoder.0.self.selection" in done.stdout
    if latent == "fixed":
        again = inside("run.py", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path))
        assert again.returncode == 0, again.stderr
        assert "is finished" in again.stdout
    drawn = inside("translate.py", str(tmp_path), "--draws=2", text="a b\n")
    assert drawn.returncode == 0, drawn.stderr
    lines = inside("translate.py", str(tmp_path), text="a b\n\nc\n")
    assert lines.returncode == 0, lines.stderr
    assert lines.stdout.count("\n") == 3


def test_a_small_network_learns_from_all_choices(tmp_path: Path) -> None:
    words = [
        "--recipe=group",
        "--train.select_gradient=enumerate",
        *TINY,
        *SHORT,
        "--network.layers=1",
    ]
    few = [*words, "--selection.blocks=decoder-self", "--out", str(tmp_path / "few")]
    done = inside("run.py", *few)
    assert done.returncode == 0, done.stderr
    found = results(tmp_path / "few")["selection"]["decoder-self"]["probabilities"]
    assert found["decoder.0.self"][0] != [0.5] * 4
    more = ["--network.layers=2", "--selection.blocks=all", "--out", str(tmp_path / "many")]
    done = inside("run.py", *words[:-1], *more)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("at most 64, not 4096; score takes any number")


def test_a_static_choice_has_no_site(tmp_path: Path) -> None:
    words = ["--recipe", "transformer+static", *TINY, *SHORT, "--network.layers=1"]
    done = inside("run.py", *words, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not any(site.endswith("selection") for site in results(tmp_path)["kl_by_site"])


def test_a_file_may_name_the_law(tmp_path: Path) -> None:
    for text in ("latents: selection\nselection: {strategy: group}\n", "recipe: group\n"):
        (tmp_path / "some.yaml").write_text(text)
        done = inside("run.py", "--config", str(tmp_path / "some.yaml"), "--print_config", *TINY)
        assert done.returncode == 0, done.stderr
        said = yaml.safe_load(done.stdout)
        assert (said["latents"], said["selection"]["strategy"]) == ("selection", "group")
        assert said["guide"] == {"class": "tied"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--recipe coda+top", "unknown latent 'top' of recipe coda+top: choose from"),
        (
            "--recipe group --selection.candidates 6",
            "candidates must be a multiple of the 4 heads for group",
        ),
        (
            "--recipe subset --selection.candidates 4",
            "candidates must be more than the 4 heads, got 4",
        ),
        (
            "--recipe coda+static --data.tasks.names velu --selection.families de",
            "unknown task 'de' of families",
        ),
        (
            "--recipe group --selection.blocks self",
            "unknown attention type 'self': choose from encoder-self",
        ),
        ("--recipe group --selection.blocks none", "--selection.blocks must name an attention"),
        (
            "--recipe group --data grammar-text --selection.blocks encoder-self",
            "--selection.blocks encoder-self: this network has no such heads",
        ),
        (
            "--recipe coda+static --data.tasks velu,tamir --selection.families velu|velu,tamir",
            "families: task 'velu' is in two families",
        ),
        ("--recipe group --train.temperature 0", "--train.temperature must be positive and finite"),
        ("--recipe group --train.least_temperature 2", "least_temperature must lie in 0 ... 1.0"),
    ],
)
def test_a_mistake_costs_one_line(words: str, message: str, tmp_path: Path) -> None:
    done = inside("run.py", *words.split(), *TINY[:2], *SHORT, "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_a_name_without_a_law_does_not_select(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text("recipe: cascaded+group\n")
    words = [
        "--config",
        str(tmp_path / "some.yaml"),
        *TINY,
        *SHORT,
        "--data.tasks.names=velu,tamir",
    ]
    more = [
        "--network.layers=1",
        "--seeds=0",
        "--selection.families=velu,tamir",
        "--selection.candidates=6",
        "--train.temperature=2",
    ]
    recipes = ["--recipes", "transformer,transformer+static,transformer+group"]
    out = tmp_path / "all"
    done = inside("compare.py", *words, *more, *recipes, "--shard=3/3", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert strategies_of(*words, *more, *recipes) == ["none", "static", "group"]
    (run,) = out.iterdir()
    found = results(run)
    assert (run.name, found["select"]) == ("transformer+group-seed0", "group")
    tables = found["selection"]["decoder-self"]
    assert len(tables["probabilities"]["decoder.0.self"][0]) == 6


def test_gates_are_one_for_all_tasks(tmp_path: Path) -> None:
    words = ["--recipe=transformer+gates", "--data.tasks.names=velu,tamir", *TINY, *SHORT]
    words += ["--network.layers=1"]
    closed = ["--data.tasks.one_task=true", "--gates.start=-4"]
    done = inside("run.py", *words, *closed, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = results(tmp_path)
    assert set(found["tasks"]) == {"en-velu", "en-tamir"}
    assert (found["latents"]["gates"]["open"], found["head_divergence"]) == (0, None), (
        "nobody speaks"
    )
    assert "KL, all sites" in done.stdout
    assert "encoder-self gates = " in done.stdout


def test_adapters_learn_in_a_network_that_stays_as_it_was(tmp_path: Path) -> None:
    tasks = [
        "--recipe=transformer",
        "--data.tasks.names",
        "velu,tamir",
        *TINY,
        *SHORT,
        "--network.layers=1",
    ]
    base, out = tmp_path / "base", tmp_path / "adapted"
    assert inside("run.py", *tasks, "--out", str(base)).returncode == 0
    more = ["--adapters=3", "--start", str(base), "--train_only=adapters", "--out", str(out)]
    done = inside("run.py", *tasks, *more)
    assert done.returncode == 0, done.stderr
    shared = checkpoints.load(base / "checkpoints" / "best.safetensors")[0]
    adapted = checkpoints.load(out / "checkpoints" / "best.safetensors")[0]
    assert all(torch.equal(adapted[name], tensor) for name, tensor in shared.items())
    new = adapted.keys() - shared.keys()
    assert new
    assert all(".adapters." in name for name in new)
    assert any(adapted[name].abs().sum() > 0 for name in new if name.endswith("outer"))
    refused = {
        "--train_only=adapters": "--train_only adapters needs --adapters WIDTH and --start RUN",
        "--adapters=-1": "adapters must be at least 0, got -1",
        f"--start={tmp_path / 'none'}": "is no folder: give folders that run.py wrote",
        f"--start={base} --network.width=6": "has another network",
    }
    for words, message in refused.items():
        done = inside("run.py", *tasks, *words.split(), "--out", str(tmp_path / "refused"))
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        assert message in done.stderr
