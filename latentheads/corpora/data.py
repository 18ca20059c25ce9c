"""The options of a corpus: where its text is and how it is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from latentheads.checks import check_known, check_least, check_most, split_items
from latentheads.corpora.grammar import LANGUAGES
from latentheads.corpora.hub import HUB, PROSE
from latentheads.corpora.speech.audio import AudioOptions
from latentheads.corpora.speech.features import Filterbank
from latentheads.corpora.tasks import Mixture, Task, TaskKey
from latentheads.corpora.vocabulary import Unit
from latentheads.metrics.protocol import Protocol
from latentheads.values import convert_fields

__all__ = ["ENGLISH", "MADE", "OF_ONE_DIRECTION", "TASK_OPTIONS", "Data"]

MOST_DRAWN = 1_000_000
"""Sentences that are drawn from the grammar at most, in a minute or two."""

MOST_TYPES = 2**24
"""Types of a vocabulary at most: above it the tokenizer ends the process."""

ENGLISH = "en"
"""The name of the grammar's English-like side in a task."""

MADE = ("grammar", "pydoc")
"""Corpora that the library makes itself."""

SPEECH = ("recognition", "speech-translation")
"""Tasks whose source is sound."""

SPEECH_OPTIONS = ("bins", "top_frequency", "max_seconds")
"""Options that act on speech alone."""

TASK_OPTIONS = ("tasks", "task_sizes", "task_temperature", "one_task", "tell_apart")
"""Options that act on a corpus of tasks alone."""

OF_ONE_DIRECTION = ("references", "max_source")
"""Options that act on a corpus without tasks alone."""


@dataclass(frozen=True)
class Data:
    """The corpus.

    Attributes:
        data: ``grammar``, sentences drawn from a synchronous grammar whose exact log p(y | x) is
            known; ``pydoc``, the prose of Python's own reference; a corpus of the Hugging Face hub,
            ``multi30k``, ``iwslt14``, ``iwslt17`` or ``wmt14``, texts with their summaries,
            ``gigaword``, ``cnn_dailymail`` or ``scitldr``, or, for a language model,
            ``wikitext-2`` or ``wikitext-103``; or a folder with train.SOURCE and train.TARGET,
            valid.* and test.*, one sentence a line, for a language model train.txt, valid.txt and
            test.txt, .gz accepted, for speech train.tsv, valid.tsv and test.tsv.
        task: translation, or language-model (pydoc and wikitext: always; grammar: of its
            English-like side), or, of a folder of speech, recognition (into what is said, scored by
            WER and CER) or speech-translation (into another language, by BLEU and chrF).
        language: Target language of the grammar.
        sentences: Training sentences drawn from the grammar.
        held_out: Sentences of valid and of test drawn from the grammar.
        source: Language translated from, as files or columns are called: en, de, ...
        target: Language translated into.
        block: Tokens of the blocks that a running text is cut into, for a language model; 0 takes
            every line for a sentence alone.
        context: Report perplexity by windows too, each token with at least this many before it; 0:
            by blocks alone.
        unit: What a language model's text is made of: its words, or subwords learned by BPE.
        minimum: A word seen less often in training is unknown to a language model.
        train_name: How a folder's training files are called before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
        types: Subwords of a vocabulary, at most, learned from training by BPE; of speech 0 writes
            character by character.
        joint: One vocabulary for both sides.
        lowercase: Lower-case everything that the model sees and writes.
        tokenised: A translation's text is tokenised: keep its words, and score it as it is.
        max_source: Most subwords of a source, its end counted; the rest is cut off. 0: any. Not
            beside tasks.
        references: How a folder's held-out files of references are called behind the dot, several
            on a line with tabs between: ROUGE takes the nearest, all other figures are of the
            first. Empty: the target's own files. Not beside tasks.
        max_line: Most tokens of a line on either side, its end counted; 0: any. In training a
            longer one is left out, in valid and test it is refused; running text in blocks has any.
        max_length: Longest training sentence in words; 0: any.
        max_ratio: Training pairs whose lengths differ by more than this factor are left out, as
            the papers do with 1.5; 0: any.
        first: Use only the first training pairs, or lines, this many; 0: all.
        hub_path: Another repository of the hub than the known one, or local files.
        hub_config: Its configuration.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        tasks: Several directions of translation in one corpus, comma between: de (from the source
            language into it) or en-de, of a domain as bible:de or bible:en-de, a folder in that of
            data. The files of a direction may stand in a folder en-de of their own. Of the
            grammar: en, its languages, its domains news and talk. Of speech: languages, or en-de to
            translate, of a domain or a speaker as ann:en, by the columns of its tables. Empty:
            source into target alone.
        task_sizes: How many training pairs of each task are used, the first ones; empty: the same
            for all, by first or, for the grammar, by sentences.
        task_temperature: T of the share n^(1/T) that a task of n training pairs has in an epoch: 1
            takes every pair once, 5 is usual and gives small tasks more.
        one_task: Make each batch of one task, not of all.
        bins: Coefficients of a frame of sound, of which there are a hundred a second.
        top_frequency: Hertz where they end: at most half the lowest sampling rate of all files.
        max_seconds: Longest utterance: a longer one is left out of training, and refused in valid
            and test; 0: any.
        tell_apart: What model and guide may tell tasks apart by: language (the encoder by that of
            the source, the decoder by that of the target), domain, or, of speech, speaker.
    """

    data: str = MADE[0]
    task: Literal["translation", "language-model", "recognition", "speech-translation"] = (
        "translation"
    )
    language: str = next(iter(LANGUAGES))
    sentences: int = 20_000
    held_out: int = 500
    block: int = 0
    context: int = 0
    unit: Unit = "word"
    minimum: int = 1
    source: str = "de"
    target: str = "en"
    train_name: str = "train"
    valid_name: str = ""
    test_name: str = "test"
    types: int = 10_000
    joint: bool = True
    lowercase: bool = False
    tokenised: bool = False
    max_source: int = 0
    references: str = ""
    max_line: int = 1024
    max_length: int = 175
    max_ratio: float = 0.0
    first: int = 0
    hub_path: str = ""
    hub_config: str = ""
    cache: str = ""
    tasks: str = ""
    task_sizes: tuple[int, ...] = ()
    task_temperature: float = 1.0
    one_task: bool = False
    bins: int = Filterbank.bins
    top_frequency: int = Filterbank.high_freq
    max_seconds: float = AudioOptions.max_seconds
    tell_apart: TaskKey = "language"

    def __post_init__(self) -> None:
        convert_fields(self)
        check_known("language", self.language, LANGUAGES)
        check_least(
            vars(self), sentences=1, held_out=1, types=0 if self.is_speech else 1, minimum=1
        )
        check_most(vars(self), sentences=MOST_DRAWN, held_out=MOST_DRAWN, types=MOST_TYPES)
        _ = self.audio_options
        if self.is_speech and (self.made or self.from_hub):
            raise ValueError(
                f"task {self.task} needs a folder of speech as data, got {self.data!r}"
            )
        check_least(vars(self), first=0, block=0, max_source=0, max_line=0)
        if self.context < 0 or 0 < self.block <= self.context:
            most = f"lie in 0 ... {self.block - 1}, a block less one" if self.block else "be 0"
            raise ValueError(f"context must {most}, got {self.context}")
        if self.tasks:
            self._check_tasks()
        elif not (self.made or self.running or self.is_speech) and self.source == self.target:
            raise ValueError(f"source and target must differ, got {self.source!r} twice")

    def _check_tasks(self) -> None:
        if self.tell_apart == "speaker" and not self.is_speech:
            raise ValueError("tell_apart speaker is of speech: text has no speakers")
        mixture = self.mixture
        assert mixture is not None
        if self.alone:
            raise ValueError("tasks are directions of translation: a language model has none")
        if self.from_hub and any(task.domain for task in mixture.tasks):
            raise ValueError("a domain of a task is a folder: a corpus of the hub has none")
        for name in OF_ONE_DIRECTION:
            if getattr(self, name):
                raise ValueError(f"{name} is of one direction of translation: drop it, or tasks")
        if self.several:
            raise ValueError(f"{self.data} has several references of a text: drop tasks")
        if self.task_sizes and len(self.task_sizes) != len(mixture.tasks):
            raise ValueError(
                f"task_sizes must be one for each of the {len(mixture.tasks)} tasks, "
                f"got {len(self.task_sizes)}"
            )
        if min(self.task_sizes, default=1) < 1:
            raise ValueError(f"task_sizes must be at least 1, got {min(self.task_sizes)}")

    @property
    def is_speech(self) -> bool:
        """Whether the source is sound."""
        return self.task in SPEECH

    @property
    def is_recognition(self) -> bool:
        """Whether the target is what is said in the source."""
        return self.task == SPEECH[0]

    @property
    def alone(self) -> bool:
        """Whether there is no source, for a language model."""
        return self.running or self.task == "language-model"

    @property
    def audio_options(self) -> AudioOptions:
        """How files of sound are read."""
        return AudioOptions(Filterbank(self.bins, self.top_frequency), self.max_seconds)

    @property
    def begin(self) -> str | None:
        """The language that a task is translated from where it names none; see `Task.parse`."""
        if self.is_speech:
            return None if self.is_recognition else ""
        return ENGLISH if self.data == "grammar" else self.source

    @property
    def mixture(self) -> Mixture | None:
        """The tasks and how they are mixed; None where there are none."""
        if not self.tasks:
            return None
        tasks = tuple(Task.parse(text, self.begin) for text in split_items(self.tasks))
        return Mixture(tasks, self.tell_apart, self.task_temperature, self.one_task)

    @property
    def made(self) -> bool:
        """Whether the program makes the corpus itself."""
        return self.data in MADE

    @property
    def running(self) -> bool:
        """Whether it is text of one language, for a language model."""
        if self.data in ("pydoc", *PROSE):
            return True
        return not self.made and self.task == "language-model"

    @property
    def from_hub(self) -> bool:
        """Whether it is read with ``datasets``."""
        return bool(self.hub_path) or self.data in (*HUB, *PROSE)

    @property
    def several(self) -> bool:
        """Whether a held-out text may have several references."""
        return bool(self.references) or self.lists_targets

    @property
    def lists_targets(self) -> bool:
        """Whether every text, those of training too, has a list of targets."""
        return self.data in HUB and HUB[self.data].several

    @property
    def folder(self) -> Path:
        """Where the files are, if it is no corpus of the hub and not made."""
        return Path(self.data).expanduser()

    @property
    def name(self) -> str:
        """The name of the corpus."""
        name = os.path.basename(os.path.abspath(self.folder))
        if self.mixture is not None:
            return f"{name} {','.join(self.mixture.names)}"
        if self.is_speech:
            return f"{name} {self.task}"
        if self.data == "grammar":
            return f"grammar-{'sources' if self.task == 'language-model' else self.language}"
        return name if self.running else f"{name} {self.source}-{self.target}"

    @property
    def protocol(self) -> Protocol:
        """How the papers count BLEU on it: case counts unless their own text has none."""
        cased = not self.lowercase and (self.data not in HUB or HUB[self.data].cased)
        return "wmt14" if cased else "iwslt14"

    @property
    def words(self) -> bool:
        """Whether its lines are their tokens already."""
        return self.made or self.tokenised
