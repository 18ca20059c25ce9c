"""Settings: plain values that read and write a file, each by its own type."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from latentheads.alignment.options import AlignmentOptions
from latentheads.corpora.data import Data
from latentheads.runs.pairs import ClassSpec
from latentheads.runs.recipes import class_path
from latentheads.runs.settings import Settings, complete_options, trusted_paths
from latentheads.training.options import Training
from tests.experiments.programs import ROOT
from tests.typechecking import unchecked

PRESETS = sorted((ROOT / "experiments" / "presets").glob("*.yaml"))


def refused(**said: Any) -> str:
    with pytest.raises(ValueError) as caught:
        Settings.from_options(said)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(settings: Settings) -> Settings:
    return Settings.from_options(yaml.safe_load(settings.to_yaml()))


def test_what_is_written_is_read_the_same() -> None:
    settings = Settings(
        guide=ClassSpec("autoregressive", {"form": "inverse"}),
        prior=ClassSpec("cascaded", {"hidden": 2}),
        data=Data(tasks="velu,tamir", task_sizes=(3, 4)),
        training=Training(steps=7, clip=1e-5),
        disagreement="output",
        latent="decoder-self,decoder-cross",
    )
    again = written(settings)
    assert again.to_yaml() == settings.to_yaml()
    assert again.data == settings.data
    assert again.training.clip == 1e-5
    assert (again.prior_name, again.guide_name) == ("cascaded", "autoregressive")
    assert again.chains == ("decoder-self", "decoder-cross")
    assert again.disagreement_term == settings.disagreement_term is not None


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_is_read_as_the_command_line_reads_it(path: Path) -> None:
    from latentheads.experiments.cli.options import read_settings

    mine = Settings.read(path)
    theirs, _ = read_settings(["--config", str(path)], "", "")
    assert theirs.to_yaml() == mine.to_yaml()


def test_the_command_line_reads_what_the_library_writes(tmp_path: Path) -> None:
    from latentheads.experiments.cli.options import read_settings

    settings = Settings(guide=ClassSpec("mean-field"), seed=3, training=Training(steps=9))
    (tmp_path / "c.yaml").write_text(settings.to_yaml())
    words = ["--config", str(tmp_path / "c.yaml")]
    again, _ = read_settings(words, "", "")
    assert again.to_yaml() == settings.to_yaml()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"width": "wide"}, "width must be a whole number, got 'wide'"),
        ({"width": True}, "width must be a whole number, got True"),
        ({"width": 8.0}, "width must be a whole number, got 8.0"),
        ({"dropout": "x"}, "dropout must be a number, got 'x'"),
        ({"dropout": "nan"}, "dropout must be a number, got 'nan'"),
        ({"joint": 1}, "joint must be true or false, got 1"),
        ({"data": 3}, "data must be a text, got 3"),
        ({"cutoffs": [3, "x"]}, "cutoffs must be a list of whole numbers, got [3, 'x']"),
        ({"norm": "both"}, "norm must be one of post, pre; got 'both'"),
        ({"train": "none"}, "train must be one of all, adapters, guide; got 'none'"),
        ({"wdith": 8}, "unknown option 'wdith': did you mean width?"),
        ({"seed": -1}, "seed must lie between 0 and 2^63, got -1"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"train": "adapters"}, "train adapters needs adapters WIDTH and start RUN"),
        ({"latent": "encoder"}, "unknown attention type 'encoder': choose from encoder-self"),
        ({"guide": "cascadid"}, "unknown guide 'cascadid': choose from tied, mean-field"),
        (
            {"guide": "cascadid"},
            "selection, subset, group, static, or module:Class for your own",
        ),
        ({"prior": "damped"}, "released, tied, or module:Class for your own"),
        ({"recipe": "group"}, "recipe 'group' is a law of selection alone: use guide group"),
        ({"recipe": "codda"}, "unknown recipe 'codda': choose from autoregressive"),
        ({"prior": "delta", "guide": "cascaded"}, "prior 'delta' has no noise: use guide tied"),
        ({"gates": "all", "select": "group"}, "heads are either selected or gated"),
        ({"corpus": "mine"}, "corpus: choose from by hand, got mine"),
        ({"unused": [3]}, "unused must be options with their values, got [3]"),
        ({"unused": {"wdith": 8}}, "unknown option 'wdith': did you mean width?"),
    ],
)
def test_a_mistake_names_the_option_and_what_is_accepted(
    said: dict[str, Any], message: str
) -> None:
    assert message in refused(**said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hiden": 3}, "guide 'cascaded' has no option 'hiden'; it has hidden, link, scale,"),
        ({"hidden": "x"}, "guide.hidden must be a whole number, got 'x'"),
        ({"hidden": 1.5}, "guide.hidden must be a whole number, got 1.5"),
    ],
)
def test_options_of_a_guide_are_its_own(options: dict[str, Any], message: str) -> None:
    said = {"class_path": "latentheads.guides.cascaded.Cascaded", "init_args": options}
    assert message in refused(guide=said)


def test_a_number_that_yaml_takes_for_a_text_is_one() -> None:
    said = yaml.safe_load("learning_rate: 1e-3\ndropout: 0\n")
    training = Settings.from_options(said)
    assert training.training.learning_rate == 1e-3
    assert type(training.network.dropout) is float


def test_another_order_and_what_is_left_at_its_default_are_the_same_run() -> None:
    short = {"guide": "cascaded", "steps": 5}
    long = yaml.safe_load(Settings(training=Training(steps=5)).to_yaml())
    assert complete_options(short) == complete_options(dict(reversed(long.items()))) == long
    assert complete_options({"a": 1}) == {"a": 1}


def test_a_corpus_made_by_hand_is_called_so() -> None:
    data = Data(data="by hand", task="language-model", block=7)
    settings = Settings(data=data)
    said = yaml.safe_load(settings.to_yaml())
    assert said["corpus"] == "by hand"
    assert "data" not in said
    assert written(settings).in_memory
    assert written(settings).data.block == 7


def test_a_class_that_is_not_trusted_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from latentheads.guides import Tied\nclass Mine(Tied):\n    pass\n"
    (tmp_path / "my_tied.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    said = {"guide": "my_tied:Mine"}
    assert "trusted my_tied:Mine" in refused(**said)
    assert "my_tied" not in sys.modules
    assert Settings.from_options(said, "my_tied:Mine").guide_name == "my_tied:Mine"
    sys.modules.pop("my_tied")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("a: [")
    for path, said in ((tmp_path, "no file of text$"), (tmp_path / "README.md", "not YAML")):
        with pytest.raises(ValueError, match=f"^{path} cannot be read: {said}"):
            Settings.read(path)


def test_what_is_trusted_is_a_text() -> None:
    with pytest.raises(ValueError, match=r"^trusted must be a text, .*, got \['my_tied:Mine'\]$"):
        unchecked(trusted_paths)(["my_tied:Mine"])


def test_what_acts_on_nothing_is_written_down_apart_and_does_so_when_it_is_read() -> None:
    data = Data(data="own", source="en", tasks="de")
    settings = replace(Settings(data=data), unused={"momentum": 0.5, "references": "refs"})
    said = yaml.safe_load(settings.to_yaml())
    assert (said["momentum"], said["unused"]) == (0.99, settings.unused)
    again = written(settings)
    assert (again.data, again.training.momentum) == (data, 0.99)
    assert again.to_yaml() == settings.to_yaml()


def test_what_acts_on_nothing_is_compared_side_by_side_with_what_acts() -> None:
    said = {"data": "own", "source": "en", "tasks": "de"}
    idle = {"references": "refs", "max_source": 3, "momentum": 0.5}
    now = complete_options({**said, "unused": idle})
    assert now == {**now, **idle}
    with pytest.raises(ValueError, match="references"):
        Settings.from_options({**said, **idle})


def test_a_prior_of_logits_has_no_alignments_beside_it() -> None:
    assert Settings().recipe == "cascaded+alignments"
    assert Settings(prior=ClassSpec("independent")).recipe == "cascaded"
    both = Settings(prior=ClassSpec("independent"), alignment=AlignmentOptions(1))
    assert both.recipe == "independent+cascaded+alignments"
    assert Settings.from_options({"recipe": "tied+alignments"}).alignment.alignments == 2


@pytest.mark.parametrize(
    ("said", "laws"),
    [
        ({}, "alignments with prior cascaded, guide cascaded; attention without noise"),
        ({"prior": "independent", "guide": "mean-field"}, "prior independent, guide mean-field"),
        (
            {"prior": "independent", "alignments": 1},
            "alignments with prior cascaded, guide cascaded; logits independent",
        ),
    ],
)
def test_prior_and_guide_are_told_in_a_line(said: dict[str, Any], laws: str) -> None:
    assert Settings.from_options(said).laws == laws


def test_the_title_of_a_picture_names_recipe_corpus_and_seed() -> None:
    settings = Settings.from_options({"language": "tamir", "seed": 3})
    assert settings.title == "cascaded+alignments, grammar-tamir, seed 3"
    assert settings.title == settings.title_of(settings.data.name)
    assert "a corpus made by hand" in replace(settings, data=Data(data="by hand")).title
    tasks = Data(data="grammar", tasks="velu,tamir,ostan,korin")
    assert "grammar 4 tasks, seed 3" in replace(settings, data=tasks).title
    assert "en-velu,en-tamir" in replace(settings, data=replace(tasks, tasks="velu,tamir")).title


def test_a_module_that_fails_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails_here.py").write_text("raise RuntimeError('one\\ntwo')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^guide 'fails_here:G' cannot be imported: one two$"):
        class_path("guide", "fails_here:G")


def test_a_guide_alone_is_not_trained_by_what_trains_the_model() -> None:
    said = {"train": "guide", "start": "before", "guide": "cascaded"}
    line = refused(**said, objective="marginal")
    assert line.startswith("objective marginal trains the model, which stays as it is")
    assert Settings.from_options(said | {"objective": "sampled"}).train == "guide"
