"""Corpora: where the sentences come from, their words, and their batches."""

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
from latentheads.corpora.mixed import parallel_tasks
from latentheads.corpora.parallel import PairOptions, parallel
from latentheads.corpora.prose import prose
from latentheads.corpora.rows import Rows
from latentheads.corpora.stream import BatchStream, Place, Stream, Update, UpdateStream
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Vocabulary, Words

__all__ = [
    "BatchStream",
    "Corpus",
    "Data",
    "Mixture",
    "PairOptions",
    "Part",
    "Place",
    "Rows",
    "Stream",
    "Task",
    "Update",
    "UpdateStream",
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
    "prose",
    "python_docs",
    "speech_tasks",
    "windows",
]
