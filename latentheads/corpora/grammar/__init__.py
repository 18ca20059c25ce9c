"""Probabilistic synchronous grammar: English-like sources, five invented target languages.

Every sentence comes with its exact probabilities, word alignment and dependencies, so that a
translation model can be compared with the true distribution.
"""

from latentheads.corpora.grammar.choice import DOMAINS
from latentheads.corpora.grammar.languages import LANGUAGES
from latentheads.corpora.grammar.sentences import Sentence, sample
from latentheads.corpora.grammar.syntax import Arc, log_p_sources

ENGLISH = "en"
"""The name of the English-like side in a task."""

__all__ = [
    "DOMAINS",
    "ENGLISH",
    "LANGUAGES",
    "Arc",
    "Sentence",
    "log_p_sources",
    "sample",
]
