"""Words of a sound with their times and intervals: as JSON, subtitles, or a TextGrid of Praat."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from latentheads.contrib.heads.boundaries.chain import BoundaryTimes


@dataclass(frozen=True)
class WordTime:
    """A word with its times, in seconds.

    Attributes:
        word: The word.
        start: When it starts.
        low: Lower end of the interval of its start.
        high: Upper end of it.
        end: When it ends: where the next one starts, or its part of the sound ends, unless ends
            were learned.
        end_low: Lower end of the interval of its learned end; None unless ends were learned. Where
            that is after the next start, ``end`` is this start, and may lie below the interval.
        end_high: Upper end of it.
    """

    word: str
    start: float
    low: float
    high: float
    end: float
    end_low: float | None = None
    end_high: float | None = None


def to_word_times(
    words: Sequence[str], times: dict[str, BoundaryTimes], duration: float, offset: float = 0.0
) -> list[WordTime]:
    """The words of a sound, or of a part of it, with the times that alignment heads gave them.

    Args:
        words: The words.
        times: What :meth:`~latentheads.contrib.heads.AlignmentHeads.times` returns.
        duration: Seconds of the sound.
        offset: Seconds at which it starts.
    """
    starts = times["starts"]
    # intervals may reach beyond the sound, and times of a word may not go back
    start = np.maximum.accumulate(starts.median.clamp(0, duration).numpy())
    ends = times["ends"].median.numpy() if "ends" in times else np.append(start[1:], duration)
    ends = np.clip(ends, start, np.append(start[1:], duration))
    learned = [times[kind] for kind in ("starts", "ends") if kind in times]
    bounds = [end.clamp(0, duration) for kind in learned for end in (kind.low, kind.high)]
    columns = (start, *bounds[:2], ends, *bounds[2:])
    rows = np.round(np.stack([np.asarray(column) for column in columns], 1) + offset, 3).tolist()
    return [WordTime(word, *row) for word, row in zip(words, rows, strict=True)]


def to_json(words: Sequence[WordTime], duration: float) -> str:
    """A list of objects with word, start, low, high and end, and the interval of a learned end."""
    return json.dumps([*map(_columns, words)], ensure_ascii=False, indent=1) + "\n"


def to_csv(words: Sequence[WordTime], duration: float) -> str:
    """A table with the columns that JSON has, and their names in the first line."""
    names = _columns(words[0] if words else WordTime("", 0, 0, 0, 0))
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_columns, words))
    return text.getvalue()


def _columns(word: WordTime) -> dict[str, Any]:
    return {name: value for name, value in asdict(word).items() if value is not None}


def to_srt(words: Sequence[WordTime], duration: float) -> str:
    """Subtitles, one for each word."""
    entries = (
        f"{index}\n{_clock(word.start)} --> {_clock(word.end)}\n{word.word}\n"
        for index, word in enumerate(words, 1)
    )
    return "\n".join(entries)


def _clock(seconds: float) -> str:
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, rest = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02},{rest:03}"


def to_textgrid(words: Sequence[WordTime], duration: float) -> str:
    """A tier of words, and tiers of points at their starts and learned ends, with intervals.

    All are without words of no length: Praat has no such interval, and one point at a time.
    """
    words = [word for word in words if word.end > word.start]
    spans: list[tuple[float, float, str]] = []
    # as times are, which are rounded otherwise: no interval may end after its tier
    last, duration = 0.0, max([round(duration, 3), *(word.end for word in words)])
    for word in words:
        spans += [(last, word.start, "")] if word.start > last else []
        spans.append((word.start, word.end, word.word))
        last = word.end
    spans += [(last, duration, "")] if duration > last else []
    tiers: dict[str, list[Any]] = {"starts": [(word.start, word.low, word.high) for word in words]}
    if any(word.end_low is not None for word in words):
        tiers["ends"] = [(word.end, word.end_low, word.end_high) for word in words]
    lines = [
        'File type = "ooTextFile"\nObject class = "TextGrid"\n',
        f"xmin = 0\nxmax = {duration}\ntiers? <exists>\nsize = {1 + len(tiers)}\nitem []:",
        f'    item [1]:\n        class = "IntervalTier"\n        name = "words"\n'
        f"        xmin = 0\n        xmax = {duration}\n        intervals: size = {len(spans)}",
    ]
    lines += [
        f"        intervals [{index}]:\n            xmin = {first}\n            xmax = {stop}\n"
        f"            text = {_quote(text)}"
        for index, (first, stop, text) in enumerate(spans, 1)
    ]
    for number, (name, points) in enumerate(tiers.items(), 2):
        lines.append(
            f'    item [{number}]:\n        class = "TextTier"\n        name = "{name}"\n'
            f"        xmin = 0\n        xmax = {duration}\n        points: size = {len(points)}"
        )
        lines += [
            f"        points [{index}]:\n            number = {time}\n"
            f"            mark = {_quote(f'{low} to {high}')}"
            for index, (time, low, high) in enumerate(points, 1)
        ]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


FORMATS: dict[str, Callable[[Sequence[WordTime], float], str]] = {
    "json": to_json,
    "csv": to_csv,
    "srt": to_srt,
    "TextGrid": to_textgrid,
}
"""How words with times are written, by the ending of the file."""
