"""A run folder is data: whoever wrote it, opening it imports and runs nothing."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from latentheads.corpora.hub import load_pairs
from latentheads.data import PythonDocs
from latentheads.experiments.cli.options import read_settings
from latentheads.options import merge
from latentheads.runs.trainer import name_trusted
from latentheads.runs.warm_start import load_initial_run
from latentheads.training import checkpoints
from tests.experiments.programs import SHORT, TINY, assert_one_line, assert_refused, inside, succeed

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
    ({"guide": "planted:Sharper+group"}, "guide must be one of tied, "),
    ({"guide": "os:system"}, "guide 'os:system' is none of this library's"),
    ({"latents": "alignments+logits", "logits": {"prior": "planted:Sharper"}}, "is none of this"),
    ({"guide": {"class": "../planted:Sharper"}}, "guide must be one of tied, "),
    ({"guide.class": "planted:Sharper"}, "guide.class is not an option"),
    ({"guide+": {"class": "planted:Sharper"}}, "guide+ is not an option"),
    ({"guide.help": "planted:Sharper"}, "guide.help is not an option"),
    ({"guide": {"class": "cascaded", "net": "planted:Sharper"}}, "net is not an option"),
    ({"guide": {"class": "cascaded", "hidden": "planted:Sharper"}}, "must be a whole number"),
    ({"guide": {"class": {"class": "planted:Sharper"}}}, "guide must be one of tied, "),
    ({"guide": ["planted:Sharper"]}, "guide must be one of tied, "),
    ({"guide": "planted.Sharper"}, "guide must be one of tied, "),
    ({"guide": "other.yaml"}, "guide must be one of tied, "),
    ({"config": "other.yaml"}, "config is not an option"),
    ({"config": {"guide": "planted:Sharper"}}, "config is not an option"),
    ({"trust": "planted:Sharper"}, "trust is not an option"),
    ({"preset": "grammar"}, "preset is not an option"),
    ({"network": {"width": {"class": "planted:Sharper"}}}, "network.width must be a whole number"),
    ({"data": {"class": "planted.Sharper"}}, "data must be one of grammar, "),
    ({"data": {"class": "planted:Sharper"}}, "data 'planted:Sharper' is none of this library's"),
    ({"train": {"optimizer": "planted:Sharper"}}, "train.optimizer must be one of muon, adamw"),
    ({"network": {"width": 2**16}}, "belongs to another model: it holds"),
    ({"network": {"layers": 10**2}}, "best.safetensors belongs to another model: it has no"),
    ({"network": {"feed_forward": 10**30}}, "feed_forward must be at most 262,144, got 1,000"),
    ({"guide": {"class": "cascaded", "hidden": 10**20}}, "cannot be loaded"),
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class": "planted:Other"}, "guide 'planted:Other' is none of this library's"),
        ({"class": "os:system"}, "guide 'os:system' is none of this library's"),
        (TRUSTED | {"net.class": 3}, "net.class is not an option"),
        (TRUSTED | {"start": {"class": "os:system"}}, "guide.start must be a number"),
    ],
)
def test_to_trust_a_class_is_to_trust_no_other(
    own_run: Path, tmp_path: Path, planted: Path, options: dict[str, Any], message: str
) -> None:
    run = copied(own_run, tmp_path)
    say(run, guide=options)
    assert_refused("translate.py", str(run), "--trust", "planted:Sharper", says=message)


@pytest.mark.parametrize("named", ["planted", "planted/Sharper", "a b:C", "planted:Sharper,"])
def test_what_cannot_be_trusted_is_said(tiny_run: Path, named: str) -> None:
    assert_refused("translate.py", str(tiny_run), "--trust", named, says="must be module:Class")


def test_options_annotated_as_texts_are_read_from_a_folder(
    own_run: Path, tmp_path: Path, planted: Path
) -> None:
    run = copied(own_run, tmp_path)
    say(run, guide={**TRUSTED, "name": "c.d", "net": 3})
    succeed("translate.py", str(run), "--trust", "planted:Sharper", text="the dog\n")


LINES = "\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 99))
NESTED = '{"kind": "tagged", "tags": [], "plain": ' * 99 + "{}" + "}" * 99
BOMBS: list[tuple[str, str, str]] = [
    ("config.yaml", f"a0: &a0 [1]\n{LINES}\n", "alias *a0: aliases are not accepted"),
    ("config.yaml", "seed: &a [*a]\n", "alias *a: aliases are not accepted"),
    ("config.yaml", "seed: " + "[" * 5000, "lists and mappings may be nested"),
    ("config.yaml", "seed: 8 #" + "." * 2**16, "at most 65,536 bytes"),
    ("config.yaml", "seed: " + "9" * 5000, "Exceeds the limit"),
    ("config.yaml", "seed: !!python/name:os.system", "only plain values are accepted"),
    ("processor.json", "[" * 99999, "lists and mappings may be nested"),
    ("vocabulary.json", "[" * 99999, "lists and mappings may be nested"),
    ("vocabulary.json", f'{{"joint": {NESTED}}}', "lists and mappings may be nested"),
    ("vocabulary.json", '{"target": {"kind": "words", "words": {}}}', "a list of strings"),
    (
        "heads.json",
        "[" * 99999,
        "heads.json cannot be read: lists and mappings may be nested at most 32",
    ),
    ("heads.json", '{"encoder.0.self": [1e999]}', "indices of heads by block"),
    ("heads.json", '{"encoder.0.self": "01"}', "indices of heads by block"),
    ("heads.json", '{"encoder.0.self": [0, 99]}', "has 2 heads, got head 99"),
    ("heads.json", "[]", "indices of heads by block"),
]


@pytest.mark.parametrize(("name", "text", "message"), BOMBS)
def test_a_bomb_is_refused_before_it_is_built(
    tiny_run: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    run = copied(tiny_run, tmp_path)
    (run / name).write_text(text)
    assert_refused("translate.py", str(run), says=message)


def test_weights_that_nobody_trained_are_refused(tiny_run: Path, tmp_path: Path) -> None:
    run = copied(tiny_run, tmp_path)
    path = run / "checkpoints" / "best.safetensors"
    tensors, facts = checkpoints.load(path)
    name = "model.source_embedding.table.weight"
    statement = json.dumps(facts)
    for value, message in (
        (torch.full_like(tensors[name], torch.nan), f"'{name}' is not finite"),
        (tensors[name].long(), f"{name} is torch.int64, not torch.float32"),
        (tensors[name].bool(), f"{name} is torch.bool, not torch.float32"),
        (tensors[name].to(torch.complex64), f"'{name}' is torch.complex64"),
    ):
        spoilt = {**tensors, name: value}
        checksum = checkpoints._checksum(spoilt, statement)
        save_file(
            spoilt, path, {"format": checkpoints.FORMAT, "facts": statement, "checksum": checksum}
        )
        assert_refused("translate.py", str(run), says=message, text="the dog\n")


def test_nothing_is_written_where_a_folder_says(tmp_path: Path) -> None:
    """A run's cache is read by those who only look at the run, and not made by them."""
    path = tmp_path / "cache"
    PythonDocs(cache=str(path)).load(keep=False)
    assert not path.exists()


def test_a_loader_that_unpickles_is_refused() -> None:
    with pytest.raises(ValueError, match="pandas reads pickles, which are programs"):
        load_pairs("mine", "train", "en", "de", path="pandas")
