"""A finished run, loaded: the weights that were reported, and one line for what cannot be."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from latentheads.corpora import batches
from latentheads.corpora.batches import TOKENS
from latentheads.corpora.corpus import Corpus
from latentheads.inference.evaluation import evaluate
from latentheads.runs.build import changed_parts
from latentheads.runs.loading import load_run, open_run
from latentheads.training import checkpoints
from latentheads.training.checkpoints import weights
from tests.experiments.programs import ROOT, SHORT, results_of, succeed
from tests.latentheads.corpora.folders import LANGUAGES, write_corpus, write_text
from tests.latentheads.runs.trained import SMALL, load, refused, train

pytestmark = pytest.mark.usefixtures("as_the_programs_do")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on a folder of text beside it."""
    top = tmp_path_factory.mktemp("loading")
    data, out = write_corpus(top / "corpus"), top / "run"
    words = ["--data", str(data), *LANGUAGES, *SMALL, *SHORT]
    words += ["--train.steps=3", "--train.average=2"]
    succeed("run.py", *words, "--guide=cascaded", "--out", str(out))
    return out


def equal(loaded: Any, model: Any, guide: Any) -> bool:
    mine = weights(model=loaded.model, guide=loaded.guide)
    theirs = weights(model=model, guide=guide)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)


def test_the_weights_are_those_that_the_figures_are_of(finished: Path) -> None:
    loaded = load(finished)
    results = results_of(finished)
    settings = loaded.settings
    corpus = settings.data.load()
    assert corpus.source is corpus.target
    assert loaded.source is loaded.target
    assert loaded.target.to_json() == corpus.target.to_json()
    assert not loaded.model.training
    assert not loaded.guide.training
    assert loaded.step == results["reported_step"] == 3
    for name in ("valid", "test"):
        parts = batches(getattr(corpus, name), TOKENS, shuffle=False)
        report = evaluate(
            loaded.model,
            loaded.guide,
            parts,
            num_samples=settings.num_samples,
            seed=settings.seed,
        )
        for figure in ("elbo", "log_likelihood", "kl", "iwae", "plug_in"):
            assert getattr(report, figure) == pytest.approx(results[name][figure], abs=1e-6)


def test_every_kept_checkpoint_is_loaded_by_its_name(finished: Path) -> None:
    step = {name: load(finished, name).step for name in ("reported", "average", "best", "last")}
    assert step["reported"] == step["average"] == step["last"] == 3
    assert load(finished, "step-0000002").step == 2
    average, last = load(finished), load(finished, "last")
    assert not equal(average, last.model, last.guide)
    assert equal(load(finished, "step-0000003"), last.model, last.guide)


def test_loading_draws_no_random_number(finished: Path) -> None:
    before = torch.get_rng_state()
    load(finished)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_checkpoint_is_refused_with_those_there_are(finished: Path) -> None:
    names = "average, best, last, step-0000002, step-0000003"
    refusal = refused(finished, "newest")
    assert refusal == f"{finished} has no checkpoint 'newest'; it has {names}"
    assert "unknown device 'tpu': choose from cpu, cuda, auto" in refused(finished, "best", "tpu")


def test_separate_vocabularies_are_loaded_without_the_corpus(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "corpus")
    words = ["--data", str(data), *LANGUAGES, "--data.joint=false", "--data.lowercase=true"]
    run = train(tmp_path / "run", *words)
    shutil.rmtree(data)
    loaded = load(tmp_path / "run")
    assert loaded.source is not loaded.target
    assert loaded.source.to_json() == run.corpus.source.to_json()
    assert loaded.target.to_json() == run.corpus.target.to_json()
    assert loaded.source.lowercase
    assert equal(loaded, run.model, run.guide)
    assert loaded.step == run.checkpoint_manager.reported


def test_a_language_model_is_loaded(tmp_path: Path) -> None:
    words = ["--data=grammar-text", "--data.sentences=30", "--data.held_out=6"]
    run = train(tmp_path / "run", *words, "--guide=mean-field")
    loaded = load(tmp_path / "run")
    assert loaded.source is None
    assert loaded.target.words == run.corpus.target.words
    assert equal(loaded, run.model, run.guide)


def test_a_prompt_is_lower_cased_as_the_text_was(tmp_path: Path) -> None:
    data, out = write_text(tmp_path / "corpus"), tmp_path / "run"
    words = ["--data", str(data), "--data.lowercase=true", "--data.unit=subword"]
    train(out, *words, "--data.unit.vocab_size=300", "--guide=tied")
    loaded = load(out)
    assert loaded.target.encode("THE dog") == loaded.target.encode("the dog")
    assert loaded.corpus.target.lowercase


def test_a_corpus_whose_text_has_changed_is_refused_by_its_parts(tmp_path: Path) -> None:
    """Where the vocabulary stays the same; a folder that has lost them knows that alone."""
    data, out = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    train(out, "--data", str(data), *LANGUAGES, "--guide=tied")
    assert load(out).corpus.test.references
    for path in data.glob("test.*"):
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=r"the text of test has changed since; one that was"):
        _ = load(out).corpus
    (out / "corpus.json").unlink()
    assert load(out).corpus.test.references


def test_a_folder_of_data_that_was_renamed_is_corrected_in_the_configuration(
    tmp_path: Path,
) -> None:
    data, out = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    train(out, "--data", str(data), *LANGUAGES, "--guide=tied")
    renamed, configuration = data.rename(tmp_path / "renamed"), out / "config.yaml"
    start = f"{out}: its corpus cannot be made again: "
    with pytest.raises(ValueError) as gone:
        _ = load(out).corpus
    cure = f"correct data.folder in {configuration}, or give corpus= in Python"
    assert str(gone.value) == f"{start}there is no folder {data}; {cure}"
    configuration.write_text(configuration.read_text().replace(str(data), str(renamed)))
    assert load(out).corpus.test.references
    (renamed / "train.en").unlink()
    with pytest.raises(ValueError, match=r"renamed has no train.en .*; correct the options of da"):
        _ = load(out).corpus


def test_a_run_may_be_moved_and_read_from_anywhere(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "mein Lauf ✓")
    monkeypatch.chdir(tmp_path)
    loaded, original = load(Path("mein Lauf ✓")), load(finished)
    assert equal(loaded, original.model, original.guide)
    assert not (tmp_path / "runs").exists()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def of_another_model(path: Path) -> None:
    tensors, facts = checkpoints.load(path)
    name = "model.source_embedding.table.weight"
    checkpoints.save(path, {**tensors, name: torch.zeros(7, 8)}, facts)


def without_the_guide(path: Path) -> None:
    tensors, facts = checkpoints.load(path)
    kept = {name: value for name, value in tensors.items() if not name.startswith("guide.")}
    checkpoints.save(path, kept, facts)


def of_another_program(path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, path)


FEWER_TYPES = '{"joint": {"kind": "words", "words": ["a", "b"]}}'


AVERAGE = "checkpoints/average.safetensors"


def say(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


SPOILS: list[tuple[str, Callable[[Path], object], str]] = [
    (AVERAGE, shorten, "is not a complete checkpoint"),
    (AVERAGE, of_another_program, "is not a checkpoint of latentheads"),
    (AVERAGE, of_another_model, "belongs to another model: model."),
    (AVERAGE, without_the_guide, "belongs to another model: it has no"),
    (AVERAGE, Path.unlink, "has no checkpoint 'average'; it has best,"),
    ("checkpoints", shutil.rmtree, "has no checkpoint 'average'; it has none"),
    *(("vocabulary.json", say(text), "vocabulary.json cannot be read: ") for text in ("{", "[]")),
    ("vocabulary.json", Path.unlink, "vocabulary.json cannot be read: "),
    ("vocabulary.json", say("{}"), "vocabulary.json cannot be read: "),
    ("vocabulary.json", lambda path: path.write_bytes(b"\xff"), "vocabulary.json cannot be read: "),
    ("vocabulary.json", say(FEWER_TYPES), "belongs to another model: model."),
    *(("processor.json", say(text), "processor.json cannot be read: ") for text in ("{", "[]")),
    ("processor.json", say('{"max_line": "x"}'), "processor.max_line must be a whole number"),
    ("config.yaml", Path.unlink, "is not a run folder: it has no config.yaml"),
    ("config.yaml", say("network: {width: wide}\n"), "network.width must be "),
    ("config.yaml", say("network: {width: 7}\n"), "network.heads must divide"),
    ("config.yaml", say("recipe: codda\n"), "recipe must be one of "),
    ("config.yaml", say(": : ["), "cannot be loaded: "),
    ("config.yaml", lambda path: path.write_bytes(b"a: \xff"), "cannot be loaded: "),
    ("config.yaml", say("depth: 3\n"), "cannot be loaded: "),
]


@pytest.mark.parametrize(("name", "spoil", "message"), SPOILS)
def test_what_cannot_be_loaded_costs_one_line(
    finished: Path, name: str, spoil: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    spoil(out / name)
    refusal = refused(out)
    assert refusal.startswith(str(out))
    assert message in refusal


def test_a_folder_of_an_earlier_version_says_in_its_data_how_text_is_encoded(
    finished: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    processor = load_run(out).processor
    (out / "processor.json").unlink()
    earlier = load_run(out).processor
    assert earlier.to_json() == processor.to_json()


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone", ROOT / "README.md"):
        assert refused(path) == f"{path} is not a run folder: it has no config.yaml"


def test_what_is_neither_a_run_nor_its_folder_is_refused() -> None:
    model: Any = torch.nn.Linear(2, 3)
    with pytest.raises(ValueError, match=r"^folder must be that of a run, got None$"):
        load_run(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^run must be a run, or its folder, got Linear"):
        open_run(model)


def test_a_record_of_the_text_that_lacks_a_part_cannot_be_read(tmp_path: Path) -> None:
    corpus = Corpus.from_pairs([("a", "b")] * 4, valid=[("a", "b")], test=[("a", "b")])
    (path := tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(ValueError, match=r"corpus\.json cannot be read: 'train'$"):
        changed_parts(path, corpus)


def test_weights_in_float64_are_loaded_in_it(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    path = out / "checkpoints" / "average.safetensors"
    tensors, metadata = checkpoints.load(path)
    wide = {name: tensor.double() / 3 for name, tensor in tensors.items()}
    checkpoints.save(path, wide, metadata)
    loaded = load(out)
    for name, tensor in weights(model=loaded.model, guide=loaded.guide).items():
        assert torch.equal(tensor, wide[name])
