"""What `pip install` gives: a wheel, in an empty folder, far from the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.attack.process import start
from tests.experiments.programs import FORKS

ROOT = Path(__file__).parents[1]
PARTS = ("latentheads", "models", "guides", "experiments")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
LEFT_OUT = ("results", "notebooks", "studies")

SCRIPT = """
import sys

import latentheads as lh
from latentheads.experiments.cli.main import PROGRAMS, main
from latentheads.experiments.cli.command_line import presets
from latentheads.guides import Cascaded
from latentheads.models import Translation
from pathlib import Path

assert Path(lh.__file__).is_relative_to(sys.argv[1]), lh.__file__
assert sorted(presets()) == sys.argv[2:]

assert main(["--help"]) == 0

SIZES = {"width": 8, "feed_forward": 8, "heads": 2, "layers": 1}
corpus = lh.data.Grammar(language="velu", sentences=60, held_out=5).load()
model = Translation.of(corpus, latents=[lh.latents.LogitsOptions()], **SIZES)
options = {"report_every": 2, "num_samples": 1, "decoding": lh.inference.Decoding(max_new_tokens=8)}
trainer = lh.Trainer(model, Cascaded(model), corpus, steps=2, out="runs/mine", **options)
trainer.fit()
report = lh.evaluate(model, trainer.guide, corpus.test)
assert report.elbo <= report.log_likelihood < 0
run = lh.load_run("runs/mine")
(drawn,) = run.translate(["the cat that sees the old dog sleeps"], num_return_sequences=8)
assert len(drawn) == 8
lh.plot.save(lh.plot.bound(run), "bound.png")
lh.plot.save(lh.plot.heads(run, "the cat sleeps", num_samples=4), "heads.png")
lh.contrib.page.report(run, "report.html", shown=1, num_samples=2, sentences=2)

words = [f"--network.{name}={size}" for name, size in SIZES.items()]
words += ["--data.language=velu", "--data.sentences=60", "--data.held_out=5"]
words += ["--train.steps=1", "--num_samples=1", "--decode.max_new_tokens=8"]
assert main(["run", *words, "--out=runs/theirs"]) == 0
assert lh.load_run("runs/theirs").target.to_json() == corpus.target.to_json()
"""

ALONE = """
import runpy
import sys

import pyro
import torch


def main(words):
    own = "tests.typechecking"
    sys.meta_path[:] = [each for each in sys.meta_path if type(each).__module__ != own]
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("latentheads", "tests"):
            del sys.modules[name]
    sys.path.insert(0, words[0])
    torch.set_default_dtype(torch.float32)
    pyro.enable_validation(False)
    runpy.run_path("script.py")
"""
"""Runs the script where nothing is left of the checkout but the other libraries, loaded."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel is unpacked; it is built of a copy, for a build leaves files behind.

    In the copy links are text files, as where a zip file was unpacked without links.
    """
    folder = tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        skipped = shutil.ignore_patterns("__pycache__", *LEFT_OUT)
        shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True, ignore=skipped)
    for name in PARTS[1:]:
        link = folder / "source" / "latentheads" / name
        target = link.readlink()
        link.unlink()
        link.write_text(str(target))
    for name in FILES:
        shutil.copy(ROOT / name, folder / "source" / name)
    words = ("--no-build-isolation", "--no-deps", "--quiet", "--wheel-dir", str(folder))
    pip = (sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", *words)
    subprocess.run([*pip, str(folder / "source")], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def test_it_holds_one_package_and_a_command(site: Path) -> None:
    (facts,) = site.glob("*.dist-info")
    assert {path.name for path in site.iterdir()} == {"latentheads", facts.name}
    commands = (facts / "entry_points.txt").read_text()
    assert "latentheads = latentheads.experiments.cli.main:main" in commands
    modules = {path.relative_to(site) for path in site.rglob("*.py")}
    here = {
        Path("latentheads", *(() if name == "latentheads" else (name,)), *path.parts)
        for name in PARTS
        for path in (one_path.relative_to(ROOT / name) for one_path in (ROOT / name).rglob("*.py"))
        if not {*LEFT_OUT} & {*path.parts}
    }
    assert modules == here
    assert (site / "latentheads" / "py.typed").is_file()
    assert (site / "latentheads" / "contrib" / "plot" / "latentheads.mplstyle").is_file()


@FORKS
def test_it_does_in_an_empty_folder_what_a_notebook_does(site: Path, tmp_path: Path) -> None:
    presets = [path.stem for path in (ROOT / "experiments" / "presets").glob("*.yaml")]
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "models.py").write_text("raise ImportError('the reader has one of his own')\n")
    (tmp_path / "alone.py").write_text(ALONE)
    done = start("alone", str(site), *sorted(presets), folder=tmp_path, modules=tmp_path)
    assert done.status == 0, done.error
    assert done.out.startswith("usage: latentheads PROGRAM [options]")
    assert "written to runs/theirs" in done.out
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    for name in ("bound.png", "heads.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
