"""A run folder: what may be used, what is refused untouched, what a kill leaves behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from latentheads.files import TEMPORARY_PREFIX, lock_folder
from latentheads.runs.folder import REPORT_FILES, TENSORBOARD, Folder, distinct_names
from latentheads.runs.results import Results
from tests.figures import rows_of

OPTIONS = "width: 8\nguide:\n  class: cascaded\n"


def folder(path: Path, configuration: str = OPTIONS, overwrite: bool = False) -> Folder:
    return Folder(path, configuration, overwrite)


FIGURES = {"elbo": -1.5, "log_likelihood": -1.0, "kl": 0.5, "iwae": -1.25, "plug_in": -1.0}
PART = rows_of({**FIGURES, "iwae_k": 2, "tokens": 7, "effective_sample_size": 1.5})
RESULTS: dict[str, Any] = {
    **{"seed": 0, "parameters": 5, "tokens_per_second": 3.0, "head_divergence": None},
    **{"head_divergence_by_attention_type": {}, "kl_by_site": {}, "kl_how": {}},
    **{"valid": PART, "test": PART},
}
"""As little as tables can be made of."""


def line(step: int, bound: float = -1.5) -> dict[str, Any]:
    """A line of ``metrics.jsonl``."""
    valid = {**FIGURES, "elbo": bound}
    return {"step": step, "objective": -2.0, "tokens_per_second": 3.0, "valid": valid}


def steps(actual: Any) -> list[int]:
    return [record["step"] for record in actual.metrics()]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was stopped after step 6, its last checkpoint at step 4."""
    run_folder = folder(tmp_path / "run")
    run_folder.begin()
    for step in (2, 4, 6):
        run_folder.append(line(step))
    for name in ("last", "best", "average", "step-0000004"):
        (tmp_path / "run" / "checkpoints" / f"{name}.safetensors").write_text(name)
    return tmp_path / "run"


def everything(path: Path) -> dict[str, tuple[bytes | None, int]]:
    paths = [path, *path.rglob("*")]
    return {
        str(one): (one.read_bytes() if one.is_file() else None, one.lstat().st_mtime_ns)
        for one in paths
    }


def refused(path: Path, *given: Any) -> str:
    """The refusal's one line; nothing there is changed."""
    top = path if path.is_dir() else path.parent
    before = everything(top)
    with pytest.raises(ValueError) as caught:
        folder(path, *given)
    assert "\n" not in str(caught.value)
    assert before == everything(top)
    return str(caught.value)


def test_the_metrics_of_a_finished_run_are_not_read(run: Path) -> None:
    with mock.patch.object(Folder, "metrics", autospec=True, side_effect=Folder.metrics) as read:
        folder(run)
        assert read.call_count == 1  # they are found to be readable before anything is trained
        (run / "results.json").write_text(json.dumps(RESULTS))
        assert folder(run).results is not None
    assert read.call_count == 1


def test_a_new_folder_is_made_when_it_begins_and_no_sooner(tmp_path: Path) -> None:
    run_folder = folder(tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []
    assert run_folder.is_new
    assert run_folder.results is None
    assert not run_folder.resumable
    run_folder.begin()
    names = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert names == [".lock", "checkpoints", "config.yaml", "metrics.jsonl"]
    assert steps(run_folder) == []


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "results.json", "checkpoints", "heads.json", "bound.png"]
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_stranger_is_refused(tmp_path: Path, name: str, overwrite: bool) -> None:
    (tmp_path / name).mkdir()
    refusal = refused(tmp_path, OPTIONS, overwrite)
    assert refusal == f"{tmp_path} is not a run folder, but contains {name}: choose another out"


def test_another_run_is_refused_with_what_differs(run: Path) -> None:
    refusal = refused(run, OPTIONS.replace("8", "16") + "a: 1\nb: x\nc: [1]\nd: 2\n")
    assert refusal == (
        f"{run} holds a run with other options (width 8 there, 16 here; "
        "a None there, 1 here; b None there, x here; 2 more): "
        "choose another out or --overwrite (overwrite=True in Python)"
    )
    refusal = refused(run, OPTIONS.replace("cascaded", "other") + "a: 1\n")
    assert "(guide.class cascaded there, other here; a None there, 1 here)" in refusal


def test_text_may_be_named_in_two_ways(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "text")
    run = tmp_path / "run"
    folder(run, f"data: {{folder: {tmp_path}/text}}\nstart: {tmp_path}\n").begin()
    same = f"data: {{folder: {tmp_path}/run/../link, cache: cache}}\nstart: {tmp_path}/run/..\n"
    folder(run, same)
    for other in (tmp_path, tmp_path / "nowhere", "grammar"):
        message = (
            r"options \(data.folder /.*/text there, .* here\): .*; if it was only moved, correct "
            r"data\.folder in .*/run/config\.yaml$"
        )
        with pytest.raises(ValueError, match=message):
            folder(run, f"data: {{folder: {other}}}\nstart: {tmp_path}\n")
    folder(tmp_path / "other", f"words: {tmp_path}/text\n").begin()
    with pytest.raises(ValueError, match=r"other options \(words /.*/text there, .* here\)"):
        folder(tmp_path / "other", f"words: {tmp_path}/link\n")


@pytest.mark.parametrize("text", ["a: \xff\n", "a: [\n b: {\n", "", "my notes"])
def test_a_configuration_that_is_none_is_refused(run: Path, text: str) -> None:
    path = run / "config.yaml"
    path.write_bytes(text.encode("latin-1"))
    assert "cannot read" in (refusal := refused(run))
    assert f"{path}" in refusal
    assert "choose another out" in refusal
    path.unlink()
    path.mkdir()
    assert "cannot read" in refused(run)


def test_a_place_where_nothing_can_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    why = f"{tmp_path / 'file'} is not a folder to write into"
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        assert refused(path) == f"cannot write the run folder {path}: {why}"


def test_a_finished_run_need_not_be_writable(run: Path) -> None:
    folder(run).write("results.json", json.dumps(RESULTS))
    before = everything(run)
    with mock.patch("tempfile.TemporaryFile", side_effect=PermissionError(13, "Permission denied")):
        assert folder(run).results == Results.read(RESULTS)
        assert before == everything(run)
        assert "is not a folder to write into" in refused(run, OPTIONS, True)


def test_going_on_drops_what_will_be_made_again(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "bou')
    run_folder = folder(run)
    assert run_folder.resumable
    assert steps(run_folder) == [2, 4, 6]
    run_folder.begin(last_step=4)
    assert steps(run_folder) == [2, 4]
    assert (run / "metrics.jsonl").read_text().count("\n") == 2
    assert run_folder.last.read_text() == "last"
    run_folder.append(line(6))
    assert steps(run_folder) == [2, 4, 6]


def test_a_half_written_line_is_cut_before_the_next_is_added(run: Path) -> None:
    whole = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(whole[:-4])
    run_folder = folder(run)
    assert steps(run_folder) == [2, 4]
    run_folder.begin(last_step=6)
    run_folder.append(line(8))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 8]


def test_without_its_last_checkpoint_a_run_begins_anew(run: Path) -> None:
    (run / "checkpoints" / "last.safetensors").unlink()
    run_folder = folder(run)
    assert not run_folder.resumable
    run_folder.begin()
    assert steps(run_folder) == []
    assert list((run / "checkpoints").iterdir()) == []


def test_overwriting_leaves_no_weights_and_no_results_of_the_other_run(run: Path) -> None:
    (run / TENSORBOARD).mkdir()
    events = f"{TENSORBOARD}/events.out.tfevents.1.a"
    for name in ("results.json", "notes.txt", events, *REPORT_FILES):
        folder(run).write(name, json.dumps(RESULTS))
    run_folder = folder(run, "width: 16\n", True)
    assert run_folder.results is None
    assert not run_folder.resumable
    run_folder.begin()
    assert list((run / "checkpoints").iterdir()) == []
    assert (run / "config.yaml").read_text() == "width: 16\n"
    assert steps(run_folder) == []
    assert list((run / TENSORBOARD).iterdir()) == []
    left = {".lock", "checkpoints", "config.yaml", "metrics.jsonl", "notes.txt", TENSORBOARD}
    assert {path.name for path in run.iterdir()} == left


BROKEN = ["", "{", "{}", "\0" * 9, json.dumps({**RESULTS, "valid": 1})]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_results_are_made_again(run: Path, text: str) -> None:
    (run / "results.json").write_text(text)
    run_folder = folder(run)
    assert run_folder.results is None
    assert run_folder.resumable


def test_broken_results_without_a_checkpoint_cost_no_weights(run: Path) -> None:
    """Training would begin anew and remove the weights that are whole."""
    (run / "results.json").write_text("{}")
    (run / "checkpoints" / "last.safetensors").unlink()
    assert "is a finished run whose results.json cannot be read, and it has no" in refused(run)
    assert folder(run, OPTIONS, True).is_new


DAMAGE = [
    *("", "\n", "{}", "\xff", "\0" * 9),
    json.dumps(line(4)),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_costs_itself_alone(run: Path, damage: str) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines()
    lines[2:2] = [damage.encode("latin-1")]
    (run / "metrics.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    assert steps(folder(run)) == [2, 4, 6]


def test_a_line_is_on_the_disk_before_the_next_step(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda held: messages.append(os.pread(held, 10**6, 0)))
    folder(run).append(line(8))
    assert messages == [(run / "metrics.jsonl").read_bytes()]


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


CALLS = ("mkdir", "unlink", "touch", "write_text", "chmod", "replace")


@pytest.mark.parametrize("same", [False, True], ids=["killed", "broken-off"])
@pytest.mark.parametrize("at", range(12))
def test_killed_while_it_begins_a_folder_may_be_begun_again(
    tmp_path: Path, at: int, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process, or by this one, as a notebook does after Ctrl-C."""
    count = 0

    def counting(name: str) -> Callable[..., Any]:
        original = getattr(Path, name)

        def call(self: Path, *given: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > at:
                raise Killed
            return original(self, *given, **options)

        return call

    run_folder = folder(tmp_path / "run")
    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(Path, name, counting(name))
        try:
            run_folder.begin()
        except Killed:
            pass
        else:
            assert at == 11
    run_folder.release()  # as the system does
    again = run_folder if same else folder(tmp_path / "run")
    again.begin()
    assert (tmp_path / "run" / "config.yaml").read_text() == OPTIONS
    assert (tmp_path / "run" / "checkpoints").is_dir()


def test_a_folder_is_kept_for_one_run_until_it_is_released(tmp_path: Path) -> None:
    first, second = folder(tmp_path), folder(tmp_path)
    first.begin()
    with pytest.raises(OSError, match="another process is writing it"):
        second.begin()
    first.release()
    folder(tmp_path).begin()


@pytest.mark.parametrize("options", [OPTIONS, "width: 16\n"])
def test_what_another_process_has_finished_meanwhile_is_left_alone(
    tmp_path: Path, options: str
) -> None:
    """Both looked before either began: the later one must not replace what the first has done."""
    path = tmp_path / "run"
    first, second = folder(path), folder(path, options)
    first.begin()
    first.write("results.json", json.dumps(RESULTS))
    first.release()
    before = everything(path)
    with pytest.raises(OSError, match="another process has written it meanwhile; run the same"):
        second.begin()
    after = everything(path)
    assert before.pop(str(path / ".lock")) == after.pop(str(path / ".lock"))
    assert before == after
    assert folder(path).results == Results.read(RESULTS)
    folder(path, "width: 16\n", True).begin()


def test_a_checkpoint_written_since_it_looked_stops_a_run(run: Path) -> None:
    first, second = folder(run), folder(run)
    first.begin(4)
    first.last.unlink()
    first.last.write_text("newer")
    first.release()
    with pytest.raises(OSError, match="another process has written it meanwhile"):
        second.begin(4)
    assert first.last.read_text() == "newer"


def test_a_lock_that_the_system_refuses_is_not_another_process(run: Path) -> None:
    refuse = mock.patch("fcntl.flock", side_effect=OSError(37, "No locks available"))
    message = r"^cannot write the run folder .*: No locks available$"
    with refuse, pytest.raises(OSError, match=message):
        folder(run).begin()


def test_a_run_goes_on_with_more_steps_and_with_nothing_else(tmp_path: Path) -> None:
    def made(steps: int, guide: str = "tied") -> Folder:
        options = f"guide:\n  class: {guide}\ntrain:\n  steps: {steps}\n"
        return folder(tmp_path, options)

    first = made(4)
    first.begin()
    first.last.touch()
    first.release()
    assert made(4).previous_steps is None
    assert made(6).previous_steps == 4
    for changed in ({"steps": 2}, {"steps": 6, "guide": "cascaded"}):
        with pytest.raises(ValueError, match="holds a run with other options"):
            made(**changed)  # type: ignore[arg-type]


def test_checkpoints_are_in_the_order_of_their_steps(run: Path) -> None:
    names = [folder(run).step_checkpoint(step).name for step in (12, 9_999_999, 10_000_000)]
    for name in reversed(names):
        (run / "checkpoints" / name).touch()
    assert [path.name for path in folder(run).step_checkpoints][1:] == names


def test_what_a_kill_left_of_a_file_is_removed_and_nothing_else(run: Path) -> None:
    checkpoints = run / "checkpoints"
    left = [index / f"{TEMPORARY_PREFIX}a1b2c3d4" for index in (run, checkpoints)]
    for path in left:
        path.mkdir()
        (path / ".tmpA1b2C3").write_text("x")
    stay = [run / "thesis.part", checkpoints / ".tmpA1b2C3", run / f"{TEMPORARY_PREFIX}mine"]
    for path in stay:
        path.write_text("x")
    folder(run).begin(4)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in stay)


def test_what_a_kill_left_behind_its_last_file_is_removed_unless_it_is_written(run: Path) -> None:
    folder(run).write("results.json", json.dumps(RESULTS))
    left = run / f"{TEMPORARY_PREFIX}a1b2c3d4"
    left.mkdir()
    lock = lock_folder(run)
    assert folder(run).results
    assert left.exists()
    os.close(lock)
    assert folder(run).results
    assert not left.exists()
    os.close(lock_folder(run))


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "checkpoints/best.safetensors"])
def test_what_a_link_inside_a_run_leads_to_stays(
    run: Path, name: str, overwrite: bool, tmp_path: Path
) -> None:
    mine = (run / name).rename(tmp_path / "mine")
    (run / name).symlink_to(mine)
    before = mine.read_bytes()
    again = folder(run, overwrite=overwrite)
    again.begin(0 if overwrite else 4)
    again.append({"step": 99})
    assert mine.read_bytes() == before


def test_checkpoints_may_be_on_another_disk(run: Path, tmp_path: Path) -> None:
    elsewhere = (run / "checkpoints").rename(tmp_path / "elsewhere")
    (run / "checkpoints").symlink_to(elsewhere)
    again = folder(run)
    again.begin(4)
    again.write("checkpoints/last.safetensors", "new")
    assert (elsewhere / "last.safetensors").read_text() == "new"
    assert (run / "checkpoints").is_symlink()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, overwrite: bool) -> None:
    for name in (".lock", "log.txt", "report.html", "slurm-1.out", ".DS_Store"):
        (tmp_path / name).write_text("")
    folder(tmp_path, overwrite=overwrite)
    for name in ("thesis.tex", "\x1b[31mred"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError) as caught:
        folder(tmp_path, overwrite=overwrite)
    assert str(caught.value) == (
        f"{tmp_path} is not a run folder, but contains \x1b[31mred and 1 more: choose another out"
    )


def test_names_are_as_long_as_tells_runs_apart() -> None:
    assert distinct_names([Path("a/x"), Path("b/y/")]) == ["x", "y"]
    assert distinct_names([Path("/a/b/x"), Path("/a/c/x")]) == ["b/x", "c/x"]
    assert distinct_names([Path("/x"), Path("/a/x")]) == ["/x", "a/x"]
