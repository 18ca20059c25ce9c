"""Speech from a folder of audio files with tables of their texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from latentheads.checks import check_least
from latentheads.corpora.speech.audio import AudioOptions
from latentheads.corpora.speech.features import Filterbank
from latentheads.corpora.speech.table import find_utterances, read_utterances, text_files
from latentheads.corpora.text import PARTS
from latentheads.data.base import MAX_LINE, Cached, Log, name_of_folder
from latentheads.data.folder import check_folder
from latentheads.data.tasks import Tasks

if TYPE_CHECKING:
    from latentheads.corpora.corpus import Corpus

__all__ = ["Speech"]


@dataclass(frozen=True, kw_only=True)
class Speech(Cached):
    """Speech from a folder with train.tsv, valid.tsv and test.tsv, or folders of these names.

    A table names in its first line the columns id, audio and tgt_text, tabs between; audio is
    whatever libsndfile reads. A folder has a file of text beside each of audio. Needs the extra
    ``speech``.

    Attributes:
        folder: Where the tables, or the folders of the parts, are.
        task: recognition writes what is spoken, scored by WER and CER; translation its translation,
            scored by BLEU and chrF.
        tasks: Several languages, domains or speakers in place of one.
        vocab_size: Subwords of the text, at most, learned from training by BPE; 0: characters.
        lowercase: Lower-case everything that the model writes.
        bins: Coefficients of a frame of audio, of which there are a hundred a second.
        top_frequency: Upper end of them in hertz: at most half the lowest sampling rate of all
            files.
        max_seconds: Longest utterance: a longer one is left out of training, and an error in valid
            and test; 0: any.
        max_line: Most tokens of a text, and most positions of 40 ms of an utterance; 0: any.
        max_train_samples: Use the first training utterances only, this many; 0: all.
        train_name: Name of the table of training before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
    """

    folder: str = field(default="", kw_only=False)
    task: Literal["recognition", "translation"] = "recognition"
    tasks: Tasks | None = None
    vocab_size: int = 10_000
    lowercase: bool = False
    bins: int = Filterbank.bins
    top_frequency: int = Filterbank.high_freq
    max_seconds: float = AudioOptions.max_seconds
    max_line: int = MAX_LINE
    max_train_samples: int = 0
    train_name: str = "train"
    valid_name: str = ""
    test_name: str = "test"

    def _check(self) -> None:
        if self.vocab_size:
            super()._check()
        check_least(vars(self), max_train_samples=0, max_line=0, vocab_size=0)
        if not self.folder:
            raise ValueError("folder must name a folder of speech")
        _ = self.audio_options, self.mixture

    @property
    def is_speech(self) -> bool:
        """The source is audio."""
        return True

    @property
    def is_recognition(self) -> bool:
        """Whether the target is what is spoken in the source."""
        return self.task == "recognition"

    @property
    def default_source(self) -> str | None:
        """The language of the target where it is recognised; a translation has to name it."""
        return None if self.is_recognition else ""

    @property
    def name(self) -> str:
        """The folder's name, and the task or the tasks."""
        if self.mixture is not None:
            return f"{name_of_folder(self.folder)} {','.join(self.mixture.names)}"
        task = "recognition" if self.is_recognition else "speech-translation"
        return f"{name_of_folder(self.folder)} {task}"

    @property
    def audio_options(self) -> AudioOptions:
        """How audio files are read."""
        return AudioOptions(Filterbank(self.bins, self.top_frequency), self.max_seconds)

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        check_folder(self.folder)
        return super()._make(log, keep)

    def _table(self, part: str) -> Path:
        """The table of a part, or its folder."""
        folder = Path(self.folder).expanduser()
        return find_utterances(folder, part, getattr(self, f"{part}_name", "") or None)

    def _read(self, log: Log | None, scratch: Path | None) -> Corpus:
        from latentheads.corpora.speech.corpus import speech

        train, valid, test = (read_utterances(self._table(part)) for part in PARTS)
        return speech(
            self.name,
            train if self.tasks else islice(train, self.max_train_samples or None),
            valid,
            test,
            replace(self.audio_options, folder=scratch),
            vocab_size=self.vocab_size,
            lowercase=self.lowercase,
            max_line=self.max_line,
            log=log,
            mixture=self.mixture,
            sizes=self.tasks.sizes_or(self.max_train_samples) if self.tasks else (),
        )

    def _files(self) -> Iterable[Path]:
        tables = [self._table(part) for part in PARTS]
        audio = [utterance.audio for table in tables for utterance in read_utterances(table)]
        return [*(text for table in tables for text in text_files(table)), *audio]
