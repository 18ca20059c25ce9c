"""Data classes: where a corpus is and how it is read.

``lh.data.Pairs("my-texts", source="en", target="de").load()`` is what ``--data pairs --data.folder
my-texts --data.source en --data.target de`` reads. ``latentheads.data.base.DATA`` is the
table of their names.
"""

from latentheads.batch import Batch
from latentheads.corpora.batches import batches
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.units import SubwordUnit, WordUnit
from latentheads.data.base import Data
from latentheads.data.grammar import Grammar, GrammarText
from latentheads.data.in_memory import InMemory
from latentheads.data.pairs import Hub, Pairs
from latentheads.data.running_text import HubText, PythonDocs, RunningText
from latentheads.data.tasks import Tasks

__all__ = [
    "Batch",
    "Corpus",
    "Data",
    "Grammar",
    "GrammarText",
    "Hub",
    "HubText",
    "InMemory",
    "Pairs",
    "PythonDocs",
    "RunningText",
    "SubwordUnit",
    "Tasks",
    "WordUnit",
    "batches",
]
