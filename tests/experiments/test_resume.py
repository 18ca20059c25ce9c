"""Killed, resumed, shared between processes, refused: what survives a process."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from latentheads.training import checkpoints
from tests.experiments.breaks import assert_same_ends, stopped_in, told
from tests.experiments.processes import ended, start
from tests.experiments.programs import TINY, assert_refused, inside, results_of, succeed

WORDS = [
    *TINY,
    "--network.layers=1",
    "--network.dropout=0.2",
    "--num_samples=2",
    "--train.tokens=128",
]
WORDS += ["--train.steps=8", "--train.report_every=4", "--train.checkpoint_every=1"]
WORDS += ["--train.accumulate=2"]


def reached(out: Path) -> int:
    try:
        return checkpoints.load(out / "checkpoints" / "last.safetensors")[1]["step"]
    except ValueError:
        return 0


def stamp(out: Path) -> int:
    """When the last checkpoint was written: whether to read it again."""
    last = out / "checkpoints" / "last.safetensors"
    return last.stat().st_mtime_ns if last.exists() else 0


def killed(words: list[str], out: Path, wait: int) -> None:
    """Starts a run and kills it so many steps after where it goes on."""
    before, seen = reached(out), stamp(out)
    process = start("run.py", *words, "--out", str(out), path=out.with_suffix(".said"))
    deadline = time.monotonic() + 120
    while process.is_alive():
        assert time.monotonic() < deadline
        time.sleep(random.random() * 0.02)
        if stamp(out) != seen:
            seen = stamp(out)
            if reached(out) >= before + wait:
                break
    process.kill()
    assert ended(process) == -signal.SIGKILL


@pytest.fixture(scope="module")
def half_way(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first checkpoints."""
    out = tmp_path_factory.mktemp("runs") / "half"
    with stopped_in(3):
        done = inside("run.py", *WORDS, "--out", str(out))
    assert (done.returncode, reached(out)) == (130, 2)
    return out


@pytest.fixture
def half(half_way: Path, tmp_path: Path) -> Path:
    """The same to be changed."""
    return Path(shutil.copytree(half_way, tmp_path / "half"))


def test_a_run_killed_again_and_again_ends_as_if_never_killed(tmp_path: Path) -> None:
    whole, other, words = tmp_path / "whole", tmp_path / "other", [*WORDS, "--loss.kl_warmup=6"]
    succeed("run.py", *words, "--out", str(whole))
    for updates in (2, 3):
        killed(words, other, updates)
    assert "resumed at step" in succeed("run.py", *words, "--out", str(other)).stdout
    assert_same_ends(whole, other)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_names_its_checkpoint(
    number: signal.Signals, tmp_path: Path
) -> None:
    out, given_path = tmp_path / "run", tmp_path / "said"
    process = start("run.py", *WORDS, "--train.steps=9999", f"--out={out}", path=given_path)
    deadline = time.monotonic() + 120
    while reached(out) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, number)
    assert ended(process) == 128 + number
    last = re.escape(str(out / "checkpoints" / "last.safetensors"))
    line = given_path.read_text().splitlines()[-1]
    stopped = re.fullmatch(rf"run.py: stopped after step (\d+): {last} is of step (\d+); .*", line)
    assert stopped is not None, line
    assert reached(out) == int(stopped[2]) <= int(stopped[1])
    assert [path.name for path in out.rglob(".*")] == [".lock"]


def shared(words: list[str], out: Path) -> str:
    """Runs in two processes, as torchrun starts them; gives what they printed."""
    suffix = out.with_suffix(".said")
    process = start("run.py", *words, "--device=cpu", "--out", str(out), path=suffix, ranks=2)
    assert ended(process) == 0, suffix.read_text()
    assert suffix.read_text().count("bound (ELBO)") == 1, "the first process alone prints"
    return suffix.read_text()


PLAIN = ["--recipe=transformer", "--trackers=tensorboard"]
ALIGNED = ["--guide=cascaded", "--loss=marginal", "--alignments.blocks=2", "--alignments.width=4"]
OF_PYRO = ["--recipe=transformer", "--loss=RenyiELBO"]
# not Adam: it makes whole steps of what float32 rounds away of a gradient near 0
DESCENT = ["--network.layers=1", "--train.optimizer=nag", "--train.optimizer.momentum=0"]
DESCENT += ["--train.learning_rate=0.5", "--train.warmup_steps=1"]


@pytest.mark.parametrize(
    "kind",
    [PLAIN, [*ALIGNED, *DESCENT], OF_PYRO],
    ids=["plain", "alignments", "a loss of Pyro's"],
)
def test_two_processes_give_the_loss_of_one(kind: list[str], tmp_path: Path) -> None:
    words = [*kind, *TINY, "--train.steps=4", "--train.report_every=2"]
    words += ["--train.tokens=128", "--num_samples=2"]
    one, two = tmp_path / "one", tmp_path / "two"
    succeed("run.py", *words, "--out", str(one))
    shared(words, two)
    for mine, theirs in zip(told(one), told(two), strict=True):
        assert mine["objective"] == pytest.approx(theirs["objective"], abs=1e-5)
        assert_same_figures(mine["valid"], theirs["valid"])
    assert_same_figures(results_of(one)["test"], results_of(two)["test"])
    assert bool(list(two.rglob("events.out.tfevents*"))) == (kind is PLAIN)
    first, second = checkpoints.load(two / "checkpoints" / "last.safetensors")[0]["noise.cpu"]
    assert not torch.equal(first, second), "each process goes on with its own"


def assert_same_figures(mine: dict, theirs: dict) -> None:
    """Of two reports: the bound, and what is exact of alignments."""
    exact = [name for name in ("exact", "gap", "information") if mine.get(name) is not None]
    for name in ("elbo", *exact):
        assert mine[name] == pytest.approx(theirs[name], abs=1e-5)
    assert all(mine[name] > 1e-4 for name in exact[1:]), "the guide has its own law, words say much"


def test_resuming_beside_another_validation_text_is_refused(half: Path) -> None:
    texts = half / "corpus.json"
    record = json.loads(texts.read_text(encoding="utf-8"))
    texts.write_text(json.dumps({**record, "valid": "another"}), encoding="utf-8")
    says = "was watched on another text: that of valid has changed since;"
    assert_refused("run.py", *WORDS, "--out", str(half), says=says, quiet=False)
    assert json.loads(texts.read_text(encoding="utf-8"))["valid"] == "another"


def test_a_damaged_record_of_the_text_loses_no_training(half: Path) -> None:
    (half / "corpus.json").write_text("")
    notes = succeed("run.py", *WORDS, "--out", str(half)).stderr
    assert f"note: whether the text of {half} has changed is not known: " in notes
    assert json.loads((half / "corpus.json").read_text(encoding="utf-8"))["valid"]


def test_another_vocabulary_is_named_and_not_the_parts_that_it_changes(half: Path) -> None:
    texts, vocabulary = half / "corpus.json", half / "vocabulary.json"
    record = json.loads(texts.read_text(encoding="utf-8"))
    texts.write_text(json.dumps(dict.fromkeys(record, "another")), encoding="utf-8")
    vocabulary.write_text(vocabulary.read_text(encoding="utf-8") + " ", encoding="utf-8")
    says = "was trained with another vocabulary: that of the training text has changed since;"
    assert_refused("run.py", *WORDS, "--out", str(half), says=says, quiet=False)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process may grow beyond a size, as on a disk that is full."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def test_a_full_disk_loses_no_finished_checkpoint(half: Path) -> None:
    last = half / "checkpoints" / "last.safetensors"
    before = last.read_bytes()
    with full_disk(20 * 1024):
        done = inside("run.py", *WORDS, "--out", str(half))
    assert done.returncode == 1
    assert f"cannot write {last}: File too large" in done.stderr.splitlines()[-1]
    assert last.read_bytes() == before
    assert inside("run.py", *WORDS, "--out", str(half)).returncode == 0


def test_patience_average_and_kept_weights(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*TINY, "--recipe=transformer", "--num_samples=2", "--train.steps=40"]
    words += ["--train.report_every=2", "--train.tokens=128", "--train.learning_rate=1e-9"]
    words += ["--train.average=3", "--train.keep=3", "--train.patience=4", "--train.metric=plug-in"]
    succeed("run.py", *words, "--out", str(out))
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    kept = [name for name in names if name.startswith("step-")]
    assert len(kept) == 3
    assert names == ["average.safetensors", "best.safetensors", "last.safetensors", *kept]
    mean, facts = checkpoints.load(out / "checkpoints" / "average.safetensors")
    parts = [checkpoints.load(out / "checkpoints" / name)[0] for name in kept]
    name = "model.encoder.layers.0.inner.attention.in_weight"
    assert torch.allclose(mean[name], torch.stack([p[name] for p in parts]).mean(0))
    assert facts["averaged"] == 3
    assert results_of(out)["steps"] == reached(out) < 40
