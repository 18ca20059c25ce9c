"""Corpora: where the sentences come from, their words, and their batches."""

from latentheads.corpora.batches import batches, windows
from latentheads.corpora.corpus import Corpus, Part
from latentheads.corpora.rows import Rows
from latentheads.corpora.stream import Place, Stream, Update
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Vocabulary, Words

__all__ = [
    "Corpus",
    "Mixture",
    "Part",
    "Place",
    "Rows",
    "Stream",
    "Task",
    "Update",
    "Vocabulary",
    "Words",
    "batches",
    "windows",
]
