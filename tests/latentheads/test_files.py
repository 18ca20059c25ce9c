"""Files of others: refused before they are built; our own: written whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from latentheads import files
from latentheads.files import finite


def test_no_more_of_a_file_is_read_than_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**40)  # no disk has so much of it
    for endless in (path, Path("/dev/zero")):
        with pytest.raises(ValueError, match=r"^at most 65,536 bytes are accepted, and it has m"):
            files.read_yaml(endless)
    path.write_text("12345")
    assert files.read_text(path, 5) == "12345"
    with pytest.raises(ValueError, match=r"^at most 4 bytes"):
        files.read_text(path, 4)


def test_what_is_no_text_costs_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^it is a folder$"):
        files.read_text(tmp_path)
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="decode byte 0xff"):
        files.read_text(tmp_path / "latin")
    assert files.read_text(tmp_path / "latin", errors="replace") == "\ufffd"
    with pytest.raises(FileNotFoundError):
        files.read_text(tmp_path / "gone")


def test_a_new_file_has_the_rights_of_any_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with files.atomic_write(path) as partial:
        partial.unlink()
        os.close(os.open(partial, os.O_CREAT, 0o600))  # as safetensors makes it
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_fails_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older")

    def write(mistake: BaseException) -> Any:
        with files.atomic_write(path) as partial:
            partial.write_text("new")
            raise mistake

    for mistake in (ValueError("ours"), KeyboardInterrupt()):
        with pytest.raises(type(mistake)):
            write(mistake)
    with pytest.raises(OSError, match=rf"^cannot write {path}: No space left$"):
        write(OSError(28, "No space left"))
    assert [(one_path.name, one_path.read_text()) for one_path in tmp_path.iterdir()] == [
        ("file", "older")
    ]


@pytest.mark.parametrize(("owner", "act"), [(os, "mkdir"), (shutil, "rmtree")])
def test_what_ctrl_c_ends_leaves_nothing_else(
    owner: Any, act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes after the folder was made, or before it is removed."""
    real, calls = getattr(owner, act), []

    def interrupt(*args: Any, **options: Any) -> None:
        calls.append(act)
        if act == "mkdir" or len(calls) > 1:
            real(*args, **options)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(owner, act, interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_text(tmp_path / "file", "new")
    assert {path.name for path in tmp_path.iterdir()} <= {"file"}


def test_a_pipe_is_written_to_and_read_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        content = reader.submit(files.read_json, pipe)
        files.write_json(pipe, {"a": math.nan})
        assert content.result(timeout=60) == {"a": None}
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


def test_a_folder_in_the_way_of_a_file_stays(tmp_path: Path) -> None:
    (tmp_path / "file" / "mine").mkdir(parents=True)
    with pytest.raises(OSError, match=rf"^cannot write {tmp_path / 'file'}: Is a directory$"):
        files.write_text(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file" / "mine").is_dir()


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "file").symlink_to(tmp_path / "mine")
    with files.atomic_write(tmp_path / "file") as partial:
        partial.write_text("new")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / "file").is_symlink()


def test_a_folder_is_kept_for_one_and_free_again_when_it_is_let_go(tmp_path: Path) -> None:
    lock = files.lock_folder(tmp_path)
    with pytest.raises(OSError, match="another process is writing it"):
        files.lock_folder(tmp_path)
    os.close(lock)
    os.close(files.lock_folder(tmp_path))


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (b"first\nlast\n\n", "last"),
        (b"", ""),
        (b"\n \n", ""),
        (b"x" * 9000 + b"\nend", "end"),
        (b"\xff", "\ufffd"),
    ],
)
def test_the_last_line_of_a_log_is_the_last_that_says_something(
    message: bytes, line: str, tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_bytes(message)
    assert files.last_line(tmp_path / "log.txt") == line
    assert files.last_line(tmp_path / "none.txt") == ""


def test_the_disk_knows_a_file_before_its_name_and_its_name_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    replace = Path.replace

    def sync(number: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{number}')).name}")

    def rename(self: Path, target: Path) -> Path:
        done.append(f"rename {self.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", rename)
    files.write_text(tmp_path / "a.txt", "x")
    assert done == ["sync whole", "rename whole", f"sync {tmp_path.name}"]


def test_a_folder_that_cannot_be_synced_is_an_error_where_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = [OSError(errno.EINVAL, "none"), OSError(errno.EIO, "broken")]
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=reasons))
    files.sync_folder(tmp_path)  # its file system has no such thing
    with pytest.raises(OSError, match="broken"):
        files.sync_folder(tmp_path)


def test_numbers_that_json_does_not_know_become_null_however_deep_they_stand() -> None:
    values = {"a": [1, math.nan, (math.inf, 2.5)], "b": {"c": -math.inf, "d": "nan", "e": None}}
    written = {"a": [1, None, [None, 2.5]], "b": {"c": None, "d": "nan", "e": None}}
    assert finite(values) == written
    assert json.loads(files.format_json(values)) == written


@pytest.mark.parametrize("name", ["a", "x" * 255, "ä" * 127])
def test_a_file_of_any_name_is_written_beside_those_of_any_other(tmp_path: Path, name: str) -> None:
    neighbours = [f"{name}.part"] if len(name) < 100 else []
    for neighbour in neighbours:
        (tmp_path / neighbour).write_text("mine")
    files.write_text(tmp_path / name, "new")
    assert (tmp_path / name).read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, *neighbours])
    assert all((tmp_path / neighbour).read_text() == "mine" for neighbour in neighbours)
