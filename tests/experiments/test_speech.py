"""Speech from end to end: trained, reported, transcribed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import latentheads as lh
from latentheads.contrib.speech import transcribe
from latentheads.contrib.speech.transcription import check_is_speech
from latentheads.corpora import Words
from tests.experiments.programs import (
    SHORT,
    assert_one_line,
    assert_refused,
    inside,
    results_of,
    succeed,
    unpainted,
)
from tests.latentheads.contrib.speech.sounds import make_noise, write_sound, write_speech
from tests.latentheads.runs import trained

SMALL = [*trained.SMALL, "--network.speech.channels=4"]
HEARD = ["--data.bins=7", "--data.top_frequency=3800", "--data.vocab_size=0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speech(tmp_path_factory.mktemp("speech") / "corpus")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    out = folder.parent / "run"
    words = ["--data", str(folder), *HEARD, *SMALL, *SHORT, "--network.speech.spec_augment=LD"]
    words += ["--ctc=0.3", "--decode.paper_wer=true", "--out", str(out)]
    with unpainted():
        printed = succeed("run.py", *words).stdout
    assert "decoding: latents summed out, greedy" in printed
    assert "WER, % [95 % CI]" in printed
    assert "bound (ELBO), nats per word" in printed
    return out


def test_a_run_reports_error_rates_with_their_intervals(run: Path) -> None:
    test = results_of(run)["test"]
    assert test["words"] == 7
    errors = test["substitutions"] + test["deletions"] + test["insertions"]
    assert test["wer"] == pytest.approx(100 * errors / 7)
    row = test.row("wer")
    assert row.interval[0] <= test["wer"] <= row.interval[1]
    assert row.signature.startswith("jiwer:")
    assert "tok:13a" in test.row("paper_wer").signature
    assert "bleu" not in test
    assert 0 <= test["ctc_cer"] <= 100 * 10 / 3  # no more than a token a position


def test_files_are_transcribed_in_their_order(run: Path, folder: Path, tmp_path: Path) -> None:
    silent = write_sound(tmp_path / "silent.wav", np.zeros(800, np.float32))
    long = write_sound(tmp_path / "long.wav", make_noise(30.1))
    sound = folder / "sound" / "test-1.wav"
    times = tmp_path / "times.txt"
    files = [str(item) for item in (sound, silent, tmp_path / "gone.wav", long, sound)]
    done = inside("transcribe.py", str(run), *files, "--alignments", str(times))
    assert done.returncode == 1
    first, *empty, last = done.stdout.split("\n")[:-1]
    expected = (run / "test.translations.txt").read_text("utf-8").split("\n")[1].strip()
    assert (first, empty, last) == (expected, ["", "", ""], expected)
    assert [line.partition(" stays empty: ")[2] for line in done.stderr.splitlines()] == [
        "it is silent",
        "there is no such file",
        "30.1 s of sound, more than max_seconds 30",
    ]
    words = times.read_text("utf-8").split("\n")[0].split()
    assert [word.rpartition("@")[0] for word in words] == first.split()
    assert all(0 <= float(word.rpartition("@")[2]) < 0.3 for word in words)
    opened = lh.load_run(run)
    assert transcribe(opened, [sound]) == [first]
    assert transcribe(opened, iter([sound])) == [first]
    with pytest.raises(ValueError, match="files must be a list, got"):
        transcribe(opened, str(sound))


def test_a_number_of_transcripts_needs_something_that_is_drawn(run: Path, folder: Path) -> None:
    file, nothing = str(folder / "sound" / "test-1.wav"), "has no effect here: it needs"
    for words, says in (
        (
            "--num_return_sequences=2",
            f"--num_return_sequences {nothing} a run that samples its heads, or the sel",
        ),
        (
            "--num_return_sequences=2 --num_samples=0",
            f"--num_return_sequences {nothing} num_samples 1 or more, got 0",
        ),
        (
            "--num_return_sequences=2 --num_samples=2",
            f"--num_samples {nothing} a run that samples its heads",
        ),
        ("--num_return_sequences=-1", "--num_return_sequences: must be at least 1, got -1"),
    ):
        assert_refused("transcribe.py", str(run), file, *words.split(), says=says)


def test_every_transcript_of_a_number_has_its_line(folder: Path, tmp_path: Path) -> None:
    files = [str(folder / "sound" / f"test-{index}.wav") for index in (0, 1)]
    out, times = str(tmp_path / "drawn"), tmp_path / "times.txt"
    words = ["--data", str(folder), *HEARD, *SMALL, *SHORT, "--latents=alignments+logits"]
    words += ["--train.warmup_steps=200"]  # hardly trained: no two transcripts are nearly as likely
    succeed("run.py", *words, "--alignments.blocks=1", "--out", out)
    done = succeed(
        "transcribe.py", out, *files, "--num_return_sequences=3", "--alignments", str(times)
    )
    expected = transcribe(lh.load_run(out), files, num_return_sequences=3)
    lines = done.stdout.split("\n")[:-1]
    assert lines == [line for item in expected for line in item]
    timed = times.read_text("utf-8").split("\n")[:-1]
    actual = [[word.rpartition("@")[0] for word in line.split()] for line in timed]
    assert actual == [line.split() for line in lines]


def test_a_file_is_drawn_above_its_attention(run: Path, folder: Path) -> None:
    opened, file = lh.load_run(run), folder / "sound" / "test-1.wav"
    with unpainted():
        figure = lh.plot.audio(opened, file, num_samples=2, target="two")
        heads = lh.plot.heads(opened, str(file), num_samples=2, target="two")
        alignments = lh.plot.alignments(opened, str(file), target="two")
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == [*"two", "<eos>"]
    for other in (heads, alignments):
        shown = [label.get_text() for axis in other.axes for label in axis.get_xticklabels()]
        assert "0.24 s" in shown
    with pytest.raises(ValueError, match="has no audio input"):
        lh.plot.audio(replace(opened, processor=replace(opened.processor, source=Words([]))), file)


def test_the_heads_of_a_run_are_analysed(run: Path, tmp_path: Path) -> None:
    words = ["--sentences=2", "--relevance=0", "--out", str(tmp_path)]
    succeed("analyse.py", str(run), *words)
    assert len(list(tmp_path.glob("alignments-*.png"))) == 1
    assert "Offsets in sound are in steps of 40 ms" in (tmp_path / "table.md").read_text()


def test_what_is_of_text_refuses_a_run_that_hears(run: Path, tmp_path: Path) -> None:
    for name, words in (("uncertainty.py", ()), ("translate.py", (f"--confidence={tmp_path}/c",))):
        says = f"{run} has speech input: "
        assert_refused(name, str(run), *words, says=says, text="text\n")


def test_transcripts_are_scored_by_their_errors(run: Path, tmp_path: Path) -> None:
    right, other = run / "test.references.txt", tmp_path / "other.txt"
    other.write_text(right.read_text("utf-8").replace("two", "to"), "utf-8")
    printed = succeed("score.py", str(run), str(run)).stdout
    assert f"{results_of(run)['test']['wer']:.2f} [" in printed
    assert "papers' WER, %" in printed  # the run was asked for it
    words = [str(right), str(other), "--references", str(right), "--recognised"]
    printed = succeed("score.py", *words).stdout
    assert "BLEU" not in printed
    assert "paper WER" not in printed
    assert "42.86 [" in printed  # three of seven words
    assert_one_line(inside("score.py", *words, "--paper", "iwslt14"), "score.py")


def test_what_is_heard_is_translated_by_an_encoder_that_recognised(
    run: Path, tmp_path: Path
) -> None:
    folder = write_speech(tmp_path / "corpus", src_lang="en", tgt_lang="de")
    words = ["--data", str(folder), *HEARD, "--data.task=translation", "--data.tasks=en-de"]
    # a step that moves nothing, so that what was brought along is seen
    begun = ["--start", str(run), "--start_with=encoder"]
    begun += ["--train.steps=1", "--train.learning_rate=1e-30"]
    out = tmp_path / "translation"
    printed = succeed("run.py", *words, *SMALL, *SHORT, *begun, "--out", str(out)).stdout
    assert "BLEU" in printed
    assert "WER" not in printed
    test = results_of(out)["test"]
    assert 0 <= test["bleu"] <= test["chrf"] <= 100
    assert "tok:13a" in test.row("bleu").signature
    assert "wer" not in test
    before, after = (lh.load_run(item).model.encoder.state_dict() for item in (run, out))
    assert all(torch.equal(before[name], after[name]) for name in before)
    done = succeed("transcribe.py", str(out), str(folder / "sound" / "test-1.wav"))
    written = (out / "test.translations.txt").read_text("utf-8").split("\n")
    assert done.stdout.strip() == written[1].strip()
    assert "BLEU" in succeed("score.py", str(out), str(out)).stdout


def test_text_and_speech_are_not_taken_for_each_other(run: Path) -> None:
    done = inside("translate.py", str(run), text="text\n")
    assert done.returncode == 1
    assert "the source of this run is speech, not text" in done.stderr
    for source, text in (
        (None, "has no speech input"),
        (Words([]), "has no speech input: use translate or generate$"),
    ):
        trained = lh.load_run(run)
        processor = replace(trained.processor, source=source)
        with pytest.raises(ValueError, match=text):
            check_is_speech(replace(trained, processor=processor))
