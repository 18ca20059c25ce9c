"""Corpora: how they are made or read, their vocabularies, batches and loaders."""

from latentheads.corpora.batches import batches, windows
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.loader import BatchLoader, LoaderState, PartLoader, Step, StepLoader
from latentheads.corpora.multi_task import parallel_tasks
from latentheads.corpora.part import Part
from latentheads.corpora.processor import Processor
from latentheads.corpora.rows import Rows
from latentheads.corpora.running_text import text_corpus
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Vocabulary, Words

__all__ = [
    "BatchLoader",
    "Corpus",
    "LoaderState",
    "Mixture",
    "Part",
    "PartLoader",
    "Processor",
    "Rows",
    "Step",
    "StepLoader",
    "Task",
    "Vocabulary",
    "Words",
    "batches",
    "parallel_tasks",
    "text_corpus",
    "windows",
]
