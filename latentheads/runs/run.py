"""A run: its settings, model, guide, corpus and results, with methods for using the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from latentheads.batch import Batch
from latentheads.checks import check_choice, check_instance, check_seed
from latentheads.corpora.batches import collate
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.processor import Processor
from latentheads.corpora.text import PARTS
from latentheads.data.base import Data, FolderData
from latentheads.decoding.options import DecodingKwargs
from latentheads.decoding.translate import translate_part
from latentheads.guide import ModelGuide
from latentheads.inference.evaluation import Report, evaluate
from latentheads.model import Decoder
from latentheads.noise import fixed_noise
from latentheads.options import from_dict
from latentheads.runs.build import changed_parts
from latentheads.runs.folder import TEXTS, read_metrics, read_results
from latentheads.runs.generation import (
    GenerationKwargs,
    Sampling,
    SamplingKwargs,
    Texts,
    TranslationKwargs,
    encode_sources,
    generate_texts,
    override_decoding,
    raise_on_skip,
    select_task,
    translate_texts,
)
from latentheads.runs.results import Results
from latentheads.runs.settings import Settings
from latentheads.runs.trained_model import TrainedModel


class TranslationByRuns(TranslationKwargs, total=False):
    """The other arguments of :meth:`Run.translate`."""

    others: Sequence[Run]


@dataclass(eq=False, repr=False)
class Run(TrainedModel):
    """A trained model with the other content of its run folder.

    Attributes:
        path: The run folder.
        settings: All settings of the run.
        processor: What encodes its text, with the vocabularies.
        model: The model with its weights, in evaluation mode.
        guide: The guide, in evaluation mode.
        step: The training step of the weights.
        heads: The remaining heads of every block of a pruned run, by their indices in the unpruned
            network; otherwise None.
        user_corpus: A corpus supplied by the user.
        averaged: Number of checkpoints whose average the weights are; 0: a single checkpoint.
        reads_with: A run with the same options of data, whose corpus this one uses too.
    """

    path: Path
    settings: Settings
    processor: Processor
    model: Decoder
    guide: ModelGuide
    step: int
    heads: dict[str, list[int]] | None = None
    user_corpus: Corpus | None = field(default=None, repr=False)
    averaged: int = 0
    reads_with: Run | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.name = str(self.path)

    def __repr__(self) -> str:
        modules = (self.model, self.guide)
        sizes = (sum(p.numel() for p in module.parameters()) for module in modules)
        counts = " + ".join(f"{size:,}" for size in sizes)
        title = f"{self.settings.title}, step {self.step:,}, {counts} parameters"
        return f"Run({str(self.path)!r}: {title})"

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus, made on first access.

        Raises:
            ValueError: It was user-supplied, or its text has changed since.
        """
        if self.user_corpus is not None:
            return self.user_corpus
        if self.settings.in_memory:
            raise ValueError(
                f"{self.path} was trained on a corpus in memory: give corpus= in Python"
            )
        if self.reads_with is not None:
            corpus = self.reads_with.corpus
        else:
            try:
                corpus = self.settings.data.load(keep=False)
            except ValueError as error:
                raise ValueError(_explain_corpus(self, error)) from error
        check_own_corpus(self, corpus)
        return corpus

    @cached_property
    def results(self) -> Results | Any:
        """The results of a finished run; otherwise None, which is ``Any`` to a type checker."""
        return read_results(self.path)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of every validation during training."""
        return read_metrics(self.path)

    @overload
    def translate(  # type: ignore[overload-overlap]
        self,
        sentences: str,
        *,
        num_return_sequences: None = None,
        **options: Unpack[TranslationByRuns],
    ) -> str: ...

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, sentences: str, *, num_return_sequences: int, **options: Unpack[TranslationByRuns]
    ) -> list[str]: ...

    @overload
    def translate(
        self,
        sentences: Iterable[str],
        *,
        num_return_sequences: None = None,
        **options: Unpack[TranslationByRuns],
    ) -> list[str]: ...

    @overload
    def translate(
        self,
        sentences: Iterable[str],
        *,
        num_return_sequences: int,
        **options: Unpack[TranslationByRuns],
    ) -> list[list[str]]: ...

    def translate(
        self,
        sentences: str | Iterable[str],
        *,
        num_return_sequences: int | None = None,
        direction: str | None = None,
        seed: int = 0,
        others: Sequence[Run] = (),
        **decoding: Unpack[DecodingKwargs],
    ) -> Texts:
        """Translates a sentence or several, as the test part was translated.

        Arguments are those of :func:`~latentheads.runs.generation.translate_texts`. ``decoding``
        overrides the run's :class:`~latentheads.decoding.options.Decoding`, as with
        ``num_beams=5``.
        """
        if isinstance(others, Run) or not all(isinstance(other, Run) for other in others):
            one_or_other = "one" if isinstance(others, Run) else others
            raise ValueError(f"others must be a list of runs, got {one_or_other}")
        return translate_texts(
            self,
            sentences,
            override_decoding(self, self.settings.decode, decoding, num_return_sequences),
            num_return_sequences,
            direction=direction,
            seed=seed,
            others=others,
        )

    def read_sentence(
        self,
        sentence: str,
        target: str | None = None,
        *,
        direction: str | None = None,
        seed: int = 0,
    ) -> Batch:
        """A batch of a sentence and its translation, as plots and analyses take it.

        Args:
            sentence: A source sentence, an audio file for a speech model, or the text of a language
                model.
            target: The translation; None for the model's own. A language model has none.
            direction: The task of a model with several tasks, as en-de, de or bible:en-de.
            seed: Seed of sampling in the beam search.

        Raises:
            ValueError: The sentence is empty, or the model has no such direction, or no target.
            UnfinishedError: It is too long for the model or for memory, or an unusable audio file.
        """
        check_seed(seed)
        processor, device = self.processor, self.model.device
        for name, text in (("sentence", sentence), ("target", "" if target is None else target)):
            check_instance(name, text, str | Path, "one text")
        if processor.reads_text and not sentence.strip():
            raise ValueError(f"sentence must contain a word, got {sentence!r}")
        if self.source is None:
            if target is not None or direction is not None:
                raise ValueError(f"{self.name} is a language model: drop target and direction")
            return collate(processor.encode([sentence]), [0]).to(device)
        task = select_task(self, direction)
        if processor.reads_text:
            part = encode_sources(self, [sentence], task, raise_on_skip).part
        else:
            part = processor.encode([sentence], task=task)
        if target is None:
            decoding = self.settings.decode
            with fixed_noise(seed, device):
                (target,) = translate_part(self.model, self.guide, self.target, part, decoding)
        part = replace(part, targets=self.target.encode_all([processor.normalise(target)]))
        return collate(part, [0]).to(device)

    @overload
    def generate(  # type: ignore[overload-overlap]
        self,
        prompts: str = "",
        *,
        num_return_sequences: None = None,
        **options: Unpack[GenerationKwargs],
    ) -> str: ...

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: str = "", *, num_return_sequences: int, **options: Unpack[GenerationKwargs]
    ) -> list[str]: ...

    @overload
    def generate(
        self,
        prompts: Iterable[str],
        *,
        num_return_sequences: None = None,
        **options: Unpack[GenerationKwargs],
    ) -> list[str]: ...

    @overload
    def generate(
        self,
        prompts: Iterable[str],
        *,
        num_return_sequences: int,
        **options: Unpack[GenerationKwargs],
    ) -> list[list[str]]: ...

    def generate(
        self,
        prompts: str | Iterable[str] = "",
        *,
        num_return_sequences: int | None = None,
        seed: int = 0,
        **sampling: Unpack[SamplingKwargs],
    ) -> Texts:
        """Samples the continuation of a prompt, or of several.

        ``sampling`` are options of :class:`~latentheads.runs.generation.Sampling`, such as
        ``max_new_tokens`` and ``temperature``; see
        :func:`~latentheads.runs.generation.generate_texts`.
        """
        options = from_dict(Sampling, sampling)
        return generate_texts(self, prompts, options, num_return_sequences, seed=seed)

    def evaluate(
        self, part: Literal["train", "valid", "test"] = "test", *, num_samples: int | None = None
    ) -> Report:
        """Evaluates the bound and the other metrics on a part of the corpus.

        Args:
            part: train, valid or test.
            num_samples: Samples of the latents for each sentence; by default the run's own number.
        """
        check_choice("part", part, PARTS)
        number = self.settings.num_samples if num_samples is None else num_samples
        text, seed = getattr(self.corpus, part), self.settings.seed
        return evaluate(self.model, self.guide, text, num_samples=number, seed=seed)


def _explain_corpus(run: Run, error: ValueError) -> str:
    """Why the corpus of a run cannot be made again, and what helps: its folder may have moved."""
    data, option = run.settings.data, "the options of data"
    reason = str(error)
    if isinstance(data, FolderData) and not data.path.is_dir():
        reason, option = f"there is no folder {data.path.absolute()}", "data.folder"
    return (
        f"{run.path}: its corpus cannot be made again: {reason}; "
        f"correct {option} in {run.path / 'config.yaml'}, or give corpus= in Python"
    )


def share_corpora(runs: Iterable[Run]) -> None:
    """Lets runs with the same options of data read their corpus once; one given is its run's."""
    first_runs: dict[Data, Run] = {}
    for run in runs:
        if run.user_corpus is not None:  # it may be another than the options give
            continue
        first = first_runs.setdefault(run.settings.data, run)
        run.reads_with = None if first is run else first


def has_same_vocabulary(run: Run, corpus: Corpus) -> bool:
    """Whether a corpus has the tokens that a run was trained on."""
    sides = ((run.target, corpus.target), (run.source, corpus.source))
    return all((mine and mine.to_json()) == (its and its.to_json()) for mine, its in sides)


def check_vocabulary(run: Run, corpus: Corpus) -> None:
    """Validates that a corpus has the text on which the run was trained."""
    if not has_same_vocabulary(run, corpus):
        raise ValueError(
            f"{run.path} was trained with another vocabulary than its corpus gives now: "
            "the text has changed since"
        )


def check_own_corpus(run: Run, corpus: Corpus) -> None:
    """Validates that a corpus has the text on which the run was trained, validated and tested.

    If the folder has lost the file of its texts, the vocabulary alone is compared.
    """
    check_vocabulary(run, corpus)
    if changed := changed_parts(run.path / TEXTS, corpus):
        raise ValueError(
            f"{run.path} was trained on another corpus than its options give now: "
            f"the text of {', '.join(changed)} has changed since; one that was cut by hand is "
            "given as corpus"
        )
