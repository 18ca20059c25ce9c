"""The scores of finished runs as a user asks for them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import latentheads as lh
from latentheads.corpora import Part, Rows
from latentheads.experiments.comparison.likelihoods import (
    SentenceLikelihoods,
    _is_same_text,
    compare_runs,
    format_table,
    to_record,
)
from tests.experiments.programs import SHORT, TINY, assert_refused, inside, results_of, succeed
from tests.latentheads.corpora.folders import write_text
from tests.latentheads.metrics.systems import paired_bootstrap
from tests.latentheads.runs.trained import SMALL

RIGHT = [f"le chien {i} a vu un chat bien-aimé le jour {i * i}" for i in range(40)]
GOOD = [line.replace("chat", "rat") if i % 4 == 0 else line for i, line in enumerate(RIGHT)]
POOR = [*RIGHT[:1], *(" ".join(line.split()[::-1]) for line in RIGHT[1:])]
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0"


def make_run(
    folder: Path,
    translations: list[str],
    references: list[str] = RIGHT,
    signature: str = SIGNATURE,
    step: int = 20,
) -> str:
    folder.mkdir()
    test = [{"name": "bleu", "value": 1, "signature": signature}]
    results = {"test": test, "reported_step": step}
    (folder / "results.json").write_text(json.dumps(results))
    write(folder / "test.translations.txt", translations)
    write(folder / "test.references.txt", references)
    return str(folder)


def write(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_runs_are_scored_beside_the_first(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "good", GOOD), make_run(tmp_path / "poor", POOR)]
    out = tmp_path / "scores.json"
    words = [*runs, "--paper", "wmt14", "--resamples", "100", "--seed", "5", "--json", str(out)]
    done = succeed("score.py", *words)
    assert done.stderr == ""
    good, poor = paired_bootstrap(GOOD, [POOR], RIGHT, True, "wmt14", resamples=100, seed=5)
    head, first, second, empty, sentences, tests, *signatures = done.stdout.splitlines()
    assert head.split()[:4] == ["run", "BLEU", "[95", "%]"]
    assert first.split()[:2] == [runs[0], f"{good.bleu.score:.2f}"]
    assert second.split()[-1] == "0.0099"
    assert f"{poor.chrf.score:.2f} [{poor.chrf.low:.2f}, {poor.chrf.high:.2f}]" in second
    assert (empty, sentences) == ("", "40 sentences of test")
    expected = "p is over sentences, of one run each; 3 tests, not corrected for their number"
    assert tests == expected
    assert [line.split("  ")[0].strip() for line in signatures] == ["BLEU", "chrF", "papers' BLEU"]
    assert signatures[0].endswith("|bs:100|seed:5|p:two-sided")
    assert "compound:split" in signatures[2]
    written = json.loads(out.read_text())
    assert (written["sentences"], written["tokenised"]) == (40, True)
    assert written["versions"]["latentheads"] == lh.__version__
    assert [system["run"] for system in written["systems"]] == runs
    assert written["systems"][0]["bleu"]["p"] is None
    assert written["systems"][1]["paper_bleu"]["score"] == poor.paper_bleu.score


def test_runs_of_different_steps_have_a_note(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(step), GOOD, step=step) for step in (300, 20_000)]
    done = succeed("score.py", *runs, "--resamples", "40")
    assert "40 sentences of test\nweights of different steps: 300 and 20,000\n" in done.stdout


def test_a_run_whose_text_has_no_case_is_scored_without_it(tmp_path: Path) -> None:
    lower = SIGNATURE.replace("case:mixed", "case:lc")
    run = make_run(tmp_path / "run", [line.upper() for line in RIGHT], signature=lower)
    lines = inside("score.py", run, "--resamples", "40").stdout.splitlines()
    assert lines[1].split()[1] == "100.00"
    assert "case:lc" in lines[4]


def test_text_files_stand_for_runs_and_a_lone_one_has_its_interval(tmp_path: Path) -> None:
    file, run = write(tmp_path / "good.txt", GOOD), make_run(tmp_path / "run", GOOD)
    right = ("--references", write(tmp_path / "right.txt", RIGHT))
    printed = succeed("score.py", file, *right, "--resamples", "50").stdout
    assert "tok:13a" in printed
    assert "p is over" not in printed
    assert "paper" not in printed
    both = succeed("score.py", run, file, *right, "--tokenised", "--resamples", "50")
    assert both.stdout.count("1.0000") == 2
    says = f"{file} holds raw text, {run} tokens: one kind is needed"
    assert_refused("score.py", run, file, *right, says=says)


def test_bleu_of_smoothing_alone_has_no_p(tmp_path: Path) -> None:
    lines = (["le cheval"] * 40, ["le"] * 40, GOOD)
    one, other, good = (write(tmp_path / f"{n}.txt", rows) for n, rows in enumerate(lines))
    out = tmp_path / "scores.json"
    words = ("--references", write(tmp_path / "right", RIGHT), "--resamples=50", "--json", str(out))
    printed = succeed("score.py", one, other, *words).stdout
    note = "no p of BLEU where neither system has a 4-gram match: smoothing makes both scores\n"
    assert printed.count(note) == 1
    assert "; 1 test\n" in printed
    first, second = json.loads(out.read_text("utf-8"))["systems"]
    assert (first["bleu"]["untested"], second["bleu"]["p"]) == ("", None)
    assert second["chrf"]["p"] is not None
    for systems in ((good, good), (good, one), (one, good)):
        assert "no p of" not in succeed("score.py", *systems, *words).stdout


@pytest.mark.parametrize(("sentences", "few"), [(1, 0), (2, 1), (29, 1), (30, 0)])
def test_few_sentences_are_named(sentences: int, few: int, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.txt", rows[:sentences]) for n, rows in enumerate((GOOD, POOR))]
    words = ("--references", write(tmp_path / "right", RIGHT[:sentences]), "--resamples=50")
    note = "fewer than 30 sentences: intervals are too narrow, and p too small\n"
    assert succeed("score.py", *files, *words).stdout.count(note) == few


def test_a_single_sentence_has_scores_and_neither_intervals_nor_tests(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.txt", [line]) for n, line in enumerate(("a b c", "a b d"))]
    out = tmp_path / "scores.json"
    words = ("--references", files[0], "--recognised", "--json", str(out))
    rows = succeed("score.py", *files, *words).stdout.splitlines()[1:3]
    assert [line.split()[1:] for line in rows] == [["0.00", "0.00"], ["33.33", "20.00"]]
    wer = json.loads(out.read_text("utf-8"), parse_constant=pytest.fail)["systems"][1]["wer"]
    assert (wer["low"], wer["high"], wer["p"]) == (None, None, None)


def test_whole_answers_are_scored_where_a_run_or_the_option_says_so(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "good", GOOD), make_run(tmp_path / "right", RIGHT)]
    words = ("--resamples", "50")
    plain = inside("score.py", *runs, *words).stdout
    asked = inside("score.py", *runs, "--accuracy", *words).stdout
    bleu = {"name": "bleu", "value": 1, "signature": SIGNATURE}
    results = {"test": [bleu, {"name": "accuracy", "value": 75.0}]}
    (tmp_path / "good" / "results.json").write_text(json.dumps(results))
    head, good, right, *_ = inside("score.py", *runs, *words).stdout.splitlines()
    assert "accuracy" not in plain
    assert asked.splitlines()[0] == head
    assert head.split()[:3] == ["run", "accuracy,", "%"]
    assert good.split()[1] == "75.00"
    assert right.split()[1:3] == ["100.00", f"{1 / 51:.4f}"]
    assert "edit distance  case:mixed|tok:none|norm:nfc|bs:50|" in asked


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Runs without latents, with logits that are drawn, and on another test part."""
    folder = tmp_path_factory.mktemp("beside")
    runs = {"plain": ["transformer"], "drawn": ["coda-cs"]}
    runs["other"] = ["transformer", "--data.held_out=7"]
    for name, more in runs.items():
        words = [*TINY, *SHORT, "--network.layers=1", "--recipe", *more]
        succeed("run.py", *words, "--out", str(folder / name))
    return tuple(folder / name for name in runs)


def test_log_p_is_compared_exact_where_it_is_known(
    tiny_run: Path, beside: tuple[Path, ...], tmp_path: Path
) -> None:
    runs, out = [beside[0], tiny_run, beside[1]], tmp_path / "said.json"
    words = ["--likelihood", "--resamples=50", "--json", str(out)]
    done = inside("score.py", *map(str, runs), *words)
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines, empty, signature, few, tested, meaning, note = done.stdout.splitlines()
    titles = "run log p nats per token [95 %] difference to the first [95 %] p"
    assert " ".join(head.split()) == titles
    assert [line.split()[:2] for line in lines] == [
        [str(run), kind] for run, kind in zip(runs, ("exact", "exact", "IWAE_2"), strict=True)
    ]
    assert empty == ""
    assert signature == "12 sentences of test, nats per token|bs:50|seed:12345|p:two-sided"
    assert few == "fewer than 30 sentences: intervals are too narrow, and p too small"
    assert tested.startswith("p is over sentences, of one run each; ")
    assert meaning.endswith("importance-weighted by 2 samples of the latents")
    assert note.startswith("≥: log p differs by at least this.")
    tests = [results_of(run)["test"] for run in runs]
    expected = [tests[0]["elbo"], tests[1]["exact"], tests[2]["iwae"]]
    record = json.loads(out.read_text("utf-8"))
    assert (record["sentences"], record["unit"]) == (12, "token")
    for system, figure, test in zip(record["systems"], expected, tests, strict=True):
        assert system["nats"]["score"] == pytest.approx(figure, abs=1e-6)
        assert system["tokens"] == test["tokens"]
        if system["difference"] is not None:
            assert system["difference"]["score"] == pytest.approx(figure - expected[0], abs=1e-6)
    assert [system["num_samples"] for system in record["systems"]] == [None, None, 2]
    assert record["systems"][0]["difference"] is None
    assert [system["log_p"] for system in record["systems"]] == ["exact", "exact", "IWAE"]


def test_a_bound_below_an_exact_log_p_shows_nothing_and_one_above_it_does() -> None:
    def one(kind: Any, *nats: float) -> SentenceLikelihoods:
        tokens = np.array([2.0, 3.0])
        draws = None if kind == "exact" else 8
        return SentenceLikelihoods(kind, np.array(nats), tokens, kind, draws, "sentences")

    exact, low, high = one("exact", -4, -5), one("IWAE", -6, -8), one("ELBO", -2, -3)
    runs = {"below": (exact, low), "above": (exact, high), "of less": (low, exact)}
    runs |= {"of more": (high, exact), "bounds": (low, high)}
    for name, pair in runs.items():
        comparisons = compare_runs(pair, 200, 0)
        _, second, *_ = to_record(pair, comparisons)["systems"]
        has_p = name in ("above", "of more", "bounds")
        assert (second["difference"]["p"] is not None) == has_p, name
        assert (second["nats"]["p"] is not None) == has_p, name
        relation = {"below": ">=", "above": ">=", "bounds": None}.get(name, "<=")
        assert second["log_p_differs_by"] == relation
    table = format_table([exact, high, low], compare_runs([exact, high, low], 200, 0))
    _, _, above, below, *notes = table.splitlines()
    assert (above.split()[1], below.split()[1]) == ("ELBO", "IWAE_8")
    assert below.endswith("]")
    assert "≥ 0.8000" in above
    assert [note.partition(":")[0] for note in notes[4:]] == ["ELBO", "IWAE_8", "≥"]
    assert "tightness" not in format_table([low, exact], compare_runs([low, exact], 200, 0))
    cut_otherwise = replace(high, tokens=high.tokens * 2)
    table = format_table([exact, cut_otherwise], compare_runs([exact, cut_otherwise], 200, 0))
    assert "nats per sentence [95 %]" in table
    assert "per sentence, not per token: the runs tokenise sentences differently" in table


@pytest.mark.parametrize(("pieces", "notes"), [("sentences", 0), ("blocks", 1)])
def test_blocks_of_running_text_are_called_dependent(pieces: str, notes: int) -> None:
    nats, tokens = np.array([-4.0, -5.0]), np.array([2.0, 3.0])
    run = SentenceLikelihoods("run", nats, tokens, "exact", None, pieces)
    table = format_table([run, run], compare_runs([run, run], 40, 0))
    assert table.count("\nblocks are resampled as if independent: of texts with several") == notes


def test_log_p_of_another_text_or_of_a_direction_is_refused(beside: tuple[Path, ...]) -> None:
    plain, _, other = map(str, beside)
    differ = f"{other} and {plain} have different test parts: one is needed"
    assert_refused("score.py", plain, other, "--likelihood", says=differ)
    single = f"{plain} has a single direction: drop --direction"
    assert_refused("score.py", plain, "--direction=en-fr", "--likelihood", says=single)


def test_the_beginning_of_a_text_is_another_text() -> None:
    whole = Part(Rows.of([[4, 2], [5, 2]]), None)
    assert _is_same_text(whole, Part(Rows.of([[4, 2], [5, 2]]), None))
    assert not _is_same_text(whole, whole.take([0]))
    assert not _is_same_text(whole, Part(Rows.of([[4, 2], [6, 2]]), None))


def test_log_p_of_sentences_and_of_blocks_is_refused_by_the_option(tmp_path: Path) -> None:
    data = ["--data", str(write_text(tmp_path / "text"))]
    runs = [str(tmp_path / name) for name in ("sentences", "blocks")]
    for run, block in zip(runs, ("0", "4"), strict=True):
        size = f"--data.block_size={block}"
        succeed("run.py", *data, size, *SMALL, *SHORT, "--guide=tied", "--out", run)
    differ = f"{runs[1]} and {runs[0]} have different test parts: data.block_size 4 and 0, one is"
    assert_refused("score.py", *runs, "--likelihood", says=differ)


MISTAKES = [
    ("run gone", "gone is not a run folder: a text file needs --references FILE"),
    ("run bare", "bare is not a finished run: cannot read its results.json"),
    ("run broken", "broken is not a finished run: cannot read its results.json"),
    ("run partial", "the report of partial has no translations: run.py goes on with it"),
    ("run text-model", "text-model has no scores: run.py makes them where the task is"),
    ("run half", "there is no file half/test.references.txt"),
    ("run other", "other and run have different references"),
    ("short", "translations of short must be as many as references, 40, got 39"),
    ("text", "text is not a run folder: a text file needs --references FILE"),
    ("run --references text", "--tokenised, --lowercase and --recognised are for text files"),
    ("run --likelihood", "run is not a run folder: it has no config.yaml"),
    ("run --likelihood --accuracy", "--accuracy is for scores of output: drop it, or --likelihood"),
    ("run --trust a:B --device cpu", "--device is for --likelihood"),
    ("run --json gone/scores.json", "--json: cannot write gone/scores.json: No such file"),
    ("", "the following arguments are required: RUN"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes")
    for name, lines in (("run", GOOD), ("half", GOOD), ("broken", GOOD), ("short", GOOD[1:])):
        make_run(path / name, lines)
    make_run(path / "other", GOOD, POOR)
    (path / "half" / "test.references.txt").unlink()
    (path / "broken" / "results.json").write_text("[]")
    make_run(path / "partial", GOOD)
    make_run(path / "text-model", GOOD)
    (path / "text-model" / "results.json").write_text('{"test": [{"name": "elbo", "value": -1.5}]}')
    lacking = {"test": [], "missing": {"translations": "out of memory"}}
    (path / "partial" / "results.json").write_text(json.dumps(lacking))
    (path / "bare").mkdir()
    (path / "bytes").write_bytes(b"\xff\xfe\n")
    write(path / "text", GOOD)
    return path


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_every_mistake_is_named_in_one_line(
    folder: Path, words: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert_refused("score.py", *words.split(), says=message)
