"""Corpora: how they are made or read, their vocabularies, batches and loaders."""

from latentheads.corpora.batches import batches, windows
from latentheads.corpora.calls import (
    folder_pairs,
    folder_speech,
    folder_tasks,
    folder_text,
    grammar,
    grammar_tasks,
    grammar_text,
    hub_pairs,
    hub_tasks,
    hub_text,
    python_docs,
    speech_tasks,
)
from latentheads.corpora.corpus import Corpus, Part
from latentheads.corpora.data import Data
from latentheads.corpora.from_options import make_corpus
from latentheads.corpora.loader import BatchLoader, LoaderState, PartLoader, Step, StepLoader
from latentheads.corpora.multi_task import parallel_tasks
from latentheads.corpora.parallel import PairOptions, parallel
from latentheads.corpora.rows import Rows
from latentheads.corpora.running_text import text_corpus
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Vocabulary, Words

__all__ = [
    "BatchLoader",
    "Corpus",
    "Data",
    "LoaderState",
    "Mixture",
    "PairOptions",
    "Part",
    "PartLoader",
    "Rows",
    "Step",
    "StepLoader",
    "Task",
    "Vocabulary",
    "Words",
    "batches",
    "folder_pairs",
    "folder_speech",
    "folder_tasks",
    "folder_text",
    "grammar",
    "grammar_tasks",
    "grammar_text",
    "hub_pairs",
    "hub_tasks",
    "hub_text",
    "make_corpus",
    "parallel",
    "parallel_tasks",
    "python_docs",
    "speech_tasks",
    "text_corpus",
    "windows",
]
