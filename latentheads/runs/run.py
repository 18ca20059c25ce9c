"""A run that was trained: its model and guide, its translations, texts and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, overload

from latentheads.analysis.head_report import HeadReport
from latentheads.batch import Batch
from latentheads.checks import check_choice, check_least, check_seed
from latentheads.corpora import Corpus, Part, Rows, Vocabulary
from latentheads.corpora.batches import collate
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.corpora.text import PARTS
from latentheads.decoding.translate import Decoding, translate_part
from latentheads.guide import ModelGuide
from latentheads.inference.evaluation import Report, evaluate
from latentheads.metrics.alignment import Link
from latentheads.model import Decoder
from latentheads.noise import fixed_noise
from latentheads.runs.alignment import align_lines, check_alignments
from latentheads.runs.build import changed_parts
from latentheads.runs.folder import TEXTS, read_metrics, read_results
from latentheads.runs.generation import (
    Sampling,
    check_ensemble,
    check_outputs_vary,
    continue_text,
    encode_sources,
    list_texts,
    raise_on_skip,
    sample_repeatedly,
    select_task,
    translate_lines,
)
from latentheads.runs.head_analysis import AnalysisOptions, analyse_heads
from latentheads.runs.parses import grammar_parses
from latentheads.runs.results import Results
from latentheads.runs.sampling_checks import check_is_stochastic
from latentheads.runs.settings import Settings
from latentheads.runs.transcription import check_is_speech, load_audio_files, transcribe_audio
from latentheads.values import make_group

__all__ = ["Run", "check_own_corpus", "check_vocabulary", "has_same_vocabulary"]


@dataclass(eq=False, repr=False)
class Run:
    """What a run folder holds.

    Attributes:
        path: The folder.
        settings: Everything that says what the run is.
        target: Target vocabulary.
        source: Source vocabulary; None for a language model.
        model: With its weights, in evaluation mode.
        guide: The same.
        step: Updates that the weights have seen.
        heads: The heads of every block that stayed, by their places in the whole network; None of a
            run that was not pruned.
        given: The corpus, where the reader has given it.
        averaged: How many checkpoints its weights are the average of; 0: they are those of one.
    """

    path: Path
    settings: Settings
    target: Vocabulary
    source: Vocabulary | None
    model: Decoder
    guide: ModelGuide
    step: int
    heads: dict[str, list[int]] | None = None
    given: Corpus | None = field(default=None, repr=False)
    averaged: int = 0

    def __repr__(self) -> str:
        sizes = (sum(p.numel() for p in each.parameters()) for each in (self.model, self.guide))
        counts = " + ".join(f"{size:,}" for size in sizes)
        title = f"{self.settings.title}, step {self.step:,}, {counts} parameters"
        return f"Run({str(self.path)!r}: {title})"

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus, made when it is first asked for.

        Raises:
            ValueError: It was made by hand, or its text has changed since.
        """
        if self.given is not None:
            return self.given
        if self.settings.in_memory:
            raise ValueError(f"{self.path} was trained on a corpus made by hand: give corpus")
        try:
            corpus = self.settings.data.load(keep=False)
        except ValueError as reason:
            raise ValueError(f"{self.path}: its corpus cannot be made again: {reason}") from reason
        check_own_corpus(self, corpus)
        return corpus

    @cached_property
    def results(self) -> Results | None:
        """What the run reported; None where it is not finished."""
        return read_results(self.path)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """What was noted at every evaluation while it trained."""
        return read_metrics(self.path)

    @property
    def block(self) -> int:
        """Tokens of the blocks of a running text; 0 for sentences."""
        return self.settings.data.block

    @overload
    def translate(
        self, sentences: Iterable[str], number: Literal[0] = 0, **options: Any
    ) -> list[str]: ...

    @overload
    def translate(
        self, sentences: Iterable[str], number: int, **options: Any
    ) -> list[list[str]]: ...

    def translate(
        self,
        sentences: Iterable[str],
        number: int = 0,
        *,
        direction: str | None = None,
        seed: int = 0,
        others: Sequence[Run] = (),
        **decoding: Any,
    ) -> list[str] | list[list[str]]:
        """Translates sentences.

        Args:
            sentences: Texts.
            number: 0: each is translated as the run's test part was. More: the number of
                translations of each, every one with heads drawn anew.
            direction: Of a run with several tasks: which, as en-de, de or bible:en-de.
            seed: Of the draws.
            others: Runs of the same corpus that write with it, by the mean law of all, each with
                its heads at their prior's location.
            **decoding: Other options than the run's own, those of
                :class:`latentheads.decoding.translate.Decoding`, such as ``beam``, or ``draws``,
                over which one translation averages.

        Returns:
            A translation of each sentence, or a list of them with a number.

        Raises:
            ValueError: An option is none, the run is a language model or draws nothing for a
                number, or the runs cannot write together.
            UnfinishedError: A sentence is too long for the run or for the machine.
        """
        lines = list_texts("sentences", sentences)
        check_least({"number": number}, number=0)
        check_seed(seed)
        task = select_task(self, direction)
        if number and others:
            raise ValueError(f"number must be 0 where several runs write together, got {number}")
        chosen = self._decode_with(decoding, number)
        check_ensemble(self, others, chosen)
        write = partial(translate_lines, self, lines, chosen, task, others=others)
        with fixed_noise(seed, self.model.device):
            return sample_repeatedly(write, number) if number else write()

    @overload
    def transcribe(
        self, files: Iterable[str | Path], number: Literal[0] = 0, **options: Any
    ) -> list[str]: ...

    @overload
    def transcribe(
        self, files: Iterable[str | Path], number: int, **options: Any
    ) -> list[list[str]]: ...

    def transcribe(
        self,
        files: Iterable[str | Path],
        number: int = 0,
        *,
        direction: str | None = None,
        seed: int = 0,
        **decoding: Any,
    ) -> list[str] | list[list[str]]:
        """Writes what is said in files of sound, or its translation, as the run was trained.

        Args:
            files: Wav, FLAC, Ogg, Opus, MP3, ...
            number: 0: each is transcribed as the run's test part was. More: the number of
                transcripts of each, every one with heads drawn anew.
            direction: Of a run with several tasks: which, as de, de-en or ann:en.
            seed: Of the draws.
            **decoding: Other options than the run's own, those of
                :class:`latentheads.decoding.translate.Decoding`, such as ``beam``, or ``draws``,
                over which one transcript averages.

        Returns:
            A transcript of each file, or a list of them with a number.

        Raises:
            ValueError: An option is none, or the run reads text or draws nothing for a number.
            UnfinishedError: A file cannot be heard, or is too long for the run or the machine.
        """
        check_least({"number": number}, number=0)
        check_seed(seed)
        check_is_speech(self)
        chosen = self._decode_with(decoding, number)
        heard = load_audio_files(self, files, task=select_task(self, direction))
        write = partial(transcribe_audio, self, heard, chosen)
        with fixed_noise(seed, self.model.device):
            return sample_repeatedly(write, number) if number else write()

    def _decode_with(self, options: dict[str, Any], number: int) -> Decoding:
        """The run's own decoding with some options changed; a number of texts is of one draw."""
        anew = {"draws": 1} if number else {}
        found = make_group(Decoding, asdict(self.settings.decode) | anew | options)
        if options.get("draws"):
            check_is_stochastic([self], "draws", ("heads", "selections"))
        if number:
            check_outputs_vary(self, found)
        return found

    def align(
        self, sentences: Iterable[str], translations: Iterable[str], *, direction: str | None = None
    ) -> list[list[Link]]:
        """Links the words of sentences with those of their translations, by the exact posterior.

        Args:
            sentences: Texts.
            translations: A translation of each: the run's own, or any other.
            direction: Of a run with several tasks: which, as en-de, de or bible:en-de.

        Returns:
            For each sentence pairs of places of its words and of its translation's, from 0, in
            order; see :func:`latentheads.runs.alignment.align_lines`. A line of Pharaoh's format is
            what :func:`latentheads.metrics.alignment.write_pharaoh` makes of them.

        Raises:
            ValueError: The run has no alignments, or there are not as many translations.
            UnfinishedError: A sentence is too long for the run or for the machine.
        """
        check_alignments(self)
        found = align_lines(self, sentences, translations, select_task(self, direction))
        return [sorted(links) for links in found]

    def read_sentence(
        self,
        sentence: str,
        target: str | None = None,
        *,
        direction: str | None = None,
        seed: int = 0,
    ) -> Batch:
        """A batch of one sentence with its translation, where the model is, as pictures read it.

        Args:
            sentence: A source sentence, a file of sound where the run hears, or a language model's
                own text.
            target: The translation; when not given, the run's own. A language model has none.
            direction: Of a run with several tasks: which, as en-de, de or bible:en-de.
            seed: Of the draws, where the run's own decoding takes any.

        Raises:
            ValueError: The sentence is empty, or the run has no such direction, or no target.
            UnfinishedError: It cannot be heard, or is too long for the run or for the machine.
        """
        check_seed(seed)
        if not isinstance(sentence, str | Path if self.settings.data.is_speech else str):
            raise ValueError(f"sentence must be a text, got {type(sentence).__name__}")
        if not isinstance(target, str | None):
            raise ValueError(f"target must be a text, got {type(target).__name__}")
        if self.source is None:
            if target is not None or direction is not None:
                raise ValueError(f"{self.path} is a language model: drop target and direction")
            part = Part(Rows.of([self.target.encode(sentence)]), None)
            return collate(part, [0]).to(self.model.device)
        part = self._encode(sentence, select_task(self, direction))
        if target is None:
            decoding = self.settings.decode
            with fixed_noise(seed, self.model.device):
                (target,) = translate_part(self.model, self.guide, self.target, part, decoding)
        told = replace(part, targets=self.target.encode_all([target]))
        return collate(told, [0]).to(self.model.device)

    def _encode(self, sentence: str, task: int | None) -> Part:
        """A sentence, or a file of sound where the run hears, without a target of its own."""
        if isinstance(self.source, Positions):
            return load_audio_files(self, [sentence], task=task).part
        if not sentence.strip():
            raise ValueError(f"sentence must hold a word, got {sentence!r}")
        return encode_sources(self, [sentence], task, raise_on_skip).part

    @overload
    def generate(self, prompt: str = "", number: Literal[0] = 0, **options: Any) -> str: ...

    @overload
    def generate(self, prompt: str, number: int, **options: Any) -> list[str]: ...

    def generate(
        self, prompt: str = "", number: int = 0, *, seed: int = 0, **sampling: Any
    ) -> str | list[str]:
        """Continues a text with tokens drawn one after another.

        Args:
            prompt: What the text begins with.
            number: 0: one text. More: a list of so many.
            seed: Of all draws.
            **sampling: How, options of :class:`latentheads.runs.generation.Sampling`, such as
                ``length``, ``temperature``, ``top_k``, and ``drawn`` for heads that are drawn too.

        Returns:
            A text, or a list of them with a number.

        Raises:
            ValueError: The prompt is no text, an option is none or acts on nothing, or the run is a
                translation.
        """
        if not isinstance(prompt, str):
            raise ValueError(f"prompt must be one text, got {prompt!r}")
        check_least({"number": number}, number=0)
        check_seed(seed)
        how = make_group(Sampling, sampling)
        if how.drawn:
            check_is_stochastic([self], "drawn")
        with fixed_noise(seed, self.model.device):
            texts = list(continue_text(self, how, prompt, number or 1))
        return texts if number else texts[0]

    def evaluate(
        self, part: Literal["train", "valid", "test"] = "test", samples: int | None = None
    ) -> Report:
        """The bound of a part of the corpus and its company, as the run reports them.

        Args:
            part: Which.
            samples: Draws of each sentence; the run's own number when not given.

        Raises:
            ValueError: There is no such part.
        """
        check_choice("part", part, PARTS)
        number = self.settings.samples if samples is None else samples
        text = getattr(self.corpus, part)
        return evaluate(self.model, self.guide, text, number, self.settings.seed)

    def read_heads(
        self, part: Literal["train", "valid", "test"] = "valid", **reading: Any
    ) -> HeadReport:
        """Reads the heads in every way: :func:`latentheads.plot.draw_maps` and its kin draw it.

        Args:
            part: The part of the corpus that is read.
            **reading: Options of :class:`latentheads.runs.head_analysis.AnalysisOptions`, such
                as ``sentences``, or ``draws``; dependencies are known of the grammar.

        Raises:
            ValueError: There is no such part, an option is none, no head attends, or ``draws`` is
                given and no head is drawn.
        """
        check_choice("part", part, PARTS)
        how = make_group(AnalysisOptions, reading)
        if how.draws:
            check_is_stochastic([self], "draws", ("heads", "alignments"))
        text = getattr(self.corpus, part).first(how.sentences)
        of_grammar = self.settings.data.has_parses
        parses = grammar_parses(text, self.corpus) if of_grammar else None
        return analyse_heads(self, text, how, parses)


def has_same_vocabulary(run: Run, corpus: Corpus) -> bool:
    """Whether a corpus has the tokens that a run was trained on."""
    sides = ((run.target, corpus.target), (run.source, corpus.source))
    return all((mine and mine.to_json()) == (its and its.to_json()) for mine, its in sides)


def check_vocabulary(run: Run, corpus: Corpus) -> None:
    """Refuses a corpus whose text has changed since the run was trained on it."""
    if not has_same_vocabulary(run, corpus):
        raise ValueError(
            f"{run.path} was trained with another vocabulary than its corpus gives now: "
            "the text has changed since"
        )


def check_own_corpus(run: Run, corpus: Corpus) -> None:
    """Refuses a corpus of other text than the run was trained, watched and reported on.

    A folder that has lost the file of its texts knows the vocabulary alone.
    """
    check_vocabulary(run, corpus)
    if changed := changed_parts(run.path / TEXTS, corpus):
        raise ValueError(
            f"{run.path} was trained on another corpus than its options give now: "
            f"the text of {', '.join(changed)} has changed since; one that was cut by hand is "
            "given as corpus"
        )
