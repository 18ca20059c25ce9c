"""A comparison: one table, one figure, finished runs used again."""

import csv
import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pandas as pd
import pytest
from scipy import stats

from latentheads.data import Grammar, Hub, Pairs
from latentheads.errors import UnfinishedError
from latentheads.experiments.comparison.jobs import LOG_FILE, RUN_COMMAND, RunJob
from latentheads.experiments.comparison.recipes import read_varied
from latentheads.experiments.comparison.summary import check_texts, footer, read_all
from latentheads.guides import Tied
from latentheads.latents.selection.strategies import GroupStrategy, StaticStrategy
from latentheads.runs.settings import Settings
from latentheads.training.losses import HeadELBOLoss, KLWarmup, MarginalLoss
from tests.experiments.programs import (
    SHORT,
    SMALL,
    TINY,
    assert_refused,
    inside,
    plans_of,
    results_of,
    succeed,
    timeless_results_of,
)

BRIEF = [*TINY, *SHORT, "--network.layers=1"]
WORDS = ["--recipes", "coda-cs,cascaded", "--seeds", "0,1", *BRIEF]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison of two recipes and two seeds."""
    out = tmp_path_factory.mktemp("compared") / "runs"
    printed = succeed("compare.py", *WORDS, "--out", str(out)).stdout
    (out / "said").write_text(printed)
    return out


@pytest.fixture
def copied(compared: Path, tmp_path: Path) -> Path:
    """The same to be changed."""
    return Path(shutil.copytree(compared, tmp_path / "runs"))


def test_a_comparison_writes_its_table_and_figure_and_reuses_runs(compared: Path) -> None:
    text = (compared / "said").read_text()
    assert re.search(r"^cascaded +2 ", text, re.MULTILINE)
    assert max(map(len, text[text.index("Test part") :].splitlines())) <= 100
    names = {"table.csv", "table.md", "runs.csv", "elbos.png", "curves.png"}
    assert names <= {p.name for p in compared.iterdir()}
    assert not (compared / "gaps.png").exists()
    assert "| `cascaded` | 2 |" in (compared / "table.md").read_text()
    note = "No p of BLEU where neither system has a 4-gram match: smoothing makes both scores."
    assert " ".join(text.split()).count(note) == 1
    assert note in (compared / "table.md").read_text()
    base, cascaded = rows_of(compared / "table.csv")
    check_difference(rows_of(compared / "runs.csv"), cascaded)
    assert float(base["difference"]) == 0
    again = succeed("compare.py", *WORDS, "--out", str(compared))
    assert "parameters; corpus" not in again.stdout
    other = inside("compare.py", *WORDS, "--out", str(compared), "--train.steps", "1")
    assert other.returncode == 2
    assert "holds a run with other options" in other.stderr


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def check_difference(runs: list[dict[str, str]], row: dict[str, str]) -> None:
    elbo = {(run["recipe"], run["seed"]): float(run["elbo"]) for run in runs}
    paired = [elbo["cascaded", seed] - elbo["coda-cs", seed] for seed in ("0", "1")]
    mean = sum(paired) / 2
    half = stats.t.ppf(0.975, 1) * abs(paired[0] - paired[1]) / 2
    assert float(row["difference"]) == pytest.approx(mean)
    assert float(row["difference_high"]) == pytest.approx(mean + half)


def test_references_that_cannot_be_read_cost_one_line(copied: Path) -> None:
    path = next(copied.glob("*/test.references.txt"))
    path.write_bytes(b"\xff\n")
    done = inside("compare.py", *WORDS, "--out", str(copied))
    assert done.returncode == 2
    assert (
        f"error: {path}, line 1: byte 0xff is not UTF-8; convert the file to UTF-8" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_section_that_a_report_lacks_is_named(copied: Path) -> None:
    path = copied / "cascaded-seed1" / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"missing": {"kl": "no room"}}))
    with pytest.raises(UnfinishedError, match=f"^the report of {path.parent} has no kl .no room.$"):
        read_all(plans_of(copied, *WORDS))


def test_finished_runs_are_given_no_more_updates(copied: Path) -> None:
    more = inside("compare.py", *WORDS, "--out", str(copied), "--train.steps=4")
    assert more.returncode == 2
    assert "is a run of 2 steps, and a comparison gives it no more" in more.stderr


@pytest.mark.parametrize("words", [["--recipes=coda-cs,cascaded,transformer"], WORDS[:2]])
def test_runs_of_text_that_has_changed_are_not_compared(copied: Path, words: list[str]) -> None:
    """Before another run is trained, and where all are finished."""
    texts = copied / "cascaded-seed1" / "corpus.json"
    record = json.loads(texts.read_text())
    texts.write_text(json.dumps(record | {"train": "0"}))
    done = inside("compare.py", *words, *WORDS[2:], "--out", str(copied))
    assert done.returncode == 2
    assert re.search("cascaded-seed1 (is of another|are of different) text", done.stderr)
    assert "that of train has changed" in done.stderr
    assert not (copied / "transformer-seed0").exists()


def test_runs_of_different_texts_are_named(tmp_path: Path) -> None:
    plans = plans_of(tmp_path, "--recipes=coda", "--seeds=0,1,2")
    for number, plan in enumerate(plans[::2]):  # of the other run no digests are kept
        plan.folder.mkdir(parents=True)
        (plan.folder / "corpus.json").write_text(json.dumps({"train": "0", "test": str(number)}))
    first, _, other = (str(plan.folder) for plan in plans)
    with pytest.raises(ValueError, match=f"^{first} and {other} are of different texts: "):
        check_texts(plans)


def test_finished_runs_are_not_shown_for_text_that_has_changed(copied: Path) -> None:
    """Of all of them in the same way, so that they fit each other."""
    for texts in copied.glob("*/corpus.json"):
        texts.write_text(json.dumps(json.loads(texts.read_text()) | {"test": "0"}))
    done = inside("compare.py", *WORDS, "--out", str(copied))
    assert done.returncode == 2
    assert "coda-cs-seed0 is of another text: that of test has changed since" in done.stderr


def test_guides_of_logits_below_the_prior_of_their_model_are_named(
    compared: Path, tmp_path: Path
) -> None:
    words = ["--recipes=independent+mean-field,independent+tied", "--seeds=0", *BRIEF]
    words += ["--train_only=guide", "--start_with=model", f"--start={compared}/coda-cs-seed0"]
    words += ["--config", str(compared / "coda-cs-seed0" / "config.yaml")]
    printed = succeed("compare.py", *words, "--out", str(tmp_path)).stdout
    assert "All rows bound one model; the seeds are of the guide" in printed
    worse, prior = rows_of(tmp_path / "table.csv")
    assert float(worse["elbo"]) < float(prior["elbo"])
    below = "Bounds below that of their model's own prior, guide tied: independent+mean-field."
    assert below in " ".join(printed.split())


@pytest.mark.parametrize("recipes", ["tied+alignments,exact+alignments", "tied+alignments"])
def test_figures_say_whether_their_rows_are_of_one_model(recipes: str, tmp_path: Path) -> None:
    from latentheads.contrib import plot
    from latentheads.experiments.compare import draw

    value = {"elbo": -1.0, "gap": 0.5}
    rows = [{"recipe": name, **value} for name in recipes.split(",")]
    for words in ([], ["--train_only=guide", "--start=RUN"]):
        plans = plans_of(tmp_path, f"--recipes={recipes}", *words)
        with mock.patch.object(plot, "save") as save:
            draw(plans, rows, tmp_path)
        titles = [call.args[0].get_suptitle() for call in save.call_args_list[:2]]
        one, own = "one model; the seeds are of the guide", "each row is of a model of its own"
        assert [one in title for title in titles] == [bool(words)] * 2
        assert [own in title for title in titles] == [not words and len(rows) > 1] * 2
        for more in ({}, {"exact": -1.0}, {"exact": -1.0, "plug_in": -1.0}):
            note = footer([(plans, [row | more for row in rows], pd.DataFrame())])
            assert ("without noise is its own plug-in network" in note) == (len(more) == 2)


def test_a_sampled_bound_within_its_interval_of_the_prior_is_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from latentheads.experiments.comparison import summary

    monkeypatch.setattr(summary, "has_one_model", bool)
    pair = SimpleNamespace(guide_class=Tied)
    plan: Any = SimpleNamespace(recipe="prior", settings=SimpleNamespace(pair=pair))
    bounds = {"prior": [-2.0, -1.0, -3.0], "near": [-2.2, -0.8, -3.3], "worse": [-2.2, -1.1, -3.2]}
    runs = pd.DataFrame(
        [
            {"recipe": recipe, "seed": seed, "elbo": elbo}
            for recipe, values in bounds.items()
            for seed, elbo in enumerate(values)
        ]
    )
    rows = [{"recipe": recipe, "elbo": sum(values) / 3} for recipe, values in bounds.items()]
    named = summary._name_below_prior([plan], rows, runs)
    assert named == "Bounds below that of their model's own prior, guide tied: worse."


def test_the_score_that_stands_for_all_has_its_p_behind_it() -> None:
    from latentheads.experiments.compare import table
    from latentheads.experiments.comparison.summary import cell

    figures = {"accuracy": 75.25, "edit_distance": 0.5, "bleu": 91.0, "task a: accuracy": 80.0}
    spread = {f"{name}_{end}": math.nan for name in figures for end in ("low", "high")}
    row = {"recipe": "a", "seeds": 1, "parameters": 7, "p": [0.0123], **figures, **spread}
    titles, _, second = table([row, row], cell)
    score = ["accuracy, %", "p of accuracy, a seed each", "edit distance", "BLEU"]
    assert titles == ["recipe", "seeds", *score, "accuracy of a, %", "parameters"]
    assert second == ["a", "1", "75.25", "0.012", "0.50", "91.00", "80.00", "7"]
    heard = {"wer": 9.0, "wer_low": math.nan, "wer_high": math.nan, "bleu": 91.0}
    titles, _ = table(
        [{**heard, **spread, "recipe": "a", "seeds": 1, "parameters": 7, "p": []}], cell
    )
    assert titles[2:5] == ["BLEU", "WER, %", "p of WER, a seed each"]


def test_equal_values_of_all_seeds_have_no_interval() -> None:
    from latentheads.experiments.comparison.summary import cell, cell_of_terminal

    row = {"elbo": -1.25, "elbo_low": -1.25 - 1e-16, "elbo_high": -1.25 + 1e-16}
    assert cell(row, "elbo") == cell_of_terminal(row, "elbo") == "-1.2500"
    spread = row | {"elbo_low": -1.5, "elbo_high": -1.0}
    assert cell(spread, "elbo") == "-1.2500 [-1.5000, -1.0000]"
    assert cell_of_terminal(spread, "elbo") == "-1.2500 ±0.2500"
    cut = {"bleu": 9.66, "bleu_low": 0.0, "bleu_high": 81.99}  # at the end of its scale
    assert cell_of_terminal(cut, "bleu") == "9.66 ±72.33"


@pytest.mark.parametrize("half", [0.0, 0.25])
def test_the_title_of_a_table_explains_an_interval_that_it_has(half: float, tmp_path: Path) -> None:
    import pandas as pd

    from latentheads.experiments.comparison.summary import write_tables

    row = {"recipe": "a", "elbo": -1.25, "elbo_low": -1.25 - half, "elbo_high": -1.25 + half}
    text = write_tables(
        pd.DataFrame([row]),
        [row],
        lambda rows, cell: [["recipe", "elbo"], *(["a", cell(row, "elbo")] for row in rows)],
        1,
        tmp_path,
    )
    assert ("mean over seeds ±" in text) == ("-1.2500 ±0.2500" in text) == (half > 0)


def test_guides_of_alignments_stand_beside_the_plain_network(tmp_path: Path) -> None:
    words = ["--recipes=transformer,exact+alignments", "--seeds=3", *BRIEF]
    succeed("compare.py", *words, "--out", str(tmp_path))
    plain, aligned = rows_of(tmp_path / "table.csv")
    assert float(aligned["gap"]) == pytest.approx(0, abs=1e-5)
    assert float(aligned["exact"]) == pytest.approx(float(aligned["elbo"]), abs=1e-5)
    assert not {"plug_in", "iwae"} & {*plain, *aligned}
    assert plain["exact"] == plain["elbo"]  # it has no latents
    apart = float(aligned["exact"]) - float(plain["exact"])
    assert float(aligned["difference_exact"]) == pytest.approx(apart)
    text = (tmp_path / "table.md").read_text()
    for title in ("ELBO", "exact log p", "BLEU", "chrF"):
        assert f"| {title} less first row |" in text
    assert f"{apart:.4f} |" in text
    assert (tmp_path / "gaps.png").is_file()
    assert "| exact log p | gap |" in text
    succeed("compare.py", "--recipes=transformer", *words[1:], "--out", str(tmp_path))
    assert not (tmp_path / "gaps.png").exists()  # the table beside it has no gap any more


def test_tests_of_scores_are_left_by_no_earlier_comparison(tmp_path: Path) -> None:
    (tmp_path / "significance.csv").write_text("of translations\n")
    words = ["--data=grammar-text", "--recipes=transformer", "--seeds=3", *SMALL, *SHORT]
    succeed("compare.py", *words, "--out", str(tmp_path))
    assert (tmp_path / "table.csv").is_file()
    assert not (tmp_path / "significance.csv").exists()


def test_a_recipe_without_a_selection_takes_none_of_its_options_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text("selection: {strategy: {candidates: 5}}\n")
    words = ["--config", str(tmp_path / "some.yaml"), "--seeds=0"]
    plain, chosen = plans_of(tmp_path, *words, "--recipes=transformer,transformer+group")
    assert plain.settings.latent("selection") is None
    selection = chosen.settings.latent("selection")
    assert selection is not None
    assert selection.strategy == GroupStrategy(5)
    done = inside("compare.py", *words, "--recipes=transformer,codda")
    assert "recipe must be one of " in done.stderr


def test_a_latent_of_a_file_is_left_out_where_no_recipe_has_it(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text("latents: alignments\nalignments: {blocks: 1}\n")
    words = ["--config", str(tmp_path / "some.yaml"), "--seeds=0", "--recipes=transformer"]
    (plan,) = plans_of(tmp_path, *words)
    assert plan.settings.latents == ()


def test_the_options_of_a_strategy_are_those_of_recipes_that_have_it(tmp_path: Path) -> None:
    words = ["--selection.strategy.candidates=5", "--selection.strategy.families=de,nl"]
    words += ["--seeds=0", "--recipes=transformer+static,transformer+group"]
    static, group = (plan.settings.latent("selection") for plan in plans_of(tmp_path, *words))
    assert (static.strategy, group.strategy) == (StaticStrategy("de,nl"), GroupStrategy(5))


def test_a_recipe_and_a_seed_of_a_file_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text("recipe: coda\nseed: 4\ntrackers: tensorboard\n")
    words = ["--recipes=transformer", "--config", str(tmp_path / "some.yaml"), "--seeds=0"]
    words += ["--data", str(tmp_path), "--data.source=de", "--data.target=en"]  # it has no text
    lines = inside("compare.py", *words).stderr.splitlines()
    assert lines[:3] == [
        "compare.py: note: recipe of --config is left out: compare.py takes --recipes",
        "compare.py: note: seed of --config is left out: compare.py takes --seeds",
        "compare.py: note: trackers of --config is left out",
    ]


def test_the_number_of_blocks_is_of_recipes_of_alignments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--alignments.blocks=1", "--alignments.width=4", "--seeds=0"]
    recipes = "transformer", "exact+alignments", "exact+alignments+group", "transformer+group"
    plans = plans_of(tmp_path, *words, f"--recipes={','.join(recipes)}")
    assert [plan.settings.recipe for plan in plans] == [*recipes]
    widths = [
        plan.settings.latent("alignments") and plan.settings.latent("alignments").width
        for plan in plans
    ]
    assert widths == [None, 4, 4, None]
    with pytest.raises(SystemExit):
        plans_of(tmp_path, *words, "--recipes=transformer")
    assert "--alignments is not latent" in capsys.readouterr().err


def test_an_option_acts_on_the_recipes_that_it_can_act_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network without noise is compared with one whose noise is warmed up."""
    words = ["--seeds=0", "--train.noise_warmup_steps=5", "--loss.kl_warmup=7", "--loss.kl=sampled"]
    recipes = ["transformer", "cascaded", "cascaded+alignments"]
    plain, noisy, aligned = plans_of(tmp_path, *words, f"--recipes={','.join(recipes)}")
    trainings = [plan.settings.train for plan in (plain, noisy, aligned)]
    assert [training.noise_warmup_steps for training in trainings] == [0, 5, 0]
    warmed = HeadELBOLoss(kl_warmup=KLWarmup(7))
    assert [t.loss for t in trainings] == [HeadELBOLoss(), replace(warmed, kl="sampled"), warmed]
    with pytest.raises(SystemExit):
        plans_of(tmp_path, *words, "--recipes=transformer,cascaded+alignments")
    line = capsys.readouterr().err
    assert line.startswith("compare.py: error: --train.noise_warmup_steps acts on the noise of ")
    assert line.count("\n") == 1


def test_a_loss_of_alignments_is_that_of_the_recipes_that_have_them(tmp_path: Path) -> None:
    recipes = "--recipes=transformer,exact+alignments"
    plans = plans_of(tmp_path, recipes, "--seeds=0", "--loss=marginal")
    assert [plan.settings.train.loss for plan in plans] == [HeadELBOLoss(), MarginalLoss()]


def test_a_guide_of_ones_own_is_of_alignments_where_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "latentheads.guides.cascaded:Cascaded+alignments"
    (plan,) = plans_of(tmp_path, f"--recipes={own}", "--seeds=0")
    assert plan.settings.latent("alignments") is not None
    assert plan.settings.latent("alignments").blocks == 2
    assert plan.options.out.endswith("latentheads.guides.cascaded.Cascaded+alignments-seed0")
    lines = ["from latentheads.guides import Guide", "class Mine(Guide):", "    family = None"]
    (tmp_path / "of_logits.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    mine = "of_logits:Mine"
    with pytest.raises(SystemExit):
        plans_of(tmp_path, f"--recipes={mine}+alignments", "--trust", mine, "--seeds=0")
    assert "has no posterior of alignments: use latents logits" in capsys.readouterr().err


ONE = "--seeds 0 --recipes coda"
MISTAKES = [
    ("--seeds 0-2", "--seeds must be whole numbers with commas between, got '0-2'"),
    ("--devices gpu", "--devices must be a whole number, got 'gpu'"),
    ("--seeds 0,x", "--seeds must be a whole number, got 'x'"),
    (f"{ONE},codda", "recipe must be one of "),
    ("--seeds=0 --verbose", "--verbose belongs to run.py"),
    (
        "--recipes mean-field --guide.hidden 4",
        "--guide belongs to run.py: here use --recipes, whose guides have their defaults or are cl",
    ),
    (
        "--recipes transformer,transformer+group --selection.strategy.families de",
        "selection.strategy.families is not an option of group, but of static",
    ),
    (f"{ONE}+group --selection.strategy subset", "strategy stands in a recipe's name: write"),
    ("--recipes coda --logits.prior tied", "--logits.prior stands in a recipe's name: write"),
    ("--recipes coda --selection.candidates=6", "--selection is not latent: latents are"),
    (f"{ONE} --slurm.partition gpu", "slurm.time must be the minutes that a run may take, as 600"),
    (f"{ONE} --slurm.time 10:00:00", "as 600; got '10:00:00'"),
    (f"{ONE} --slurm.time 9 --devices 0", "devices are of this machine, and slurm chooses its own"),
    (f"{ONE} --vary loss", "vary must be OPTION=VALUE,VALUE, as train.loss=marginal,sampled; got"),
    (f"{ONE} --vary loss=,iwae", "vary must be OPTION=VALUE,VALUE"),
    (f"{ONE} --vary=--loss=rws,iwae", "vary must be OPTION=VALUE,VALUE"),
    (
        f"{ONE} --vary loss=iwae,iwae",
        "values of train.loss must be at least one, each once, got iwae,iwae",
    ),
    (f"{ONE} --vary config=a,b", "--config is not an option"),
    (f"{ONE} --vary seed=1,2", "--seed belongs to run.py: here use --seeds"),
    (f"{ONE} --vary seeds=1,2", "--vary seeds: it is no option of a run, give --seeds itself"),
    (f"{ONE} --vary jobs=1,2", "--vary jobs: it is no option of a run, give --jobs itself"),
    (f"{ONE} --vary logits.prior=tied,delta", "--logits.prior stands in a recipe's name: write"),
    (f"{ONE} --loss iwae --vary loss=rws,iwae", "--train.loss is given beside --vary train.loss"),
    (f"{ONE} --vary alignments.blocks=1,2", "acts on nothing in recipe coda"),
    (f"{ONE},exact+alignments --vary alignments.blocks=1,2", "acts on nothing in recipe coda"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_status_two(words: str, message: str) -> None:
    assert_refused("compare.py", *words.split(), says=message)


def test_a_value_that_varies_is_no_mistake_of_the_file_below_it(tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text("train: {steps: 3}\n")
    words = ["--config", str(file), "--recipes=coda", "--vary=train.learning_rate=0.1,x"]
    assert_refused("compare.py", *words, says="error: --train.learning_rate must be a number,")


@pytest.mark.parametrize(("overwrite", "again"), [("", "the"), ("--overwrite", "without")])
def test_who_stops_it_is_told_what_goes_on(
    overwrite: str, again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``--overwrite`` the same command would train anew what is finished."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("latentheads.experiments.compare.train_all", stop)
    done = inside("compare.py", "--seeds=0", "--out", str(tmp_path), *overwrite.split())
    assert done.returncode == 130
    assert done.stderr.startswith(f"compare.py: stopped; {again} ")
    assert f"same command goes on; what is finished is in {tmp_path}" in done.stderr


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> dict[int, Exception | None]:
    """How the training of each seed ends; what has been begun is taken out."""
    ends: dict[int, Exception | None] = {}

    class StandIn:
        def __init__(self, settings: Settings, *_: object) -> None:
            self.reason = ends.pop(settings.seed)

        def headline(self) -> str:
            return "training"

        def fit(self) -> None:
            if self.reason is not None:
                raise self.reason

    monkeypatch.setattr("latentheads.experiments.comparison.recipes.trainer_of", StandIn)
    monkeypatch.setattr(Grammar, "load", lambda *_, **__: None)
    return ends


def test_one_after_the_other_a_run_that_fails_keeps_no_later_one_from_running(
    trained: dict[int, Exception | None], tmp_path: Path
) -> None:
    memory = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    trained |= {0: ValueError("a"), 1: FloatingPointError("no longer finite"), 2: None, 3: memory}
    words = ["--recipes=transformer", "--seeds=0,1,2,3,4", "--out", str(tmp_path)]
    trained[4] = ValueError("b")
    done = inside("compare.py", *words)
    lines = ["0: a", "1: no longer finite", "3: out of memory: 2.00 GiB asked for at once", "4: b"]
    messages = [f"transformer-seed{line}" for line in lines]
    assert (done.returncode, trained) == (1, {})
    assert f"4 of 5 runs failed: {'; '.join(messages)}; the same command goes on" in done.stderr
    assert [line for line in done.stdout.splitlines() if line in messages] == messages


def test_what_the_first_run_cannot_be_made_with_is_told_at_once(
    trained: dict[int, Exception | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = mock.Mock(side_effect=ValueError("a mistake"))
    monkeypatch.setattr("latentheads.experiments.comparison.recipes.trainer_of", refuse)
    words = ("--recipes=transformer", "--seeds=0,1", "--out", str(tmp_path))
    assert_refused("compare.py", *words, says="error: a mistake\n", quiet=False)
    assert refuse.call_count == 1


def run_here(jobs: Sequence[RunJob], slots: Sequence[Mapping[str, str]]) -> None:
    """Runs the commands of runs beside each other in this process, one after the other."""
    assert len(slots) == 2
    for job in jobs:
        words = job.command()[len(RUN_COMMAND) :]
        (job.folder / LOG_FILE).write_text(succeed("run.py", *words).stdout)


def test_runs_beside_each_other_end_as_one_after_the_other(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentheads.experiments.comparison.recipes.run_jobs", run_here)
    words = ["--seeds=0", *BRIEF, "--out"]
    out = tmp_path / "out"
    succeed("compare.py", "--recipes=coda-cs", *words, str(out))
    words = ["--recipes=coda-cs,cascaded", *words]
    succeed("compare.py", *words, str(out), "--jobs=2")
    for folder in (out, copied):
        assert "parameters; corpus" not in succeed("compare.py", *words, str(folder)).stdout
    assert (out / "table.md").read_text() == (copied / "table.md").read_text()
    for name in ("coda-cs-seed0", "cascaded-seed0"):
        assert timeless_results_of(out / name) == timeless_results_of(copied / name)
    assert "bound (ELBO)" in (out / "cascaded-seed0" / "log.txt").read_text()
    assert not (out / "coda-cs-seed0" / "log.txt").exists()


def test_a_folder_of_something_else_is_told_before_anything_starts(tmp_path: Path) -> None:
    words = ["--recipes=transformer,coda-cs", "--seeds=3", *TINY, *SHORT, "--jobs=2"]
    (tmp_path / "coda-cs-seed3" / "checkpoints").mkdir(parents=True)
    says = "is not a run folder, but contains checkpoints"
    assert_refused("compare.py", *words, "--out", str(tmp_path), says=says, quiet=False)
    (tmp_path / "config.yaml").touch()
    says = f"{tmp_path} is a run folder: choose another --out"
    assert_refused("compare.py", *words, "--out", str(tmp_path), says=says)
    assert not (tmp_path / "transformer-seed3").exists()


def test_every_value_of_an_option_has_a_run_crossed_with_those_of_another(tmp_path: Path) -> None:
    words = ["--recipes=cascaded+alignments,exact+alignments", "--seeds=3"]
    losses = "--vary=loss=marginal,RenyiELBO"
    plans = plans_of(tmp_path, *words, losses, "--vary", "data.joint=true,false", "--data=hub")
    values = [(p.settings.train.loss.name, p.settings.data.joint) for p in plans]
    one, other = "marginal", "RenyiELBO"
    assert values == [(one, True), (one, False), (other, True), (other, False)] * 2
    assert plans[1].recipe == "cascaded+alignments train.loss=marginal data.joint=false"
    name = "cascaded+alignments-train.loss=marginal-data.joint=false-seed3"
    assert plans[1].folder == tmp_path / name
    assert len({plan.folder for plan in plans}) == 8
    (tmp_path / "texts").mkdir()
    folders = f"--vary=data=multi30k,{tmp_path}/texts"
    hub, folder = plans_of(tmp_path, "--recipes=coda", "--seeds=0", folders)
    assert (type(hub.settings.data), type(folder.settings.data)) == (Hub, Pairs)
    assert folder.folder.parent == tmp_path


def test_values_are_rows_and_each_is_trained_on_its_own_corpus(tmp_path: Path) -> None:
    languages = ("velu", "tamir")
    words = ["--recipes=coda", "--seeds=0", *BRIEF, f"--vary=data.language={','.join(languages)}"]
    first, again = (succeed("compare.py", *words, "--out", str(tmp_path)) for _ in range(2))
    headlines = [line for line in first.stdout.splitlines() if "parameters; corpus" in line]
    assert [name in line for name, line in zip(languages, headlines, strict=True)] == [True, True]
    assert "parameters; corpus" not in again.stdout
    rows = rows_of(tmp_path / "table.csv")
    assert [row["recipe"] for row in rows] == [f"coda data.language={name}" for name in languages]
    text = " ".join(first.stdout.split())
    assert "figures are not comparable with its: coda data.language=tamir." in text
    assert not any(name.startswith("difference") and rows[1][name] for name in rows[1])
    tests = rows_of(tmp_path / "significance.csv")
    assert [row["metric"] for row in tests] == ["bleu", "chrf"] * 2
    assert not any(row["p"] for row in tests)  # sentences of two languages are no pairs
    for name in languages:
        folder = tmp_path / f"coda-data.language={name}-seed0"
        assert name in (folder / "config.yaml").read_text()
        assert name in results_of(folder)["corpus"]


def test_a_comma_within_brackets_belongs_to_a_value() -> None:
    assert read_varied("network.adaptive=[2,3],{a:(1,2),b:[3]} loss=iwae") == {
        "network.adaptive": ["[2,3]", "{a:(1,2),b:[3]}"],
        "train.loss": ["iwae"],
    }
