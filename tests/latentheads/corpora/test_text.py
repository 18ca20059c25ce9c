"""Plain text: lines as they stand in the file, parts by their names, mistakes in one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from latentheads.corpora.text import (
    find_file,
    iterate_lines,
    normalise_whitespace,
    read_lines,
    read_pairs,
    split_punctuation,
)


def refused(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(ValueError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_bytes(text.encode())


def test_symbols_are_split_off_as_punctuation_is() -> None:
    assert split_punctuation("$5 (6\u20ac) a+b") == ["$", "5", "(", "6", "\u20ac)", "a+b"]


def test_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    write(tmp_path, a="eins\x85zwei\n\n drei\u2028vier \t\r\nfünf\x0bsechs\rsieben")
    expected = ["eins\x85zwei", "", " drei\u2028vier \t", "fünf\x0bsechs\rsieben"]
    assert read_lines(tmp_path / "a") == expected


@pytest.mark.parametrize(
    ("text", "lines"),
    [("a", ["a"]), ("a\n", ["a"]), ("a\n\n", ["a", ""]), ("\n", [""]), ("\ufeffa\n", ["a"])],
)
def test_only_the_last_newline_and_the_mark_are_no_line(
    tmp_path: Path, text: str, lines: list[str]
) -> None:
    write(tmp_path, a=text)
    assert read_lines(str(tmp_path / "a")) == lines


def test_broken_bytes_are_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\nth\xfcee\n")
    assert refused(read_lines, path).startswith(f"{path}, line 3: byte 0xfc is not UTF-8")
    path.write_bytes(b"one\nt\0wo\n")
    assert refused(read_lines, path).startswith(f"{path}, line 2: a NUL byte; text in UTF-8 has")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert refused(read_lines, tmp_path / "a") == f"there is no file {tmp_path / 'a'}"
    assert refused(read_lines, tmp_path) == f"cannot read {tmp_path}: Is a directory"
    write(tmp_path, e="")
    assert refused(read_lines, tmp_path / "e").startswith(f"{tmp_path / 'e'} is empty")


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(b"a\n" * 99, mtime=0)[:-9]])
def test_a_broken_compressed_file_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.gz").write_bytes(data)
    assert f"cannot read {tmp_path / 'a.gz'}: " in refused(read_lines, tmp_path / "a.gz")


@pytest.mark.parametrize("ending", ["a", "a.gz"])
def test_lines_come_while_they_are_read(tmp_path: Path, ending: str) -> None:
    path, data = tmp_path / ending, b"eins\n\r\ndrei\nvi\xffer\nf\0nf\n"
    path.write_bytes(gzip.compress(data) if path.suffix else data)
    lines = iterate_lines(path)
    assert [next(lines) for _ in range(3)] == ["eins", "", "drei"]
    assert refused(next, lines).startswith(f"{path}, line 4: byte 0xff is not UTF-8")
    assert list(lines) == []


def test_nothing_is_opened_before_the_first_line_is_asked_for(tmp_path: Path) -> None:
    lines = iterate_lines(tmp_path / "a")
    assert refused(next, lines) == f"there is no file {tmp_path / 'a'}"
    write(tmp_path, b="")
    assert refused(next, iterate_lines(tmp_path / "b")).startswith(f"{tmp_path / 'b'} is empty")


@pytest.mark.parametrize("ending", ["a", "a.gz"])
def test_a_byte_order_mark_is_left_out_of_the_first_line_alone(tmp_path: Path, ending: str) -> None:
    path, data = tmp_path / ending, "\ufeff\ufeffeins\n\ufeffzwei\n\ufeff".encode()
    path.write_bytes(gzip.compress(data) if path.suffix else data)
    assert list(iterate_lines(path)) == ["\ufeffeins", "\ufeffzwei", "\ufeff"]


@pytest.mark.parametrize("name", ["valid.de", "val.de", "dev.de", "dev.de.gz"])
def test_a_part_is_found_by_any_of_its_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x\n")
    assert find_file(tmp_path, "valid", "de") == tmp_path / name


def test_a_plain_file_and_the_full_name_come_first(tmp_path: Path) -> None:
    write(tmp_path, dev_de="x", valid_de_gz="x", valid_de="x")
    assert find_file(str(tmp_path), "valid", "de") == tmp_path / "valid.de"


def test_another_stem_is_used_alone(tmp_path: Path) -> None:
    write(tmp_path, test_2016_de="x", test_de="x")
    (tmp_path / "test.2016.de").rename(tmp_path / "test_2016.de")
    assert find_file(tmp_path, "test", "de", stem="test_2016") == tmp_path / "test_2016.de"
    refusal = refused(find_file, tmp_path, "test", "de", stem="mt")
    assert "has no mt.de or mt.de.gz; it has" in refusal


def test_a_missing_part_says_what_the_folder_has(tmp_path: Path) -> None:
    message = f"{tmp_path} has no train.de or train.de.gz; it has "
    assert refused(find_file, tmp_path, "train", "de") == message + "no file"
    write(tmp_path, train_en="x", dev_de="x")
    assert refused(find_file, tmp_path, "train", "de") == message + "dev.de, train.en"
    write(tmp_path, **{f"x{n}": "x" for n in range(20)})
    assert refused(find_file, tmp_path, "train", "de").endswith("x16, x17 and 10 more")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    expected = f"there is no folder {gone}, where train.de was looked for"
    assert refused(find_file, gone, "train", "de") == expected


def test_pairs_are_line_by_line(tmp_path: Path) -> None:
    write(tmp_path, train_de="ja\nnein\n", train_en="yes\nno\n")
    assert read_pairs(tmp_path, "train", "de", "en") == [("ja", "yes"), ("nein", "no")]
    assert read_pairs(tmp_path, "test", "en", "de", stem="train")[0] == ("yes", "ja")


def test_unequal_files_are_refused_with_both_counts(tmp_path: Path) -> None:
    write(tmp_path, train_de="ja\nnein\n", train_en="yes\n")
    refusal = refused(read_pairs, tmp_path, "train", "de", "en")
    assert refusal.startswith(f"lines of {tmp_path}/train.de must be as many as")


@pytest.mark.parametrize(
    ("line", "normalised"),
    [
        ("one two", "one two"),
        ("\t one \t\t two  three \t", "one two three"),
        (" \t ", ""),
        ("", ""),
        ("a\xa0 \u3000b\x85\rc\u2028", "a\xa0 \u3000b\x85\rc\u2028"),
    ],
)
def test_runs_of_blanks_and_tabs_become_one_blank(line: str, normalised: str) -> None:
    assert normalise_whitespace(line) == normalised


def test_a_line_without_runs_of_blanks_is_not_copied() -> None:
    line = " ".join(["one", "two", "three"])
    assert normalise_whitespace(line) is line
