"""A run folder is data: whoever wrote it, opening it imports and runs nothing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from latentheads.corpora.hub import load_pairs
from latentheads.data import PythonDocs
from latentheads.experiments.cli.options import read_settings
from latentheads.options import merge
from latentheads.runs.trainer import name_trusted
from latentheads.runs.warm_start import load_initial_run
from tests.experiments.programs import SHORT, TINY, assert_one_line, inside, succeed

GUIDE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()

from latentheads.guides import Guide
from latentheads.families import Gaussian, HeadScale, Identity

class Sharper(Guide):
    def __init__(self, model, start: float = 0.5, name: str = "a.b", net: object = None):
        super().__init__(model)
        self.start = start

    def family(self, block):
        return Gaussian(Identity(), HeadScale(block.heads, self.start, learned=True))

class Other(Sharper):
    pass
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that tells when it is imported, where an import would look first."""
    (tmp_path / "planted.py").write_text(GUIDE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "ran"
    sys.modules.pop("planted", None)


def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def say(run: Path, **options: Any) -> None:
    """Changes what a run's configuration says; a mapping without a class, some of a group."""
    path = run / "config.yaml"
    path.write_text(yaml.safe_dump(merge(yaml.safe_load(path.read_text()), options)))


OPENED = [
    ("translate.py", "{run}"),
    ("generate.py", "{run}"),
    ("analyse.py", "{run} --out {out}"),
    ("prune.py", "{run} --out {out}"),
    ("run.py", "--start {run} --out {out}"),
    ("run.py", "--config {run}/config.yaml --out {out}"),
]


@pytest.mark.parametrize(("name", "words"), OPENED)
def test_no_program_imports_what_a_folder_names(
    tiny_run: Path, tmp_path: Path, planted: Path, name: str, words: str
) -> None:
    run = copied(tiny_run, tmp_path)
    say(run, guide={"class": "planted:Sharper"})
    given = words.format(run=run, out=tmp_path / "out").split()
    done = inside(name, *given)
    assert_one_line(done, name)
    assert "guide 'planted:Sharper' is none of this library's" in done.stderr
    assert "trust planted:Sharper" in done.stderr
    assert not planted.exists()
    assert not (tmp_path / "out").exists()


TRUSTED = {"class": "planted:Sharper", "start": 0.7}
CONFIGURATIONS: list[tuple[dict[str, Any], str]] = [
    ({"guide": "planted:Sharper"}, "guide 'planted:Sharper' is none of this library's"),
    ({"guide": "os:system"}, "guide 'os:system' is none of this library's"),
    ({"latents": "alignments+logits", "logits": {"prior": "planted:Sharper"}}, "is none of this"),
    ({"guide.class": "planted:Sharper"}, "guide.class is not an option"),
    ({"guide": {"class": {"class": "planted:Sharper"}}}, "guide must be one of tied, "),
    ({"guide": ["planted:Sharper"]}, "guide must be one of tied, "),
    ({"guide": "other.yaml"}, "guide must be one of tied, "),
    ({"config": {"guide": "planted:Sharper"}}, "config is not an option"),
    ({"trust": "planted:Sharper"}, "trust is not an option"),
    ({"data": {"class": "planted:Sharper"}}, "data 'planted:Sharper' is none of this library's"),
    ({"train": {"optimizer": "planted:Sharper"}}, "train.optimizer must be one of muon, adamw"),
]


@pytest.mark.parametrize(("options", "message"), CONFIGURATIONS)
def test_no_key_of_a_configuration_imports_or_reads_anything(
    tiny_run: Path, tmp_path: Path, planted: Path, options: dict[str, Any], message: str
) -> None:
    run = copied(tiny_run, tmp_path)
    say(run, **options)
    (run / "other.yaml").write_text("guide: planted:Sharper\n")
    shutil.copy(tmp_path / "planted.py", run)
    done = inside("translate.py", str(run))
    assert_one_line(done, "translate.py")
    assert str(run) in done.stderr
    assert message in done.stderr
    assert not planted.exists()
    assert not (run / "ran").exists()


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose guide is its author's own."""
    top = tmp_path_factory.mktemp("own")
    (top / "planted.py").write_text(GUIDE)
    words = [*TINY, *SHORT, "--latents=logits", "--guide=planted:Sharper", "--guide.start=0.7"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(top)
        succeed("run.py", *words, "--out", str(top / "run"))
    sys.modules.pop("planted", None)
    return top / "run"


@pytest.mark.parametrize("option", ["--trust", "--guide"])
def test_a_class_that_the_reader_names_is_his_to_import(
    own_run: Path, planted: Path, option: str
) -> None:
    assert_one_line(inside("translate.py", str(own_run), text="the dog\n"), "translate.py")
    assert not planted.exists()
    words = (str(own_run), option, "planted:Sharper")
    assert succeed("translate.py", *words, text="the dog\n").stdout.count("\n") == 1
    assert planted.exists()


def test_the_guide_of_a_new_run_is_trusted_in_the_one_it_starts_with(
    own_run: Path, tmp_path: Path, planted: Path
) -> None:
    words = [*TINY, *SHORT, "--latents=logits", f"--start={own_run}", f"--out={tmp_path / 'out'}"]
    for named in ([], ["--guide", "planted:Sharper"], ["--trust", "planted:Sharper"]):
        settings, options, _ = read_settings([*words, *named], "run.py", "")
        assert planted.exists() == ("--guide" in named)
        if named:
            begun = load_initial_run(settings, name_trusted(settings, options.trust))
            assert begun is not None
            assert type(begun.guide).__name__ == "Sharper"
            planted.unlink()
        else:
            with pytest.raises(ValueError, match="is none of this library's"):
                load_initial_run(settings, name_trusted(settings, options.trust))
        sys.modules.pop("planted", None)


def test_options_annotated_as_texts_are_read_from_a_folder(
    own_run: Path, tmp_path: Path, planted: Path
) -> None:
    run = copied(own_run, tmp_path)
    say(run, guide={**TRUSTED, "name": "c.d", "net": 3})
    succeed("translate.py", str(run), "--trust", "planted:Sharper", text="the dog\n")


def test_nothing_is_written_where_a_folder_says(tmp_path: Path) -> None:
    """A run's cache is read by those who only look at the run, and not made by them."""
    path = tmp_path / "cache"
    PythonDocs(cache=str(path)).load(keep=False)
    assert not path.exists()


@pytest.mark.parametrize("name", ["pandas", "json"])
def test_a_loader_that_unpickles_or_reads_whatever_folder_this_is_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^path must be a folder .*, got .*'{name}', which would"):
        load_pairs("mine", "train", "en", "de", path=name)
