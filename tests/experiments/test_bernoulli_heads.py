"""Gates of heads from the command line: one model, several guides, exact figures, translations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from latentheads.latents.bernoulli_heads.options import BernoulliHeadsOptions
from latentheads.runs.loading import load_run
from tests.experiments.programs import assert_one_line, inside, results_of

QUICK = (
    *("--data=grammar", "--data.sentences=60", "--data.held_out=7", "--network.width=8"),
    *("--network.feed_forward=8", "--network.heads=2", "--network.layers=1", "--train.steps=2"),
    *("--train.report_every=2", "--num_samples=2", "--decode.max_new_tokens=8"),
)
GATES = ("--latents=bernoulli-heads", "--bernoulli-heads.prior=cascaded")
TWO_BLOCKS = "--bernoulli-heads.blocks=decoder.0.self,decoder.0.cross"
pytestmark = pytest.mark.usefixtures("as_the_programs_do")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_default_dtype(torch.float32)
    out = tmp_path_factory.mktemp("gated") / "base"
    done = inside("run.py", *QUICK, *GATES, TWO_BLOCKS, "--guide=exact", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "latent gates of decoder.0.self,decoder.0.cross (prior: cascaded" in done.stdout
    return out


def test_a_run_prints_what_is_exact(base: Path) -> None:
    test = results_of(base)["test"]
    assert test["exact"] == pytest.approx(test["elbo"], abs=1e-5)
    assert test["gap"] == pytest.approx(0, abs=1e-5)
    assert {"decoder.0.self.active", "decoder.0.cross.active"} <= results_of(base)[
        "kl_by_site"
    ].keys()


def test_another_guide_is_trained_of_the_same_model(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "ladder"
    words = ("--guide=mean-field", "--start", str(base), "--train_only=guide", "--out", str(out))
    words += ("--loss=relaxed", "--loss.temperature=0.5")
    done = inside("run.py", *QUICK, *GATES, TWO_BLOCKS, *words)
    assert done.returncode == 0, done.stderr
    first, second = results_of(base)["test"], results_of(out)["test"]
    assert second["exact"] == pytest.approx(first["exact"], abs=1e-5)
    assert second["elbo"] < second["exact"]
    assert second["elbo"] + second["gap"] == pytest.approx(second["exact"], abs=1e-5)


def test_a_run_is_loaded_and_translates(base: Path, tmp_path: Path) -> None:
    run = load_run(base)
    (options,) = run.settings.latents
    assert options == BernoulliHeadsOptions("decoder.0.self,decoder.0.cross", "cascaded")
    source = run.corpus.source
    assert source is not None
    word = source.decode([5])
    done = inside("translate.py", str(base), text=f"{word} {word}\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_heads_with_gates_are_not_pruned(base: Path, tmp_path: Path) -> None:
    words = (str(base), "--keep_heads=1", "--out", str(tmp_path / "pruned"))
    done = inside("prune.py", *words)
    assert_one_line(done, "prune.py")
    assert "has latents bernoulli-heads of the heads of decoder.0.self" in done.stderr
    others = (*words, "--blocks=encoder-self", "--keep_heads=5", "--timed=2", "--rounds=1")
    done = inside("prune.py", *others)
    assert done.returncode == 0, done.stderr
    assert load_run(tmp_path / "pruned" / "heads-5").model.is_summed_out
