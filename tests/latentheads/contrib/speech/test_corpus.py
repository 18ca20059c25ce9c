"""A corpus of speech: what is kept, what is counted, and what comes out of a cache."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentheads.contrib.heads.labels import name_tokens
from latentheads.contrib.speech.audio import load_features
from latentheads.contrib.speech.data import Speech
from latentheads.contrib.speech.frames import Frames, pack_frames
from latentheads.contrib.speech.vocabulary import POSITION, Positions
from latentheads.corpora import Corpus, batches
from latentheads.corpora.batches import collate
from latentheads.corpora.vocabulary import vocabulary_from_json
from tests.latentheads.contrib.speech.sounds import (
    SMALL,
    TEXTS,
    make_noise,
    write_sound,
    write_speech,
)
from tests.terminal import showing_progress

OPTIONS: dict[str, Any] = {"vocab_size": 0, "bins": 7, "top_frequency": 3800}


def read(folder: Path, log: Any = None, **options: Any) -> Corpus:
    return Speech(str(folder), **{**OPTIONS, **options}).load(log)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_speech(tmp_path / "corpus")


def test_parts_hold_frames_positions_and_text(folder: Path) -> None:
    corpus = read(folder)
    assert (corpus.name, corpus.test.unit) == ("corpus recognition", "utterances")
    part = corpus.test
    assert list(part.references) == TEXTS
    assert part.frames is not None
    assert part.sources is not None
    assert part.frames.lengths.tolist() == [18, 25, 32, 39]
    assert part.frames.evenly_spaced(40).tolist() == part.frames.values[::3].tolist()
    assert part.sources.lengths.tolist() == [5, 7, 8, 10]
    assert set(part.sources.tokens) == {POSITION}
    assert part.lengths.tolist() == [8, 7, 8, 10]
    assert [corpus.target.decode(row.tolist()) for row in part.targets] == TEXTS
    assert corpus.train.references == ()


def test_it_shows_how_many_files_are_read(folder: Path) -> None:
    with showing_progress() as terminal:
        read(folder)
        assert "reading audio" not in terminal.getvalue()
        read(folder, log=[].append)
    assert "reading audio" in terminal.getvalue()


def test_a_batch_holds_the_frames_of_its_sentences(folder: Path) -> None:
    part = read(folder).test
    assert part.frames is not None
    batch = collate(part, [3, 0])
    assert batch.frames is not None
    assert batch.frame_counts is not None
    assert batch.frames.shape == (2, 39, 7)
    assert batch.frame_counts.tolist() == [39, 18]
    assert batch.source_valid.sum(1).tolist() == [10, 5]
    assert batch.frames[1, :18].tolist() == part.frames[0].tolist()
    assert not batch.frames[1, 18:].any()
    for again in (part.take([3, 0]), part.take([3, 0]).first(2)):
        assert collate(again, [0, 1]).frames.tolist() == batch.frames.tolist()
    assert {len(b) for b in batches(part, 10, shuffle=False)} == {1}


@pytest.mark.parametrize("cache", ["", "cache"])
def test_frames_are_mapped_and_a_cache_gives_them_back(
    folder: Path, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = str(tmp_path / cache) if cache else ""
    made = read(folder, cache=text)
    if cache:
        monkeypatch.setattr("latentheads.contrib.speech.data.speech", None)
    again = read(folder, cache=text)
    for part in ("train", "test"):
        first, second = getattr(made, part), getattr(again, part)
        assert isinstance(second.frames.values.base, np.memmap)
        assert (first.frames.values == second.frames.values).all()
        assert first.frames.ends.tolist() == second.frames.ends.tolist()
        assert first.targets.tokens.tolist() == second.targets.tokens.tolist()
        assert list(first.references) == list(second.references)
    positions = {"kind": "positions", "bins": 7, "top": 3800}
    assert again.source.to_json() == made.source.to_json() == positions


def test_a_cache_is_made_anew_where_a_sound_has_changed_or_it_is_broken(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cache"
    data = Speech(str(folder), **OPTIONS, cache=str(path))
    data.load(keep=False)
    assert not path.exists()
    assert not data.is_tokenised
    before = read(folder, cache=str(path)).train.frames
    (kept,) = path.iterdir()
    ends = np.cumsum([18, 25, 32, 39])
    for name, broken in (
        ("frames", np.zeros((3, 7), np.float16)),
        ("frame_ends", ends[[1, 0, 2, 3]]),
    ):
        np.save(kept / f"test.{name}.npy", broken)
        frames = read(folder, cache=str(path)).test.frames
        assert frames.values.shape == (ends[-1], 7)
        assert frames.ends.tolist() == ends.tolist()
    write_sound(folder / "sound" / "train-0.wav", make_noise(0.3, 77))
    after = read(folder, cache=str(path)).train.frames
    assert before is not None
    assert after is not None
    assert before.lengths[0] != after.lengths[0]


def test_a_cache_is_made_anew_where_a_text_beside_a_sound_has_changed(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "valid", "test")):
        sound = write_sound(tmp_path / part / "a.wav", make_noise(0.2, seed))
        sound.with_suffix(".txt").write_text("two", "utf-8")
    options = {"cache": str(tmp_path / "cache")}
    assert list(read(tmp_path, **options).test.references) == ["two"]
    (tmp_path / "test" / "a.txt").write_text("wow", "utf-8")
    assert list(read(tmp_path, **options).test.references) == ["wow"]


def break_training(folder: Path) -> None:
    """Adds an utterance of every kind that is left out."""
    sounds = {
        "silent": np.zeros(800, np.float32),
        "short": make_noise(0.06),
        "empty": np.zeros(0, np.float32),
        "long": make_noise(1.2),
        "mute": make_noise(0.2),
    }
    for name, samples in sounds.items():
        write_sound(folder / "sound" / f"{name}.wav", samples)
    (folder / "sound" / "broken.wav").write_bytes(b"no sound")
    with (folder / "train.tsv").open("a", encoding="utf-8") as file:
        for name in (*sounds, "broken"):
            file.write(f"{name}\tsound/{name}.wav\t{'' if name == 'mute' else 'two'}\n")


def test_what_training_leaves_out_is_counted(folder: Path) -> None:
    break_training(folder)
    lines: list[str] = []
    corpus = read(folder, lines.append, max_seconds=1.0)
    assert len(corpus.train) == len(TEXTS)
    line = lines[0]
    assert line.startswith("4 training utterances, 0.0 min of speech; 6 left out: ")
    for kind in ("1 silent", "2 too short", "1 too long", "1 without text", "1 unreadable"):
        assert f"{kind} ({folder / 'train.tsv'}, line " in line
    assert "4 of 4 texts of valid and 4 of 4 of test stand in training too" in lines[1]
    assert len(read(folder, max_train_samples=2).train) == 2


@pytest.mark.parametrize(
    ("name", "samples", "message"),
    [
        ("long", make_noise(1.2), "1.2 s of sound, more than max_seconds 1"),
        ("short", make_noise(0.02), "less than 0.025 s"),
    ],
)
def test_nothing_of_test_is_left_out(folder: Path, name: str, samples: Any, message: str) -> None:
    write_sound(folder / "sound" / "test-2.wav", samples)
    with pytest.raises(ValueError, match=rf"test\.tsv, line 4: .*{message}.*nothing of valid"):
        read(folder, max_seconds=1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seconds": 0.38}, r"valid\.tsv, line 5: 0\.41 s of sound, more than max_seconds"),
        (
            {"top_frequency": 7600},
            "sampling rate of 8,000 Hz.*option data.top_frequency to 3800",
        ),
        ({"bins": 128}, "bins must be fewer at a sampling rate of 8,000 Hz, got 128"),
        ({"max_line": 9}, r"valid\.tsv, line 5 has 10 tokens, more than max_line 9"),
    ],
)
def test_what_is_held_out_is_refused_before_training_is_heard(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, float], message: str
) -> None:
    heard: list[Path] = []

    def listen(path: Path, *given: Any) -> Any:
        heard.append(path)
        return load_features(path, *given)

    monkeypatch.setattr("latentheads.contrib.speech.audio.load_features", listen)
    with pytest.raises(ValueError, match=message):
        read(folder, **options)
    assert not [path for path in heard if path.name.startswith("train")]
    read(folder)
    assert [path.name[:-6] for path in heard[-12:]] == ["valid"] * 4 + ["test"] * 4 + ["train"] * 4


def test_a_long_text_is_refused_before_training_is_heard(folder: Path) -> None:
    table = folder / "test.tsv"
    table.write_text(table.read_text("utf-8").replace("one two", "one two one"), "utf-8")
    for audio in folder.glob("sound/train-*"):
        audio.write_bytes(b"no sound")
    with pytest.raises(ValueError, match=r"test\.tsv, line 2 has 12 tokens, more than max_line 10"):
        read(folder, max_line=10)


def test_too_small_a_vocabulary_is_refused_before_a_file_is_heard(folder: Path) -> None:
    for audio in folder.glob("sound/*"):
        audio.write_bytes(b"no sound")
    with pytest.raises(ValueError, match=r"vocab_size must be at least 260, .* got 100"):
        read(folder, vocab_size=100)


def test_training_files_that_the_filters_do_not_fit_are_counted(folder: Path) -> None:
    write_sound(folder / "sound" / "train-2.wav", make_noise(0.3), 4000)
    lines: list[str] = []
    read(folder, lines.append)
    assert "1 left out: 1 of an unfit sampling rate (" in lines[0]
    assert "4,000 Hz holds frequencies up to 2,000 Hz" in lines[0]


def test_silence_in_test_stays(folder: Path) -> None:
    write_sound(folder / "sound" / "test-2.wav", np.zeros(800, np.float32))
    assert len(read(folder).test) == len(TEXTS)


def test_what_is_missing_is_named(folder: Path) -> None:
    rows = (folder / "test.tsv").read_text(encoding="utf-8").split("\n")
    (folder / "test.tsv").write_text("\n".join([rows[0], "a\tsound/test-0.wav\t"]), "utf-8")
    with pytest.raises(ValueError, match="has no word in the texts of test"):
        read(folder)
    for audio in folder.glob("sound/train-*"):
        write_sound(audio, np.zeros(800, np.float32))
    (folder / "test.tsv").write_text("\n".join(rows), "utf-8")
    with pytest.raises(ValueError, match="has nothing to train on: 0 training utterances"):
        read(folder)


def test_subwords_are_learned_of_the_texts(folder: Path) -> None:
    corpus = read(folder, vocab_size=270, lowercase=True)
    assert corpus.target.decode(corpus.target.encode("ONE two")) == "one two"


def test_positions_are_no_text() -> None:
    source = Positions(SMALL.filterbank)
    assert vocabulary_from_json(source.to_json()).to_json() == source.to_json()
    assert source.decode([POSITION] * 30) == "1.20 s of speech"
    assert name_tokens(source, [POSITION] * 3) == ["0.00 s", "0.04 s", "0.08 s"]
    with pytest.raises(ValueError, match="is speech, not text"):
        source.encode_all(["text"])


def test_frames_taken_out_of_order_are_saved_in_it(tmp_path: Path) -> None:
    rows = [np.full((n, 3), n, np.float16) for n in (2, 1, 4)]
    frames = pack_frames(iter(rows), 3).take([2, 0])
    frames.save(tmp_path / "a.npy")
    assert np.load(tmp_path / "a.npy")[:, 0].tolist() == [4, 4, 4, 4, 2, 2]
    assert repr(frames) == "Frames(2 utterances, 6 frames)"
    nothing = Frames(np.zeros((0, 3), np.float16), np.zeros(0, np.int64))
    nothing.save(tmp_path / "b.npy")
    assert np.load(tmp_path / "b.npy").shape == (0, 3)


@pytest.mark.parametrize("name", ["soundfile", "kaldi_native_fbank"])
def test_a_package_that_is_not_there_is_no_fault_of_a_file(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"^speech needs .*: pip install 'latentheads\[speech\]'$"):
        read(folder)
