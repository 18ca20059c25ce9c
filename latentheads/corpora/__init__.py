"""Corpora: where the sentences come from, their words, and their batches."""

from latentheads.corpora.batches import batches, windows
from latentheads.corpora.corpus import Corpus, Part, grammar, grammar_sources
from latentheads.corpora.mixed import grammar_tasks, parallel_tasks
from latentheads.corpora.parallel import parallel
from latentheads.corpora.prose import prose
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
    "grammar",
    "grammar_sources",
    "grammar_tasks",
    "parallel",
    "parallel_tasks",
    "prose",
    "windows",
]
