"""A run without a command line: trained from objects, gone on with, opened again."""

from __future__ import annotations

import json
import platform
import shutil
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints
from unittest.mock import patch

import numpy as np
import pyro
import pytest
import torch
import yaml
from torch import nn

import latentheads as lh
from latentheads.corpora import Corpus
from latentheads.data import Grammar, GrammarText
from latentheads.guides import Cascaded, MeanField
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.logits.latent import Logits
from latentheads.latents.logits.options import LogitsOptions
from latentheads.latents.registry import LATENTS
from latentheads.latents.selection.options import SelectionOptions
from latentheads.models import LanguageModel, Translation, make_prior
from latentheads.models.adapters import Adapters
from latentheads.models.network import Network
from latentheads.pruning import remove_heads
from latentheads.runs.pairs import GuideSpec
from latentheads.runs.results import Results
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from latentheads.training import checkpoints
from latentheads.training.callbacks import Callback
from latentheads.training.checkpoints import weights
from latentheads.training.options import Training
from latentheads.training.progress import ProgressBar
from tests.experiments.breaks import stopped_in
from tests.experiments.programs import assert_refused, succeed
from tests.latentheads.latents.tempered import NAME, TemperatureOptions
from tests.terminal import showing_progress
from tests.typechecking import unchecked

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

SIZES: dict[str, Any] = {"width": 8, "feed_forward": 8, "heads": 2, "layers": 1}
SHORT: dict[str, Any] = {
    "steps": 3,
    "report_every": 2,
    "tokens": 128,
    "num_samples": 2,
    "quiet": True,
}
SHORT["decoding"] = lh.inference.Decoding(max_new_tokens=8)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Grammar(sentences=60, held_out=12).load()


def trainer(corpus: Corpus, out: Path | None, layers: int = 1, **options: Any) -> lh.Trainer:
    torch.manual_seed(0)
    sizes = {**SIZES, "layers": layers}
    model = Translation.of(corpus, latents=[AlignmentOptions()], **sizes)
    return lh.Trainer(model, Cascaded(model), corpus, out=out, **{**SHORT, **options})


def test_a_loop_over_seeds_that_are_not_given_is_no_second_run(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = trainer(corpus, out=None)
    assert first.fit() is not None
    assert [first.model.training, first.guide.training] == [False, False]
    first.model.train()
    assert first.fit() is first.fit()
    assert not first.model.training
    with pytest.raises(ValueError, match=r"is the finished run of another Trainer of this"):
        trainer(corpus, out=None).fit()
    with pytest.raises(ValueError, match=r"is the finished run of another Trainer of this"):
        trainer(corpus, out=None, steps=5).fit()
    assert trainer(corpus, out=None, overwrite=True).fit(steps=2) is not None
    assert trainer(corpus, out=None, seed=1).fit() is not None
    for out, message in (("", "name a folder, got ''"), ("a\udcff", r"be UTF-8, got 'a\\udcff'")):
        with pytest.raises(ValueError, match=f"^out must {message}$"):
            lh.Trainer(first.model, first.guide, corpus, out=out, **SHORT)
    assert trainer(corpus, out=first.folder.path).fit() is not None


def test_a_loss_that_cannot_take_a_pair_is_refused_before_a_file_is_written(
    corpus: Corpus, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"^TraceMeanField_ELBO cannot train this pair"):
        trainer(corpus, tmp_path / "run", loss="TraceMeanField_ELBO").fit()
    assert not (tmp_path / "run").exists()


def test_files_that_are_removed_during_training_are_written_again(
    corpus: Corpus, tmp_path: Path
) -> None:
    class Removing(Callback):
        def on_train_end(self) -> None:
            for name in ("config.yaml", "vocabulary.json"):
                (tmp_path / name).unlink()

    trainer(corpus, tmp_path, callbacks=[Removing()]).fit()
    assert lh.load_run(tmp_path).results is not None


def test_another_thread_waits_until_the_reported_weights_are_back(
    corpus: Corpus, tmp_path: Path
) -> None:
    threads, looks = ThreadPoolExecutor(1), list[Future[Any]]()

    class Looking(Callback):
        def on_train_end(self) -> None:
            looks.append(threads.submit(lh.evaluate, run.model, run.guide, corpus.valid, seed=0))
            wait(looks, timeout=0.2)

    with threads:
        run = trainer(corpus, tmp_path, callbacks=[Looking()], learning_rate=9.0, report_every=1)
        run.fit()
    assert run.results.reported_step < 3, "the last weights are not those of the report"
    expected = lh.evaluate(run.model, run.guide, corpus.valid, seed=0)
    assert looks[0].result().elbo == expected.elbo


def timeless(results: Results | None) -> dict[str, Any]:
    assert results is not None
    record = json.loads(json.dumps(results.to_json()))
    record["test"] = [row for row in record["test"] if row["name"] != "sentences_per_second"]
    return {name: value for name, value in record.items() if name != "tokens_per_second"}


def same(one: Any, other: Any) -> bool:
    mine, theirs = (weights(model=run.model, guide=run.guide) for run in (one, other))
    return mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)


@pytest.fixture(scope="module")
def finished(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    out = tmp_path_factory.mktemp("trainer") / "run"
    trainer(corpus, out).fit()
    torch.set_default_dtype(before)
    return out


def test_a_run_from_objects_is_that_of_the_command_line(
    corpus: Corpus, tmp_path: Path, tiny_run: Path
) -> None:
    """The seed of the weights is the program's; everything else is the same."""
    out = tmp_path / "run"
    mine = timeless(trainer(corpus, out, layers=2, steps=2).fit())
    assert mine == timeless(lh.load_run(tiny_run).results)
    assert (out / "config.yaml").read_text() == (tiny_run / "config.yaml").read_text()
    names = [sorted(path.name for path in one_path.iterdir()) for one_path in (out, tiny_run)]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("part", "kept"), [("train", False), ("test", False), ("test", True)], ids=str
)
def test_a_finished_run_is_of_the_text_that_it_was_trained_on(
    corpus: Corpus, finished: Path, tmp_path: Path, part: str, kept: bool
) -> None:
    """Also where its last checkpoint was removed, as to save room."""
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    texts = out / "corpus.json"
    texts.write_text(json.dumps(json.loads(texts.read_text()) | {part: "0"}))
    if not kept:
        (out / "checkpoints" / "last.safetensors").unlink()
    with pytest.raises(ValueError, match=f"another text: that of {part} has changed since"):
        trainer(corpus, out)


def test_a_program_opens_what_the_library_wrote(finished: Path) -> None:
    done = succeed("translate.py", str(finished), text="the dog sleeps\n")
    assert done.stdout.count("\n") == 1
    words = ["--config", str(finished / "config.yaml"), "--out", str(finished)]
    assert "is finished; --overwrite trains it anew" in succeed("run.py", *words).stdout


def test_a_loaded_run_has_all_that_was_written(corpus: Corpus, finished: Path) -> None:
    run = lh.load_run(finished, device="cpu")
    assert run.results is not None
    assert run.results.to_json() == json.loads((finished / "results.json").read_text())
    assert [record["step"] for record in run.metrics] == [2, 3]
    assert repr(run).startswith(f"Run({str(finished)!r}: {run.settings.title}, step ")
    assert "\n" not in repr(run)
    assert run.corpus.target.to_json() == corpus.target.to_json()
    assert run.evaluate("test").elbo == pytest.approx(run.results.test.elbo, abs=1e-6)
    lines = ["the dog sleeps", "", "the old cat that sees the dog sleeps"]
    plain = run.translate(lines)
    assert [bool(line) for line in plain] == [True, False, True]
    assert len(run.translate(lines, num_beams=2, max_new_tokens=3)) == 3
    with pytest.raises(ValueError, match="is a translation model"):
        run.generate("the dog")
    with pytest.raises(ValueError, match=r"^part must be one of train, valid, test; got 'dev'$"):
        unchecked(Run.evaluate)(run, "dev")


def test_a_run_in_the_same_folder_is_the_same_run(
    corpus: Corpus, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    again = trainer(corpus, finished)
    assert again.results is not None
    assert timeless(again.fit()) == timeless(lh.load_run(finished).results)
    assert (
        capsys.readouterr().out
        == f"{finished} is finished; --overwrite (overwrite=True in Python) trains it anew\n"
    )
    assert same(again, lh.load_run(finished))
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(ValueError, match=r"other options .seed 0 there, 1 here.: choose another o"):
        trainer(corpus, finished, seed=1)


def broken_off(corpus: Corpus, out: Path, last: int = 3) -> lh.Trainer:
    """A trainer whose fit was stopped behind an update; a checkpoint is kept of the second."""
    new_trainer = trainer(corpus, out)
    with stopped_in(last), pytest.raises(KeyboardInterrupt):
        new_trainer.fit()
    return new_trainer


def test_a_run_that_was_stopped_goes_on_to_the_same_end(
    corpus: Corpus, finished: Path, tmp_path: Path
) -> None:
    broken_off(corpus, tmp_path / "run")
    again = trainer(corpus, tmp_path / "run")
    assert again.engine.step == 2
    title = "cascaded+alignments, grammar-mirel, seed 0, step 2 of"
    assert repr(again).startswith(f"Trainer({str(tmp_path / 'run')!r}: {title}")
    assert timeless(again.fit()) == timeless(lh.load_run(finished).results)


@pytest.mark.parametrize("last", [1, 3])
def test_a_training_that_was_broken_off_is_fitted_again(
    corpus: Corpus, finished: Path, tmp_path: Path, last: int
) -> None:
    """In the same notebook, before or after the first evaluation; nobody knows the seed."""
    broken_trainer = broken_off(corpus, tmp_path / "run", last)
    broken_off(corpus, tmp_path / "run", last)  # the folder is free though the other one lives
    assert timeless(broken_trainer.fit()) == timeless(lh.load_run(finished).results)


def test_steps_of_a_call_stand_in_place_of_those_of_the_settings(
    corpus: Corpus, tmp_path: Path
) -> None:
    """Fewer too, before the first step; a later call has them."""
    made = trainer(corpus, tmp_path, steps=24)
    results = made.fit(2)
    assert results is made.fit()
    assert (results.steps, made.settings.train.steps) == (2, 2)


def test_a_finished_run_is_given_more_updates(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one trainer, on a new one, and stopped in between: always the same end."""
    plan: dict[str, Any] = {"schedule": "inverse-sqrt", "warmup_steps": 2}
    one = trainer(corpus, tmp_path / "one", **plan)
    one.fit()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    actual = timeless(one.fit(steps=6))
    assert (actual["steps"], actual["reported_step"]) == (6, 6)
    assert "3 steps are done, and 3 follow; the learning rate falls by the" in (
        capsys.readouterr().err
    )
    assert yaml.safe_load((tmp_path / "one" / "config.yaml").read_text())["train"]["steps"] == 6
    two = trainer(corpus, tmp_path / "two", steps=6, **plan)
    assert two.results is None
    assert timeless(two.fit()) == actual
    whole = trainer(corpus, tmp_path / "whole", steps=6, **plan)
    whole.train(quiet=True)
    last = [checkpoints.load(run.folder.last)[0] for run in (one, whole)]
    assert all(torch.equal(last[0][n], last[1][n]) for n in last[0] if n.startswith("model."))
    with pytest.raises(ValueError, match=r"other options .train\.steps 6 there, 5 here."):
        one.fit(steps=5)


def test_more_updates_of_a_run_that_patience_stopped_outlast_a_break(
    corpus: Corpus, tmp_path: Path
) -> None:
    """Broken off before the next checkpoint."""
    stop = patch.object(ProgressBar, "on_step_end", side_effect=KeyboardInterrupt)
    plan = {"report_every": 1, "patience": 1, "learning_rate": 1e-30}
    trainer(corpus, tmp_path / "run", steps=5, **plan).train(quiet=True)
    with stop, pytest.raises(KeyboardInterrupt):
        trainer(corpus, tmp_path / "run", steps=7, **plan).fit()
    again = trainer(corpus, tmp_path / "run", steps=7, **plan)
    assert again.engine.step == 2
    again.train(quiet=True)
    assert again.engine.step == 3


def pretend_process(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    """Lets a trainer take itself for one of two processes, whose group is there."""
    process = SimpleNamespace(num_processes=2, process_index=index, device=torch.device("cpu"))
    monkeypatch.setattr("latentheads.runs.trainer.make_accelerator", lambda *_: process)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)


def test_several_processes_train_one_run(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it their process group is gone."""
    pretend_process(monkeypatch, 0)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: False)
    with pytest.raises(ValueError, match=r"^a program of several processes trains one run"):
        trainer(corpus, tmp_path / "run")


def test_no_process_fits_again_after_their_group_has_ended(
    corpus: Corpus, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_process(monkeypatch, 0)
    first = trainer(corpus, finished)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: False)
    with pytest.raises(ValueError, match=r"^a program of several processes trains one run"):
        first.fit()


def test_results_name_what_computed_them(finished: Path) -> None:
    versions = lh.load_run(finished).results.versions
    assert versions["python"] == platform.python_version()
    assert versions["torch"] == torch.__version__
    assert versions["pyro-ppl"] == pyro.__version__
    assert versions["latentheads"] == lh.__version__
    assert (versions["device"], versions["precision"]) == ("cpu", "fp32")
    assert versions["threads"] == str(torch.get_num_threads())


def test_a_type_checker_takes_results_for_there() -> None:
    """``trainer.fit().test`` and ``run.results.test`` are no errors to it."""
    for function in (lh.Trainer.fit, Run.__dict__["results"].func):
        assert get_type_hints(function)["return"] == Results | Any


def test_the_first_process_alone_has_the_results_of_a_finished_run(
    corpus: Corpus, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_process(monkeypatch, 1)
    assert trainer(corpus, finished).fit() is None


@pytest.mark.parametrize(("rank", "quiet", "number"), [(0, False, 1), (0, True, 0), (1, False, 0)])
def test_the_first_process_alone_says_what_was_left_out_unless_it_is_quiet(
    rank: int,
    quiet: bool,
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    for part in ("train", "valid", "test"):
        for side in ("en", "de"):
            (tmp_path / f"{part}.{side}").write_text("a b\n\n" if part == "train" else "a\n")
    monkeypatch.setenv("RANK", str(rank))
    data = {"class": "pairs", "folder": str(tmp_path), "source": "en", "target": "de"}
    with showing_progress() as stream:
        lh.Trainer.of(Settings.from_options({"data": data}), out=tmp_path / "run", quiet=quiet)
    assert capsys.readouterr().out.count("1 of 2 training pairs kept") == number
    assert ("learning subwords" in stream.getvalue()) == bool(number)


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_shows_how_far_the_report_is_unless_it_is_quiet(
    corpus: Corpus, quiet: bool, tmp_path: Path
) -> None:
    with showing_progress() as stream:
        trainer(corpus, tmp_path / "run", quiet=quiet).fit()
    for stage in ("evaluating", "decoding"):
        assert (f"{stage}: " in stream.getvalue()) != quiet


def test_more_updates_that_are_refused_change_nothing(
    corpus: Corpus, finished: Path, tmp_path: Path
) -> None:
    """An unfinished run is finished first."""
    broken_off(corpus, tmp_path / "run")
    with pytest.raises(ValueError, match="has done 2 of its 3 steps: more can be given to a f"):
        trainer(corpus, tmp_path / "run", steps=6)
    broken_trainer = trainer(corpus, tmp_path / "run")
    with pytest.raises(ValueError, match="has done 2 of its 3 steps"):
        broken_trainer.fit(steps=6)
    assert timeless(broken_trainer.fit()) == timeless(lh.load_run(finished).results)


def test_weights_whose_checkpoint_is_lost_do_not_begin_at_step_0(
    corpus: Corpus, tmp_path: Path
) -> None:
    broken_trainer = broken_off(corpus, tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "renamed")
    with pytest.raises(ValueError, match=r"has lost the checkpoint .* are of step 3: begin with"):
        broken_trainer.fit()
    assert not (tmp_path / "run").exists()


def test_settings_take_the_data_of_the_corpus_that_is_given(tmp_path: Path) -> None:
    corpus = Grammar(sentences=60, held_out=12, language="tamir").load()
    settings = Settings.from_options({"recipe": "transformer", "train": {"steps": 2}})
    made = lh.Trainer.of(settings, corpus, out=tmp_path / "run")
    assert made.settings.data == corpus.data
    own = lh.Trainer.of(made.settings, replace(corpus, data=None), out=tmp_path / "own").settings
    assert own.in_memory
    with pytest.raises(ValueError, match="data in-memory is a corpus that no options make: give c"):
        lh.Trainer.of(own, out=tmp_path / "none")


def test_a_corpus_that_was_cut_is_asked_for(corpus: Corpus, tmp_path: Path) -> None:
    cut = replace(corpus, train=corpus.train.first(20))
    trainer(cut, tmp_path / "run").fit()
    with pytest.raises(ValueError, match="text of train has changed since; one that was cut by ha"):
        lh.load_run(tmp_path / "run").evaluate()
    assert lh.load_run(tmp_path / "run", corpus=cut).evaluate("valid").tokens


def test_a_corpus_made_by_hand_trains_and_is_asked_for(tmp_path: Path) -> None:
    corpus = replace(GrammarText(sentences=60, held_out=12).load(), data=None)
    model, out = LanguageModel.of(corpus, latents=[LogitsOptions()], **SIZES), tmp_path / "run"
    with pytest.raises(
        ValueError, match=r"^decode.max_new_tokens is for translation or speech, and"
    ):
        lh.Trainer(model, MeanField(model), corpus, out=out, **SHORT)
    short = {name: value for name, value in SHORT.items() if name != "decoding"}
    results = lh.Trainer(model, MeanField(model), corpus, out=out, **short).fit()
    assert results is not None
    assert "class: in-memory\n" in (out / "config.yaml").read_text()
    run = lh.load_run(out)
    assert run.generate("the", max_new_tokens=4).startswith("the")
    assert len(run.generate("the", num_return_sequences=2, max_new_tokens=4)) == 2
    with pytest.raises(ValueError, match=r"trained on a corpus in memory: give corpus= in Python$"):
        run.evaluate()
    given = lh.load_run(out, corpus=corpus)
    assert given.evaluate("test").elbo == pytest.approx(results.test.elbo, abs=1e-6)
    other = GrammarText(sentences=9, held_out=3).load()
    with pytest.raises(ValueError, match="another vocabulary"):
        lh.load_run(out, corpus=other)
    says = "data in-memory is a corpus that no options make"
    assert_refused("run.py", "--config", str(out / "config.yaml"), says=says)


class Own(Cascaded):
    """A guide that calls its model otherwise."""

    def __init__(self, net: Any, start: float = 0.0, hook: Any = None) -> None:
        super().__init__(net)


def test_a_guide_may_call_its_model_as_it_likes(corpus: Corpus) -> None:
    guide = Own(net=Translation.of(corpus, latents=[LogitsOptions()], **SIZES), start=1.0)
    assert guide.config == {"start": 1.0}
    assert GuideSpec.of(guide).options == {"start": 1.0, "hook": None}


def test_a_part_is_no_corpus_to_train_on(corpus: Corpus) -> None:
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    how = {"train": Training(), "decode": lh.inference.Decoding(), "seed": 0, "num_samples": 1}
    with pytest.raises(ValueError, match=r"^corpus must be a Corpus, .* got Part\(60 sentences"):
        unchecked(Settings.of)(Settings, model, Cascaded(model), corpus.train, **how)


def test_the_path_of_settings_is_none() -> None:
    message = "^settings must be Settings, as Settings.read gives, got 'config.yaml'$"
    with pytest.raises(ValueError, match=message):
        unchecked(lh.Trainer.of)(lh.Trainer, "config.yaml")


def test_a_loss_by_name_stands_in_settings_and_trackers_are_a_list(tmp_path: Path) -> None:
    settings = Settings()
    for options, message in (
        ({"loss": "iwae"}, "^loss stands in settings: give one of both$"),
        ({"trackers": "tensorboard"}, "^trackers must be a list, got 'tensorboard'$"),
    ):
        with pytest.raises(ValueError, match=message):
            unchecked(lh.Trainer.of)(lh.Trainer, settings, out=tmp_path, **options)
    assert not [*tmp_path.iterdir()]


def test_a_network_in_float64_is_opened_as_it_was(corpus: Corpus, tmp_path: Path) -> None:
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES).double()
    mine = lh.Trainer(model, MeanField(model).double(), corpus, out=tmp_path / "run", **SHORT)
    mine.train(quiet=True)
    run = lh.load_run(tmp_path / "run")
    assert same(mine, run)
    assert {parameter.dtype for parameter in run.model.parameters()} == {torch.float64}
    assert len(run.translate(["the cat sleeps"], max_new_tokens=3)) == 1


def test_what_no_folder_can_say_is_refused_before_anything_is_written(
    corpus: Corpus, tmp_path: Path
) -> None:
    class Inner(Cascaded):
        pass

    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    other = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    for guide, options, message in (
        (Cascaded(other), {}, "guide must be one of this model"),
        (Inner(model), {}, "is made inside another class or a function"),
        (Own(model, hook=print), {}, "hook must be a number, a text or a list, got <built-in"),
        (Cascaded(model), {"stpes": 3}, "stpes is not an option: did you mean steps"),
        (Cascaded(model), {"num_samples": 0}, "num_samples must be at least 1, got 0"),
        (Cascaded(model), {"device": "tpu"}, "unknown device 'tpu'"),
        (Cascaded(model), {"out": "/proc/nowhere"}, "cannot write the run folder /proc/nowhere"),
    ):
        with pytest.raises(ValueError, match=message):
            lh.Trainer(model, guide, corpus, **{"out": tmp_path / "run", **SHORT, **options})
    assert not list(tmp_path.iterdir())


class Halved(Translation):
    """A network of the same weights that says something else."""

    def hidden(self, batch: lh.data.Batch, choices: Any = None) -> Any:
        encoded = super().hidden(batch, choices)
        return replace(encoded, states=encoded.states / 2)


def test_a_network_that_no_folder_can_say_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    """Of a class of one's own, pruned, or with a latent that is not said by options."""
    pruned = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    remove_heads(pruned, {pruned.blocks[0].name: [0]})
    for model, message in (
        (Halved.of(corpus, **SIZES), "model must be a Translation or a LanguageModel, got Halved:"),
        (pruned, "model was pruned, and no run folder can say how: train it with lh.fit"),
        (
            Translation.of(corpus, latents=[Logits(make_prior("independent"))], **SIZES),
            "latents: no run folder can name Logits: add its options to LATENTS",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            lh.Trainer(model, Cascaded(model), corpus, out=tmp_path / "run", **SHORT)
    assert not list(tmp_path.iterdir())


def test_a_network_that_its_folder_would_make_otherwise_is_refused(
    corpus: Corpus, tmp_path: Path
) -> None:
    source, target, network = len(corpus.source or ""), len(corpus.target), Network(**SIZES)
    noise, selection = LogitsOptions(blocks="encoder-self"), SelectionOptions(blocks="all")
    make = partial(Translation, source, target, network)
    ngrams = replace(network, mixers="encoder=ngram")
    for model, message in (
        (Translation(source, target + 1, network, [noise]), r"model.output.table.weight has shape"),
        (make([noise], adapters=Adapters(3, sources=2)), r"model.*adapters.* shape \[2, .* \[1, "),
        (
            make([noise, selection], sources=("a", "b")),
            r"guide.selections.encoder_0_self.weight .*: make Translation.of\(corpus\), or use ",
        ),
        (Translation(source, target, ngrams, [noise]), "logits.blocks: no such block"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            lh.Trainer(model, Cascaded(model), corpus, out=tmp_path / "run", **SHORT)
    assert not list(tmp_path.iterdir())


class Counting(Cascaded):
    """Looks at numbers while it is made, as Pyro's flows do."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.shares = nn.Parameter(torch.rand(self.read(torch.arange(3).sum())))

    read = staticmethod(int)


class CountingByNumpy(Counting):
    """The same by way of numpy, which torch refuses with an error of another kind."""

    read = staticmethod(lambda number: int(number.numpy()))


@pytest.mark.parametrize("counting", [Counting, CountingByNumpy])
def test_a_guide_that_looks_at_numbers_while_it_is_made_trains(
    counting: type[Counting], corpus: Corpus, tmp_path: Path
) -> None:
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    mine = lh.Trainer(model, counting(model), corpus, out=tmp_path / "run", **SHORT)
    mine.train(quiet=True)
    assert same(mine, lh.load_run(tmp_path / "run", trusted=f"{__name__}:{counting.__name__}"))


@pytest.mark.parametrize("tasks", [None, "velu,tamir"])
def test_the_report_of_a_latent_that_does_not_decode_is_whole(
    tasks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LATENTS, NAME, TemperatureOptions)
    corpus = Grammar(sentences=40, held_out=10, tasks=tasks).load()
    model = Translation.of(corpus, latents=[TemperatureOptions()], width=8, heads=2, layers=1)
    options: dict[str, Any] = {"steps": 2, "warmup_steps": 1, "num_samples": 2, "quiet": True}
    results = lh.Trainer(model, MeanField(model), corpus, out=tmp_path, **options).fit()
    assert results is not None
    line = f"latents {NAME} run the network, so that decoding needs their decoding_mixture"
    assert results.not_translated == line
    assert not results.missing
    assert f"not in the report: translations: {line}" in str(results)
    assert results.test.elbo is not None
    assert results.test.bleu is None
    assert [scores.bleu for scores in results.tasks.values()] == [None] * (2 if tasks else 0)
    assert lh.load_run(tmp_path).results == results
    assert not (tmp_path / "test.translations.txt").exists()
    again = succeed("run.py", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path))
    assert f"no translations: {line}" in again.stdout


def test_the_penalty_of_gates_is_as_it_was_made(corpus: Corpus, tmp_path: Path) -> None:
    penalty = 500 / corpus.train.tokens
    latents = [LogitsOptions(), GateOptions(penalty=penalty)]
    model = Translation.of(corpus, latents=latents, **SIZES)
    made = lh.Trainer(model, MeanField(model), corpus, out=tmp_path / "run", **SHORT)
    assert made.settings.latents == tuple(latents)
    assert model.l0_penalty is not None
    assert float(model.l0_penalty.value) == pytest.approx(500)
    noise = torch.get_rng_state()
    again = lh.Trainer.of(made.settings, corpus, out=tmp_path / "again")
    assert torch.equal(torch.get_rng_state(), noise), "it begins with its seed and leaves no trace"
    assert again.model.l0_penalty is not None
    assert float(again.model.l0_penalty.value) == pytest.approx(500)


def made(kind: type, **options: Any) -> Any:
    """An object of the library by options of other types than annotated."""
    actual = object.__new__(kind)
    unchecked(kind.__init__)(actual, **options)  # type: ignore[misc]
    return actual


def test_numbers_of_numpy_are_numbers() -> None:
    network = made(Network, width=np.int64(8), dropout=np.float32(0.5))
    assert (network.width, network.dropout) == (8, 0.5)
    settings = made(Settings, seed=np.int64(3), num_samples=np.int32(2), network=network)
    again = Settings.from_options(yaml.safe_load(settings.to_yaml()))
    assert (again.seed, again.num_samples, again.network) == (3, 2, network)


def test_no_does_not_say_yes_to_training_anew(corpus: Corpus, finished: Path) -> None:
    model = Translation.of(corpus, **SIZES)
    begin = partial(unchecked(lh.Trainer.__init__), object.__new__(lh.Trainer))
    with pytest.raises(ValueError, match=r"^overwrite must be true or false, got 'no'$"):
        begin(model, Cascaded(model), corpus, out=finished, overwrite="no")
