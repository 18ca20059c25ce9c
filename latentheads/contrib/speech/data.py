"""Speech from a folder of audio files with tables of their texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import NonNegativeFloat

from latentheads.contrib.speech.audio import AudioOptions
from latentheads.contrib.speech.corpus import speech
from latentheads.contrib.speech.features import Filterbank
from latentheads.contrib.speech.table import find_utterances, read_utterances, text_files
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Log
from latentheads.corpora.processor import MAX_LINE, TextOptions
from latentheads.corpora.text import PARTS
from latentheads.data.base import FolderData, name_of_folder
from latentheads.data.tasks import Tasks
from latentheads.options import Size, options_class


@options_class(kw_only=True)
class Speech(FolderData):
    """Speech from a folder with train.tsv, valid.tsv and test.tsv, or folders of these names.

    A table names in its first line the columns id, audio and tgt_text, with tabs between; audio is
    a file of any format of libsndfile. A folder has a text file beside each audio file. The extra
    ``speech`` is needed.

    Attributes:
        task: recognition: the target is what is spoken, scored by WER and CER; translation: its
            translation, scored by BLEU and chrF.
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
    """

    task: Literal["recognition", "translation"] = "recognition"
    tasks: Tasks | None = None
    vocab_size: Annotated[int, Ge(0), Le(2**24)] = 10_000
    lowercase: bool = False
    bins: int = Filterbank.bins
    top_frequency: int = Filterbank.high_freq
    max_seconds: NonNegativeFloat = AudioOptions.max_seconds
    max_line: Size = MAX_LINE
    max_train_samples: Size = 0
    is_speech = True

    def _check(self) -> None:
        super()._check()
        if self.tasks is not None:
            self.tasks.check_beside(self, (), "max_train_samples")
        _ = self.audio_options, self.mixture

    @property
    def is_recognition(self) -> bool:
        return self.task == "recognition"

    @property
    def default_source(self) -> str | None:
        """The language of the target where it is recognised; a translation has to name it."""
        return None if self.is_recognition else ""

    @property
    def name(self) -> str:
        if self.mixture is not None:
            return f"{name_of_folder(self.folder)} {','.join(self.mixture.names)}"
        task = "recognition" if self.is_recognition else "speech-translation"
        return f"{name_of_folder(self.folder)} {task}"

    @property
    def text_options(self) -> TextOptions:
        options = super().text_options
        return replace(options, max_line=self.max_line, max_seconds=self.max_seconds)

    @property
    def audio_options(self) -> AudioOptions:
        """How audio files are read."""
        return AudioOptions(Filterbank(self.bins, self.top_frequency), self.max_seconds)

    def _table(self, part: str) -> Path:
        """The table of a part, or its folder."""
        return find_utterances(self.path, part, self._stem(part))

    def _read(self, log: Log | None, scratch: Path | None) -> Corpus:
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
