"""Corpora: where the sentences come from, their words, and their batches."""

from latentheads.corpora.batches import batches, windows
from latentheads.corpora.corpus import Corpus, Part
from latentheads.corpora.rows import Rows
from latentheads.corpora.stream import Place, Stream, Update
from latentheads.corpora.vocabulary import Vocabulary, Words

__all__ = [
    "Corpus",
    "Part",
    "Place",
    "Rows",
    "Stream",
    "Update",
    "Vocabulary",
    "Words",
    "batches",
    "windows",
]
