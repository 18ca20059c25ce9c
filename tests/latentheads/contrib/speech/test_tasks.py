"""Tasks of speech: languages, domains and speakers, by the columns of its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from latentheads.contrib.speech.data import Speech
from latentheads.corpora import Corpus
from latentheads.corpora.batches import collate
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Tagged
from latentheads.data import Tasks
from latentheads.data.in_memory import data_of
from latentheads.decoding.beam_search import beam_search
from latentheads.latents.logits.options import LogitsOptions
from latentheads.models import Translation
from tests.latentheads.contrib.speech.sounds import make_noise, write_sound, write_table

ROWS = [("de", "ann", "eins"), ("fr", "ann", "un"), ("de", "bob", "zwei"), ("de", "ann", "drei")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, part in enumerate(("train", "valid", "test")):
        rows = []
        for index, (language, speaker, text) in enumerate(ROWS):
            name = f"{part}{index}.wav"
            write_sound(tmp_path / name, make_noise(0.2, 10 * seed + index))
            rows.append([name, name, text, language, language, speaker])
        write_table(tmp_path / f"{part}.tsv", rows, "id audio tgt_text src_lang tgt_lang speaker")
    return tmp_path


SMALL: dict[str, Any] = {"vocab_size": 0, "bins": 7, "top_frequency": 3800}


def read(folder: Path, tasks: Tasks | str | None = None, **options: Any) -> Corpus:
    tasks = Tasks(tasks) if isinstance(tasks, str) else tasks
    return Speech(str(folder), tasks=tasks, **{**SMALL, **options}).load()


def by(key: Any, names: str) -> Tasks:
    """Tasks that are distinguished by something else than their language."""
    return Tasks(names, distinguish_by=key)


@pytest.mark.parametrize("cache", ["", "cache"])
def test_a_language_is_a_tag_that_is_read_and_not_scored(
    folder: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = str(folder / cache) if cache else ""
    corpus = read(folder, "de,fr", cache=text)
    if cache:
        monkeypatch.setattr("latentheads.contrib.speech.data.speech", None)
    again = read(folder, "de,fr", cache=text)
    assert [task.name for task in corpus.tasks] == ["de", "fr"]
    target = again.target
    assert isinstance(target, Tagged)
    assert target.tags == ("<2de>", "<2fr>")
    batch = collate(again.test, [0, 1])
    assert batch.before is not None
    assert batch.before.tolist() == [target.tag("<2de>"), target.tag("<2fr>")]
    assert batch.decoder_input[:, 0].tolist() == batch.before.tolist()
    assert batch.target.shape[1] == len("eins") + 1
    assert batch.source_task is not None
    assert batch.target_task is not None
    assert batch.source_task.tolist() == batch.target_task.tolist() == [0, 1]
    network = {"width": 8, "heads": 2, "layers": 1, "speech": {"channels": 4}}
    model = Translation.of(corpus, latents=[LogitsOptions()], **network).double().eval()
    fed: list[list[int]] = []
    step = model.step

    def listen(tokens: Any, state: Any) -> Any:
        fed.append(tokens[:, 0, 0].tolist())
        return step(tokens, state)

    model.step = listen  # type: ignore[method-assign]
    beam_search(model, batch, num_beams=1, max_new_tokens=2)
    assert fed[0] == batch.before.tolist()


def test_speakers_are_tasks_too(folder: Path) -> None:
    corpus = read(folder, by("speaker", "ann:de,bob:de"))
    assert corpus.train.mixture is not None
    assert corpus.train.mixture.sources == corpus.train.mixture.targets == ("ann", "bob")
    assert corpus.test.task is not None
    assert corpus.test.task.tolist() == [0, 1, 0]
    assert list(corpus.test.references) == ["eins", "zwei", "drei"]
    assert (corpus.test.tags, len(corpus.train)) == (None, 3)
    assert read(folder, Tasks("de,fr", sizes=(1, 1))).train.targets.lengths.tolist() == [5, 3]


def test_domains_are_tasks_too(folder: Path) -> None:
    for part in ("train", "valid", "test"):
        rows = [
            [f"{part}{index}", f"{part}{index}.wav", text, "de", ("read", "telephone")[index % 2]]
            for index, (_, _, text) in enumerate(ROWS)
        ]
        write_table(folder / f"{part}.tsv", rows, "id audio tgt_text src_lang domain")
    corpus = read(folder, by("domain", "telephone:de,read:de"))
    assert [task.name for task in corpus.tasks] == ["telephone:de", "read:de"]
    assert corpus.test.task is not None
    assert corpus.test.mixture is not None
    names = [corpus.test.mixture.names[task] for task in corpus.test.task.tolist()]
    read_aloud, telephoned = dict.fromkeys(("eins", "zwei"), "read:de"), ("un", "drei")
    expected = read_aloud | dict.fromkeys(telephoned, "telephone:de")
    assert dict(zip(corpus.test.references, names, strict=True)) == expected
    with pytest.raises(ValueError, match=r"news:de has nothing to train on: the tables have read:"):
        read(folder, by("domain", "news:de"))


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("it", " it has nothing to train on: the tables have de-de, fr-fr$"),
        (by("speaker", "eve:de"), "eve:de has nothing to train on: the tables have ann:de-de, ann"),
        ("de,it", "no utterance in train of it: the tables have de-de, fr-fr$"),
    ],
)
def test_what_cannot_be_a_task_is_refused(folder: Path, tasks: Tasks | str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(folder, tasks)


def test_texts_in_several_languages_of_one_need_tasks(folder: Path) -> None:
    assert len(read(folder).train) == len(ROWS)  # a text for each language that is spoken
    with (folder / "test.tsv").open("a", encoding="utf-8") as table:
        table.write("more\ttest0.wav\tone\tde\ten\tann\n")
    with pytest.raises(ValueError, match="has texts in de, en of what is said in de: choose by ta"):
        read(folder)
    assert len(read(folder, "de,fr").test) == len(ROWS)


def test_names_of_tasks_are_read_again() -> None:
    for name in ("de", "ann:de"):
        task = Task.parse(name, None)
        assert (task.source, task.target, task.name) == ("de", "de", name)
    assert Task.parse("de-en", "").name == "de-en"
    with pytest.raises(ValueError, match="task 'de-en' translates, and speech is written in its"):
        Task.parse("de-en", None)


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_task_without_a_word_is_refused(folder: Path, part: str) -> None:
    table = folder / f"{part}.tsv"
    table.write_text(table.read_text("utf-8").replace("\tun\t", "\t\t"), "utf-8")
    with pytest.raises(ValueError, match=f"has no word in the texts of {part} of fr$"):
        read(folder, "de,fr")
    assert len(read(folder, "de").test) == 3


def test_tables_that_say_nothing_have_utterances_of_no_speaker(folder: Path) -> None:
    for part in ("train", "valid", "test"):
        write_table(folder / f"{part}.tsv", [["x", f"{part}0.wav", "eins"]])
    message = "nothing to train on: the tables say nothing in columns src_lang, tgt_lang, speaker, "
    with pytest.raises(ValueError, match=message):
        read(folder, by("speaker", "ann:de"))


def test_tasks_made_by_hand_are_described_by_their_languages(folder: Path) -> None:
    heard = replace(read(folder, "de,fr"), data=None)
    assert data_of(heard).task == "recognition"
    translated = heard.with_mixture(Mixture((Task("de", "en"), Task("fr", "en"))))
    data_options = data_of(translated)
    assert data_options.task == "speech-translation"
    assert data_options.mixture == translated.train.mixture


def test_utterances_of_no_task_are_counted(folder: Path) -> None:
    lines: list[str] = []
    corpus = Speech(str(folder), tasks=Tasks("de"), **SMALL).load(log=lines.append)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [3] * 3
    assert "3 utterances of all parts are of no task: left out" in lines
