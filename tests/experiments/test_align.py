"""Two texts in, links out: real files and processes, kept aligners, one-line errors."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from latentheads.contrib.align import aligner, bitext, training
from latentheads.contrib.align.api import align
from latentheads.contrib.heads.word_alignment import align as align_words
from latentheads.experiments import align as program
from latentheads.runs.loading import load_run
from latentheads.training import progress
from tests.experiments.processes import CONTEXT, ended, fork_off
from tests.experiments.programs import FORKS, assert_one_line, inside
from tests.latentheads.corpora.folders import LANGUAGES, write_corpus
from tests.latentheads.runs.trained import train
from tests.terminal import showing_progress

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

ENGLISH = ["the house", "the book", "", "a book", "a red house"] * 3
GERMAN = ["das Haus", "das Buch", "", "ein Buch", "ein rotes Haus"] * 3
LINKS = ["0-0 1-1", "0-0 1-1", "", "0-0 1-1", "0-0 1-1 2-2"] * 3


def write_lines(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def texts(tmp_path: Path) -> tuple[str, str]:
    return write_lines(tmp_path / "text.en", ENGLISH), write_lines(tmp_path / "text.de", GERMAN)


def test_two_files_give_the_links_of_every_line(texts: tuple[str, str], tmp_path: Path) -> None:
    out, scores = tmp_path / "links", tmp_path / "scores"
    done = inside("align.py", *texts, "--out", str(out), "--scores", str(scores))
    assert (done.returncode, done.stdout) == (0, "")
    assert out.read_text().split("\n") == [*LINKS, ""]
    facts = [json.loads(line) for line in scores.read_text().splitlines()]
    assert len(facts) == len(LINKS)
    assert facts[2] == {
        **{"links": [], "null_source": [], "null_target": [], "log_probs": [None, None]}
    }
    links = {(s, t): p for s, t, p in facts[4]["links"]}
    assert {link for link, p in links.items() if p >= 0.4} == {(0, 0), (1, 1), (2, 2)}
    assert len(facts[4]["null_source"]) == len(facts[4]["null_target"]) == 3
    assert all(0 <= p <= 1 for p in (*links.values(), *facts[4]["null_source"]))
    assert all(value < 0 for value in facts[4]["log_probs"])


def test_links_are_written_to_standard_output(texts: tuple[str, str]) -> None:
    done = inside("align.py", *texts, "--quiet")
    assert (done.returncode, done.stdout.split("\n"), done.stderr) == (0, [*LINKS, ""], "")
    shown = inside("align.py", *texts)
    assert "step 6 of 6" in shown.stderr
    assert shown.stdout == done.stdout


@pytest.mark.parametrize("quiet", [True, False])
def test_the_bars_of_a_text_are_shown_unless_quiet(texts: tuple[str, str], quiet: bool) -> None:
    with showing_progress() as stream:
        assert program.main([*texts, *["--quiet"] * quiet]) == 0
    assert ("reading pairs" in stream.getvalue()) != quiet


def test_one_file_with_separators_gives_the_same_links(tmp_path: Path) -> None:
    lines = [f"{left} ||| {right}" if left else "" for left, right in zip(ENGLISH, GERMAN)]
    done = inside("align.py", write_lines(tmp_path / "both", lines), "--quiet")
    assert (done.returncode, done.stdout.split("\n")) == (0, [*LINKS, ""])


def test_tabs_separate_too_and_a_text_may_be_standard_input(texts: tuple[str, str]) -> None:
    both = "".join(f"{left}\t{right}\n" if left else "\n" for left, right in zip(ENGLISH, GERMAN))
    assert inside("align.py", "-", "--quiet", text=both).stdout.split("\n") == [*LINKS, ""]
    english = "".join(f"{line}\r\n" for line in ENGLISH)
    done = inside("align.py", "-", texts[1], "--quiet", text=english)
    assert done.stdout.split("\n") == [*LINKS, ""]
    wrong = inside("align.py", "-", "--quiet", text="a\tb\na b\n")
    assert_one_line(wrong, "align.py")
    assert "standard input, line 2: " in wrong.stderr
    assert_one_line(inside("align.py", "-", "-", text=english * 2), "align.py")
    assert_one_line(inside("align.py", "-", "--sample", "3"), "align.py")


def test_links_have_their_probability_if_it_is_asked_for(texts: tuple[str, str]) -> None:
    done = inside("align.py", *texts, "--quiet", "--probabilities")
    words = done.stdout.split("\n")[0].split()
    assert [word.split(":")[0] for word in words] == ["0-0", "1-1"]
    assert all(0.4 <= float(word.split(":")[1]) <= 1 for word in words)


def test_links_are_scored_against_those_of_the_first_lines(
    texts: tuple[str, str], tmp_path: Path
) -> None:
    gold = write_lines(tmp_path / "gold", ["0-0 1-1", "0-0 1?1", "", "0-1"])
    options = ("--quiet", "--out", str(tmp_path / "links"), "--gold")
    done = inside("align.py", *texts, *options, gold)
    scores = "AER 0.300 [0.000, 0.795], precision 0.667 [0.184, 1.000], recall 0.750 [0.235, 1.000]"
    assert done.stdout == f"{scores}, F1 0.706 [0.207, 1.000]; 3 lines\n"
    assert (tmp_path / "links").read_text().split("\n") == [*LINKS, ""]
    longer = write_lines(tmp_path / "longer", ["0-0"] * 16)
    piped = "".join(f"{a}\t{b}\n" for a, b in zip(ENGLISH, GERMAN, strict=True))
    done = inside("align.py", "-", *options, longer, text=piped)
    assert_one_line(done, "align.py")
    assert "16 lines have gold links, and 15 are aligned" in done.stderr


def test_what_is_not_trained_on_is_aligned_as_new_lines(
    texts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "CHUNK", 4)
    kept = tmp_path / "kept"
    words = ["--quiet", "--sample", "13", "--keep", str(kept), "--max_words", "2"]
    done = inside("align.py", *texts, *words)
    short = [line if len(line.split()) < 3 else "" for line in LINKS]
    assert (done.returncode, done.stdout.split("\n")) == (0, [*short, ""])
    names = [line.split(" stays")[0] for line in done.stderr.splitlines()]
    assert names == [f"align.py: line {number} of the input" for number in (5, 10, 15)]
    again = inside("align.py", *texts, "--quiet", "--aligner", str(kept), "--max_words", "2")
    assert again.stdout == done.stdout


def test_swapped_texts_of_a_kept_aligner_are_noted_once(
    texts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "CHUNK", 4)
    kept = str(tmp_path / "en-de.aligner")
    right = inside("align.py", *texts, "--keep", kept, "--quiet")
    assert right.stderr == ""
    for more in ((), ("--continue",)):
        done = inside("align.py", *texts[::-1], "--quiet", "--aligner", kept, *more)
        assert done.stderr == (
            "align.py: note: the aligner does not know 100% of the words of source and 100% of the "
            "words of target: source and target seem to be swapped\n"
        )


def test_a_kept_aligner_is_trained_on(texts: tuple[str, str], tmp_path: Path) -> None:
    kept, more = str(tmp_path / "kept"), str(tmp_path / "more")
    inside("align.py", *texts, "--quiet", "--keep", kept)
    new = (
        write_lines(tmp_path / "new.en", ["the red car"]),
        write_lines(tmp_path / "new.de", ["das rotes Auto"]),
    )
    words = ("--quiet", "--aligner", kept, "--continue", "--keep", more)
    assert inside("align.py", *new, *words).stdout == "0-0 1-1 2-2\n"
    again = inside("align.py", *texts, "--quiet", "--aligner", more)
    assert again.stdout.split("\n") == [*LINKS, ""]


def test_a_lexicon_is_what_training_begins_with(tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "en", ["a b"]), write_lines(tmp_path / "de", ["x y"])
    lexicon, out = (
        write_lines(tmp_path / "lexicon", ["A y 50", "b x", "", "b x 49"]),
        tmp_path / "out",
    )
    words = ("--quiet", "--lexicon", lexicon, "--write_lexicon", str(out))
    assert inside("align.py", *texts, *words).stdout == "0-1 1-0\n"
    counts = {(s, t): float(n) for s, t, n in map(str.split, out.read_text().splitlines())}
    assert counts["a", "y"] == pytest.approx(51, abs=0.2)
    assert counts["b", "x"] == pytest.approx(51, abs=0.2)
    for line in ("a", "a b c d", "a b many", "a b -1"):
        wrong = write_lines(tmp_path / "wrong", ["a b 1", line])
        done = inside("align.py", *texts, "--lexicon", wrong)
        assert_one_line(done, "align.py")
        assert "wrong, line 2: " in done.stderr


def test_a_text_without_spaces_is_noted_in_one_line(tmp_path: Path) -> None:
    lines = ["我们昨天晚上在图书馆里看了一本书"] * 3, ["we read a book"] * 3
    texts = write_lines(tmp_path / "zh", lines[0]), write_lines(tmp_path / "en", lines[1])
    note = "words have 16 letters on average: write spaces between words, or split characters, if "
    done = inside("align.py", *texts, "--quiet")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    assert done.stderr == f"align.py: note: source: {note}the script has no spaces\n"
    assert inside("align.py", *texts, "--quiet", "--split", "characters").stderr == ""
    with pytest.warns(UserWarning, match=f"^source: {note}"):
        align(*lines)


@pytest.mark.parametrize("symmetrize", ["intersection", "grow-diag-final-and", "forward"])
def test_links_are_joined_as_they_are_asked_for(symmetrize: str, texts: tuple[str, str]) -> None:
    done = inside("align.py", *texts, "--quiet", "--symmetrize", symmetrize)
    assert done.stdout.split("\n") == [*LINKS, ""]


def test_a_threshold_of_one_leaves_no_link(texts: tuple[str, str]) -> None:
    done = inside("align.py", *texts, "--quiet", "--threshold", "1")
    assert done.stdout == "\n" * len(LINKS)
    all_links = inside("align.py", *texts, "--quiet", "--threshold", "0").stdout.split("\n")
    assert all_links[0] == "0-0 0-1 1-0 1-1"


def test_lines_that_are_not_aligned_have_no_probabilities(tmp_path: Path) -> None:
    english = write_lines(tmp_path / "en", [*ENGLISH, "a b c d", "", "a"])
    german = write_lines(tmp_path / "de", [*GERMAN, "a", "b", ""])
    scores = tmp_path / "scores"
    words = ("--max_words", "3", "--scores", str(scores), "--threshold", "0", "--quiet")
    done = inside("align.py", english, german, *words)
    assert done.stdout.split("\n")[-4:] == ["", "", "", ""]
    facts = [json.loads(line) for line in scores.read_text().splitlines()[-3:]]
    nulls = [([None] * 4, [None]), ([], [None]), ([None], [])]
    assert facts == [
        {"links": [], "null_source": source, "null_target": target, "log_probs": [None, None]}
        for source, target in nulls
    ]


def test_a_file_that_cannot_be_written_is_named_before_training(
    texts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "align_texts", pytest.fail)
    for option in ("--out", "--scores", "--keep"):
        done = inside("align.py", *texts, option, str(tmp_path / ("n" * 256)))
        assert_one_line(done, "align.py")
        assert option in done.stderr
        assert "File name too long" in done.stderr


@pytest.mark.parametrize("failing", ["keep", "scores", "out"])
def test_what_cannot_be_written_after_training_takes_nothing_else_along(
    failing: str, texts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    name = {"keep": "save_aligner", "scores": "format_scores", "out": "format_links"}[failing]
    monkeypatch.setattr(program, name, fail)
    files = {option: tmp_path / f"{option}-file" for option in ("keep", "scores", "out")}
    words = [word for option, file in files.items() for word in (f"--{option}", str(file))]
    done = inside("align.py", *texts, *words, "--quiet")
    assert done.returncode == 1
    assert {option for option, file in files.items() if file.exists()} == {*files} - {failing}
    assert done.stderr.startswith("align.py: error: ")
    assert done.stderr.endswith("No space left on device\n")


def test_a_link_to_a_file_stays_one(texts: tuple[str, str], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("links", "scores", "kept")]
    words = ["--quiet"]
    for file, option in zip(files, ("--out", "--scores", "--keep"), strict=True):
        file.write_text("old")
        link = tmp_path / f"{file.name}-link"
        link.symlink_to(file)
        words += [option, str(link)]
    assert inside("align.py", *texts, *words).returncode == 0
    assert all((tmp_path / f"{file.name}-link").is_symlink() for file in files)
    assert all(file.stat().st_size > 100 for file in files)


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a line or two, so that workers have some."""
    monkeypatch.setattr(bitext, "BATCH_CELLS", 30)


@FORKS
@pytest.mark.usefixtures("_small_batches")
def test_workers_change_no_link(
    texts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, scores = tmp_path / "kept", tmp_path / "scores"
    words = ("--quiet", "--workers", "3", "--iterations", "3")
    done = inside("align.py", *texts, *words, "--keep", str(kept), "--scores", str(scores))
    assert (done.returncode, done.stdout.split("\n"), done.stderr) == (0, [*LINKS, ""], "")
    assert scores.read_text().count("\n") == len(LINKS)
    monkeypatch.setattr(program, "CHUNK", 8)
    again = inside("align.py", *texts, *words[:3], "--aligner", str(kept))
    assert (again.stdout, again.stderr) == (done.stdout, "")


SPLIT, EXPECT = "_split_batch", "_expect_batch"


def raise_in_worker(error: Exception) -> None:
    raise error


@FORKS
@pytest.mark.usefixtures("_small_batches")
@pytest.mark.parametrize(
    ("function", "trouble", "message"),
    [
        (SPLIT, lambda: os.kill(os.getpid(), signal.SIGKILL), "a worker was ended by SIGKILL, as"),
        (EXPECT, lambda: raise_in_worker(MemoryError()), "out of memory"),
    ],
)
def test_trouble_of_a_worker_is_one_line(
    function: str,
    trouble: Callable[[], None],
    message: str,
    texts: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = {SPLIT: aligner, EXPECT: training}[function]
    own, done_here = getattr(module, function), os.getpid()

    def fail(*arguments: Any) -> Any:
        if os.getpid() != done_here:
            trouble()
        return own(*arguments)

    monkeypatch.setattr(module, function, fail)
    options = ("--quiet", "--workers", "2", "--out", str(tmp_path / "out"))
    done = inside("align.py", *texts, *options, "--keep", str(tmp_path / "kept"))
    assert_one_line(done, "align.py", status=1)
    assert done.stderr.startswith(f"align.py: error: {message}")
    assert not (tmp_path / "out").exists()


def align_in_small_batches(words: list[str], _: Connection) -> None:
    """Aligns as the leader of a group of processes, as a shell would start it."""
    os.setpgid(0, 0)
    with mock.patch.object(bitext, "BATCH_CELLS", 300):
        align_and_report_soon(words)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_workers_end_with_their_parent(
    send: Callable[[int, int], None], number: signal.Signals, tmp_path: Path
) -> None:
    english, german = (
        write_lines(tmp_path / name, side * 20) for name, side in (("en", ENGLISH), ("de", GERMAN))
    )
    reading, writing = CONTEXT.Pipe(duplex=False)
    words = [english, german, "--workers", "2", "--iterations", "100000"]
    words += ["--out", str(tmp_path / "links")]
    process = fork_off(align_in_small_batches, words, writing, path=tmp_path / "said")
    writing.close()
    wait_for_training(tmp_path / "said")
    assert process.pid is not None
    send(process.pid, number)
    assert ended(process) == 128 + number
    assert reading.poll(20)  # nobody has the other end any more
    with pytest.raises(EOFError):
        reading.recv()
    assert (tmp_path / "said").read_text().splitlines()[-1] == "align.py: stopped"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["de", "en", "said"]


def align_and_report_soon(words: list[str]) -> None:
    with mock.patch.object(progress, "FIRST", (0.0, *progress.FIRST)):
        sys.exit(program.main(words))


def wait_for_training(given_path: Path) -> None:
    deadline = time.monotonic() + 120
    while not given_path.exists() or "training step" not in given_path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("EN", "a line of one file must be 'source ||| target', or have a tab"),
        ("EN DE EN", "got 3 files"),
        ("EN NONE", "there is no file NONE"),
        ("EN EMPTY", "EMPTY is empty"),
        ("EN SHORT", "SHORT ends after 14 lines"),
        ("BLANK BLANK", "no line has 1 to 200 words on both sides"),
        ("EN DE --threshold 1.5", "--threshold: must be at most 1, got 1.5"),
        ("EN DE --threshold .5 --symmetrize forward", "--threshold is for --symmetrize product"),
        ("EN DE --workers 0", "--workers: must be at least 1, got 0"),
        ("EN DE --runs A B --workers 2", "--workers has no effect with --runs"),
        ("EN DE --runs A B --max_words 1", "--max_words has no effect with --runs: networks have"),
        ("EN DE --out -", "--out: cannot write -: name a file"),
        ("EN DE --aligner NONE", "there is no checkpoint NONE"),
        ("EN DE --aligner EN", "is not a complete checkpoint"),
        ("EN DE --aligner NONE --iterations 3", "--iterations has no effect with --aligner"),
        ("EN DE --aligner NONE --runs A B", "--aligner and --runs both say what aligns"),
        ("EN DE --runs A B --guide tied", "--guide has no effect with --runs"),
        (
            "EN DE --aligner NONE --continue --null_probability .3",
            "--null_probability has no effect with --continue",
        ),
        ("EN DE --out NONE/links", "--out: cannot write"),
        ("EN DE --out OUT --scores OUT", "need a file each"),
        ("EN DE --gold EN", "--gold prints scores: name a file for the links by --out"),
        ("EN DE --out OUT --gold EN", "a link must be two indices with a dash between, as"),
        ("EN DE --out OUT --gold BLANK", "BLANK has no links"),
        ("EN DE --out OUT --gold LONG", "--gold LONG has 16 lines, the text 15"),
        (
            "EN DE --out OUT --gold FROM1",
            "--gold FROM1, line 2: link 1-2 is outside of 2 and 2 words, which count from 0",
        ),
        ("EN DE --gold OUT --out OUT", "is read too"),
    ],
)
def test_a_mistake_is_one_line(
    words: str,
    message: str,
    texts: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = {"EN": texts[0], "DE": texts[1]}
    write_lines(tmp_path / "EMPTY", [])
    write_lines(tmp_path / "SHORT", GERMAN[:-1])
    write_lines(tmp_path / "BLANK", ["", " "])
    write_lines(tmp_path / "LONG", ["0-0"] * 16)
    write_lines(tmp_path / "FROM1", ["1-1", "1?2", ""])
    done = inside("align.py", "--quiet", *(paths.get(word, word) for word in words.split()))
    assert_one_line(done, "align.py")
    assert message in done.stderr
    assert not (tmp_path / "OUT").exists()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A translation run with latent alignments for each direction."""
    top = tmp_path_factory.mktemp("runs")
    data = write_corpus(top / "corpus")
    source, target = LANGUAGES[1::2]
    options = ["--data", str(data), "--alignments.blocks=1", "--recipe=cascaded+alignments"]
    folders = top / "forward", top / "backward"
    for folder, (left, right) in zip(folders, ((source, target), (target, source)), strict=True):
        train(folder, *options, f"--data.source={left}", f"--data.target={right}")
    return folders


def test_two_runs_align_by_their_posteriors(runs: tuple[Path, Path], tmp_path: Path) -> None:
    lines = ["the gap of the", "", "gap"], ["der gap", "", "gap der"]
    paths = [write_lines(tmp_path / name, side) for name, side in zip(("en", "de"), lines)]
    words = ["--runs", *map(str, runs)]
    scores = tmp_path / "scores"
    done = inside("align.py", *paths, *words, "--threshold", "0", "--scores", str(scores))
    assert (done.returncode, done.stderr) == (0, "")
    everything = done.stdout.split("\n")
    assert everything[1:] == ["", "0-0 0-1", ""]
    assert len(everything[0].split()) == 8
    facts = json.loads(scores.read_text().split("\n")[0])
    assert facts["log_probs"] == [None, None]
    forward = inside("align.py", *paths, *words, "--symmetrize", "forward").stdout.split("\n")
    own = align_words(load_run(runs[0]), *lines)
    # each target word has its likeliest source word where that is likelier than none
    for line, links in zip(forward, own, strict=False):
        assert set(line.split()) <= {f"{s}-{t}" for s, t in links}
    with mock.patch("latentheads.contrib.align.networks._are_swapped", return_value=True):
        swapped = inside("align.py", *paths, *words).stderr
    note = "does not seem to translate the source to the target: its vocabularies fit better if"
    assert swapped.startswith(f"align.py: note: {runs[0]} {note}")


def test_runs_without_alignments_are_one_line(
    texts: tuple[str, str], tmp_path: Path, runs: tuple[Path, Path]
) -> None:
    data = write_corpus(tmp_path / "corpus")
    train(tmp_path / "plain", "--data", str(data), *LANGUAGES, "--recipe=transformer")
    done = inside("align.py", *texts, "--runs", str(runs[0]), str(tmp_path / "plain"))
    assert_one_line(done, "align.py")
    assert "has no alignments" in done.stderr
