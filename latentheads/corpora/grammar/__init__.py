"""Probabilistic synchronous grammar: English-like sources, four invented target languages.

Every sentence comes with its exact probabilities, word alignment and dependencies, so that a
translation model can be compared with the true distribution.
"""

from latentheads.corpora.grammar.choice import DOMAINS
from latentheads.corpora.grammar.languages import LANGUAGES
from latentheads.corpora.grammar.sentences import Sentence, sample
from latentheads.corpora.grammar.syntax import Arc, log_p_sources

__all__ = [
    "DOMAINS",
    "LANGUAGES",
    "Arc",
    "Sentence",
    "log_p_sources",
    "sample",
]
