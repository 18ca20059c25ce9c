"""Sentences of a synchronous grammar whose exact log p(y | x) is known; no file is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from annotated_types import Ge, Le

from latentheads.corpora.corpus import Corpus
from latentheads.corpora.from_grammar import sample_pairs, sample_tasks, sample_text_corpus
from latentheads.corpora.grammar import ENGLISH
from latentheads.corpora.grammar.languages import LANGUAGES
from latentheads.corpora.part import Log
from latentheads.data.base import Data
from latentheads.data.tasks import Tasks
from latentheads.errors import shown
from latentheads.options import OptionError, options_class

MOST_SENTENCES = 1_000_000
"""Maximum number of sentences; sampling them takes a minute or two."""

Sentences = Annotated[int, Ge(1), Le(MOST_SENTENCES)]


@options_class(kw_only=True)
class _Sampled(Data):
    """Options of all sentences that are sampled from the grammar.

    Attributes:
        sentences: Number of training sentences, per task if there are several.
        held_out: Number of sentences of valid, and of test.
    """

    sentences: Sentences = 20_000
    held_out: Sentences = 500
    has_parses = True  # every sentence has the tree that it was sampled with
    is_tokenised = True


@options_class(kw_only=True)
class Grammar(_Sampled):
    """Pairs sampled from a synchronous grammar whose exact log p(y | x) is known.

    No held-out source sentence occurs in the training part.

    Attributes:
        language: Target language. mirel has a free word order: which source word is translated
            next is not known before the target word is there. Not with tasks.
        tasks: Several directions of translation or domains in place of one language: ``velu`` (from
            the English-like side into it), ``tamir-en``, or of a domain, ``news:velu``.

    Example:
        >>> lh.data.Grammar(language="tamir", sentences=50, held_out=5).load().test
        Part(5 sentences, 32 target tokens)
    """

    language: str = "mirel"
    tasks: Tasks | None = None

    def _check(self) -> None:
        super()._check()
        if self.language not in LANGUAGES:
            choices = ", ".join(LANGUAGES)
            raise OptionError("language", f" must be one of {choices}; got {shown(self.language)}")
        if self.tasks is not None:
            self.tasks.check_beside(self, ("language",), "sentences")
        _ = self.mixture

    @property
    def default_source(self) -> str | None:
        return ENGLISH

    @property
    def name(self) -> str:
        if self.mixture is not None:
            return f"grammar {','.join(self.mixture.names)}"
        return f"grammar-{self.language}"

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        if self.tasks is None or self.mixture is None:
            return sample_pairs(self.sentences, self.held_out, self.language)
        sizes = self.tasks.sizes_or(self.sentences)
        return replace(sample_tasks(self.mixture, sizes, self.held_out), name=self.name)


@options_class(kw_only=True)
class GrammarText(_Sampled):
    """The grammar's English-like side alone, for a language model; its exact log p(x) is known."""

    name = "grammar-sources"
    is_language_model = True

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        return sample_text_corpus(self.sentences, self.held_out)
