"""Corpora: where the sentences come from, their words, and their batches."""

from latentheads.corpora.batches import batches, forever
from latentheads.corpora.corpus import Corpus, Part
from latentheads.corpora.vocabulary import Vocabulary

__all__ = ["Corpus", "Part", "Vocabulary", "batches", "forever"]
