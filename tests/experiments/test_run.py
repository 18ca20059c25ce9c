"""The command line as a user meets it: real folders, and a process of its own."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from latentheads.data import Grammar
from latentheads.experiments import run
from latentheads.experiments.cli.options import read_settings
from latentheads.files import LOCK
from latentheads.runs.folder import REPORT_FILES
from latentheads.runs.settings import Settings
from tests.experiments.processes import ended, fork_off, start
from tests.experiments.programs import (
    SHORT,
    TINY,
    assert_refused,
    inside,
    results_of,
    succeed,
    timeless_results_of,
)

OF_TRAINING = {
    *("config.yaml", "metrics.jsonl", "results.json", "checkpoints"),
    *("vocabulary.json", "processor.json", "corpus.json", ".lock"),
}
"""What the folder of a run holds beside what its report may write."""


def train_unheard(words: list[str]) -> None:
    """As ``run.py ... 2>&- | true`` begins."""
    read, write = os.pipe()
    os.dup2(write, 1)
    for descriptor in (2, read, write):
        os.close(descriptor)
    sys.stderr = None
    run.main(words)


def test_a_reader_that_goes_away_and_a_closed_error_end_no_training(tmp_path: Path) -> None:
    words = ["--guide=cascaded", *TINY, *SHORT, "--out", str(tmp_path / "run")]
    ended(fork_off(train_unheard, words, path=tmp_path / "said"))
    check_results(results_of(tmp_path / "run"))


def test_a_run_fills_its_folder_and_prints_one_table(tiny_run: Path, tmp_path: Path) -> None:
    """A process of its own has the numbers of the run that the other tests share."""
    out, given_path = tmp_path / "run", tmp_path / "said"
    words = ["--guide", "cascaded", *TINY, *SHORT]
    assert ended(start("run.py", *words, "--out", str(out), "--verbose", path=given_path)) == 0
    assert "bound (ELBO)" in given_path.read_text()
    assert "decoder.1.alignment.choice" in given_path.read_text()
    names = {path.name for path in out.iterdir()}
    assert {"config.yaml", "metrics.jsonl", "results.json", "bound.png", "kl.png"} <= names
    assert {
        "alignments.png",
        "divergence.png",
        "vocabulary.json",
        "test.translations.txt",
        "checkpoints",
    } <= names
    assert names - set(REPORT_FILES) == OF_TRAINING
    assert not [path for path in out.rglob(".*") if path.name != LOCK]
    check_results(results_of(out))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2]
    with safe_open(out / "checkpoints" / "best.safetensors", "pt") as file:
        assert "model.source_embedding.table.weight" in file.keys()  # noqa: SIM118
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = inside("run.py", *words, "--out", str(out))
    assert again.returncode == 0
    assert "is finished; --overwrite trains it anew" in again.stdout
    assert "bound (ELBO)" in again.stdout
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert timeless_results_of(out) == timeless_results_of(tiny_run)
    other = inside("run.py", *words, "--seed=5", "--out", str(out))
    assert other.returncode == 2
    assert "holds a run with other options (seed 0 there, 5 here)" in other.stderr


def check_results(results: dict) -> None:
    top = {"recipe", "guide", "prior", "seed", "parameters", "tokens_per_second", "kl_by_site"}
    assert top <= set(results)
    figures = {"elbo", "log_likelihood", "kl", "iwae", "iwae_k", "plug_in", "tokens"}
    assert figures <= set(results["valid"])
    assert figures | {"bleu", "chrf"} <= set(results["test"])
    assert (results["recipe"], results["guide"], results["prior"]) == (
        "cascaded+alignments",
        "cascaded",
        "delta",
    )
    assert results["test"]["iwae_k"] == 2
    total = sum(results["kl_by_site"].values())
    assert results["test"]["kl"] == pytest.approx(total)
    elbo = results["test"]["log_likelihood"] - results["test"]["kl"]
    assert results["test"]["elbo"] == pytest.approx(elbo)


GUIDE = """
from latentheads.guides import Guide
from latentheads.families import Gaussian, HeadScale, Identity

class Sharper(Guide):
    def __init__(self, model, start: float = 0.5):
        super().__init__(model)
        self.start = start

    def family(self, block):
        return Gaussian(Identity(), HeadScale(block.heads, self.start, learned=True))
"""


def test_a_guide_of_ones_own_is_found_by_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the program is started, which is known before any file is read."""
    (tmp_path / "my_sharp.py").write_text(GUIDE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = ["--guide=my_sharp:Sharper", "--guide.start=0.7", "--latents=logits", *TINY, *SHORT]
    succeed("run.py", *words, "--network.layers=1", "--out", "run")
    results = results_of(tmp_path / "run")
    assert results["guide"] == "my_sharp:Sharper"
    assert results["test"]["kl"] > 0
    trusted = [str(tmp_path / "run"), "--trust", "my_sharp:Sharper"]
    assert succeed("translate.py", *trusted, text="the dog\n").stdout.count("\n") == 1


DATA = """
from dataclasses import dataclass
from latentheads.corpora import Corpus
from latentheads.data import Data

@dataclass(frozen=True, kw_only=True)
class Counting(Data):
    most: int = 30

    @property
    def name(self):
        return "counting"

    def _make(self, log, keep):
        pairs = [(f"one {number}", f"eins {number}") for number in range(self.most)]
        return Corpus.from_pairs(pairs, pairs[:3], pairs[:3], name=self.name, log=log)
"""


def test_so_is_a_data_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_counting.py").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = ["--data", "my_counting:Counting", "--data.most", "7", "--out", "run"]
    short = [word for word in (*TINY, *SHORT) if not word.startswith("--data")]
    succeed("run.py", *words, *short, "--latents=none")
    assert results_of(tmp_path / "run")["corpus"] == "counting"
    message = "--data 'my_counting:Other' cannot be imported: "
    assert_refused("run.py", "--data", "my_counting:Other", says=message)


def test_a_tied_prior_takes_the_form_of_the_guide(tmp_path: Path) -> None:
    words = ["--latents=logits", "--guide=cascaded", "--logits.prior=tied", *TINY, *SHORT]
    succeed("run.py", *words, "--network.layers=1", "--out", str(tmp_path / "run"))
    results = results_of(tmp_path / "run")
    assert results["recipe"] == "coda"
    assert set(results["kl_how"].values()) == {"tied"}
    assert results["test"]["kl"] == 0


def test_a_diverging_run_says_so_in_one_line(tmp_path: Path) -> None:
    words = ["--train.learning_rate=1e30", "--train.report_every=1", "--train.steps=4", *TINY]
    done = inside("run.py", *words, "--out", str(tmp_path / "run"))
    assert done.returncode == 1
    assert "is not finite" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_heads_may_be_rewarded_for_differing_while_training(tmp_path: Path) -> None:
    words = ["--recipe=transformer", *TINY, *SHORT, "--network.layers=1", "--train.steps=1"]
    objectives, bounds = [], []
    for kinds in ("none", "output,position"):
        out = tmp_path / kinds
        succeed("run.py", *words, "--disagreement", kinds, "--out", str(out))
        first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
        objectives.append(first["objective"])
        bounds.append(first["valid"]["elbo"])
    assert 0.005 < objectives[0] - objectives[1] < 0.05  # weight 0.01 of agreements of at most 1
    assert abs(bounds[1] - bounds[0]) < 0.5


PRIOR = "--latents logits --logits.prior"
MISTAKES = [
    ("--disagreement outputs", "--disagreement: kinds must be one of subspace"),
    ("--disagreement output --disagreement.weight -1", "weight must be at least 0, got -1"),
    ("--out /proc/nowhere", "cannot write the run folder /proc/nowhere"),
    (f"{PRIOR} delta --guide cascaded", "none of them is latent: use guide tied"),
    (f"{PRIOR} realformer", "--logits.prior 'realformer' is a recipe: use recipe realformer"),
    ("--recipe tied", "'tied' is not a recipe: use guide tied"),
    (f"{PRIOR} tied --guide autoregressive --guide.form masked", "has no option 'form'"),
    ("--recipe coda+group+subset", "one selection strategy, or gates, stands behind a recipe"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_status_two(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused("run.py", *TINY, *SHORT, *words.split(), says=message, quiet=False)
    assert not list(tmp_path.iterdir())


def test_without_options_a_run_is_the_default_that_the_help_promises() -> None:
    settings, *_ = read_settings([], "run.py", "")
    assert (settings.pair.guide_name, settings.pair.prior_name) == ("cascaded", "delta")
    assert settings.latent("alignments") is not None
    assert settings.latent("alignments").blocks == 2
    assert str(settings.out) == "runs/cascaded+alignments-seed0"
    assert settings.data == Grammar()
    assert settings == Settings()


def test_a_run_does_not_replace_the_one_that_it_starts_with(tiny_run: Path, tmp_path: Path) -> None:
    before = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    weights = (before / "checkpoints" / "best.safetensors").read_bytes()
    words = ["--guide", "cascaded", *TINY, *SHORT, f"--start={before}", f"--out={before}"]
    says = f"start and out are both {before}: choose another out"
    assert_refused("run.py", *words, "--overwrite", says=says)
    assert (before / "checkpoints" / "best.safetensors").read_bytes() == weights
