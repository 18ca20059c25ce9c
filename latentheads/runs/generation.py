"""Text that a run writes: translations of lines, and continuations of prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from latentheads.batch import BOS, EOS, SPECIALS, UNK, Batch
from latentheads.corpora import Part, Vocabulary
from latentheads.corpora.from_options import CHARACTERS
from latentheads.corpora.multi_task import tag_of
from latentheads.decoding.ensemble import ensemble_search
from latentheads.decoding.sampling import sample_text
from latentheads.decoding.translate import Decoding, Found, Lose, texts_of, translate, work_through
from latentheads.errors import UnfinishedError, in_a_line, lacks_memory
from latentheads.guide import WithSelection
from latentheads.runs.sampling_checks import check_draws
from latentheads.values import shown

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = [
    "Encoded",
    "Sampling",
    "check_drawn_anew",
    "check_together",
    "continue_or_lose",
    "continue_text",
    "decode_text",
    "encode_pairs",
    "encode_prompt",
    "encode_sources",
    "find_task",
    "list_texts",
    "lose_nothing",
    "translate_lines",
    "unknown_words",
    "write_anew",
]

TOGETHER = 64
"""Continuations drawn side by side."""


@dataclass(frozen=True)
class Encoded:
    """Some lines, or files of sound, as a part of a corpus; the others are empty or lost.

    Attributes:
        part: Those that can be read.
        places: The place of each among all.
        total: How many there are in all.
    """

    part: Part
    places: Sequence[int]
    total: int

    def spread(self, found: Iterable[Found], empty: Found) -> list[Found]:
        """What was found of each, at its place among all."""
        every = [empty] * self.total
        for place, each in zip(self.places, found, strict=True):
            every[place] = each
        return every

    def work_through(
        self, work: Callable[[Batch], list[Found]], empty: Found, lose: Lose
    ) -> list[Found]:
        """The results of some work on all; see :func:`latentheads.decoding.translate.work_through`.

        Args:
            work: Gives a result for each sentence of a batch.
            empty: The result of one that is empty or lost.
            lose: Called with the place among all of one for which there is too little memory.
        """
        found = work_through(
            self.part, work, empty, lambda place, why: lose(self.places[place], why)
        )
        return self.spread(found, empty)

    def translate(
        self, run: Run, decoding: Decoding, lose: Lose, others: Sequence[Run] = ()
    ) -> list[str]:
        """The translations of all; see :func:`translate_lines` and :meth:`work_through`."""
        models, guides = zip(*((each.model, each.guide) for each in (run, *others)), strict=True)

        def write(batch: Batch) -> list[str]:
            if others:
                return texts_of(run.target, ensemble_search(models, guides, batch, decoding))
            return translate(run.model, run.guide, run.target, batch, decoding)

        return self.work_through(write, "", lose)


def translate_lines(
    run: Run,
    lines: list[str],
    decoding: Decoding,
    task: int | None = None,
    lose: Lose | None = None,
    others: Sequence[Run] = (),
) -> list[str]:
    """Translates lines and keeps their order; an empty one stays empty, and one that is lost.

    A newline that the model writes, as a byte like any other, becomes a space.

    Args:
        run: The run.
        lines: The text.
        decoding: How to search.
        task: The place of the lines' task, where the run has tasks.
        lose: Called with the place of a line that is too long for the run or for the machine, and
            why; None ends the work.
        others: Runs that write with it, by the mean law of all; see :func:`check_together`.

    Raises:
        UnfinishedError: A line is lost.
    """
    lose = lose or lose_nothing
    return encode_sources(run, lines, task, lose).translate(run, decoding, lose, others)


def write_anew(write: Callable[[], list[str]], number: int) -> list[list[str]]:
    """The texts of some passes for each line or file, in every pass with draws of its own.

    Args:
        write: Writes all once.
        number: Passes.
    """
    return [list(each) for each in zip(*(write() for _ in range(number)), strict=True)]


_TOLD: dict[str, Callable[[Run], object]] = {
    "target vocabulary": lambda run: run.target.to_json(),
    "source vocabulary": lambda run: run.source and run.source.to_json(),
    "order of tasks": lambda run: run.settings.data.mixture and run.settings.data.mixture.names,
    "tell_apart": lambda run: run.settings.data.mixture and run.settings.data.mixture.task_key,
}
"""What runs that write together must have in common."""


def check_drawn_anew(
    run: Run, decoding: Decoding, number: str = "number", draws: str = "draws"
) -> None:
    """Refuses a number of texts that would all be the same.

    Args:
        run: The run.
        decoding: How each is searched.
        number: The name of the option, for the error.
        draws: That of ``decoding.draws``.

    Raises:
        ValueError: Nothing is drawn.
    """
    if not decoding.draws:
        raise ValueError(f"{number} acts on nothing here: it needs {draws} 1 or more, got 0")
    check_draws([run], number, ("heads", "selections"))


def check_together(run: Run, others: Sequence[Run], decoding: Decoding) -> None:
    """Refuses runs that have no mean law: of other tokens, of other tasks, or with draws.

    Raises:
        ValueError: The runs cannot write together.
    """
    from latentheads.runs.run import Run  # it writes by this module

    if isinstance(others, Run):
        raise ValueError("others must be a list of runs, got one run")
    if others and decoding.draws:
        raise ValueError(
            f"draws must be 0 where several runs write together, got {decoding.draws}: their heads "
            "stand at their prior's location"
        )
    for other in others:
        if not isinstance(other, Run):
            raise ValueError(f"others must be runs, got {type(other).__name__}")
        for what, tell in _TOLD.items():
            if tell(other) != tell(run):
                raise ValueError(
                    f"{other.path} has another {what} than {run.path}: runs that write together "
                    "are of one corpus"
                )


def lose_nothing(place: int, why: str) -> None:
    """Ends the work where a line would be lost."""
    raise UnfinishedError(f"line {place + 1}: {why}")


def encode_sources(run: Run, lines: Sequence[str], task: int | None, lose: Lose) -> Encoded:
    """Encodes the lines that are not empty, without targets of their own.

    Args:
        run: The run.
        lines: The text.
        task: The place of the lines' task, where the run has tasks.
        lose: Called with the place of a line that is too long for the run, and why.
    """
    full = []
    for place, line in enumerate(lines):
        if why := _too_wide(run, line):
            lose(place, why)
        elif line.strip():
            full.append(place)
    part = _encode_lines(run, [lines[place] for place in full], task)
    most = run.settings.data.max_line or int(part.lengths.max(initial=0))
    for place in np.flatnonzero(part.lengths > most).tolist():
        lose(full[place], f"{part.lengths[place]:,} tokens, more than max_line {most:,}")
    kept = np.flatnonzero(part.lengths <= most).tolist()
    return Encoded(part.take(kept), [full[place] for place in kept], len(lines))


def list_texts(name: str, given: Any) -> list[str]:
    """Texts as a list.

    Args:
        name: What they are called, for the error.
        given: The texts.

    Raises:
        ValueError: It is one text, or no texts.
    """
    if isinstance(given, str):  # it would be read letter by letter
        raise ValueError(f"{name} must be a list of texts, got one text: [{given!r}]")
    if not isinstance(given, Iterable):
        raise ValueError(f"{name} must be a list of texts, got {shown(given)}")
    found = list(given)
    for each in found:
        if not isinstance(each, str):
            raise ValueError(f"{name} must be texts, got {type(each).__name__}")
    return found


def encode_pairs(
    run: Run, sentences: Iterable[str], translations: Iterable[str], task: int | None, lose: Lose
) -> Encoded:
    """Encodes lines and their translations where neither is empty.

    Args:
        run: The run.
        sentences: Lines in its source language.
        translations: A translation of each.
        task: The place of the lines' task, where the run has tasks.
        lose: Called with the place of a line that is too long for the run, and why.

    Raises:
        ValueError: There are not as many translations as lines, or one is no list of texts.
    """
    sources = list_texts("sentences", sentences)
    targets = list_texts("translations", translations)
    if len(sources) != len(targets):
        raise ValueError(
            f"translations must be {len(sources)} texts, as sentences; got {len(targets)}"
        )
    lines = [s if t.strip() else "" for s, t in zip(sources, targets, strict=True)]
    known = encode_sources(run, lines, task, lose)
    told = run.target.encode_all(targets[place] for place in known.places)
    return replace(known, part=replace(known.part, targets=told))


def _too_wide(run: Run, line: str) -> str:
    """Why a line has too many tokens, where its characters tell: they cost no memory to count."""
    data = run.settings.data
    if data.max_source or not 0 < CHARACTERS * data.max_line < len(line):
        return ""
    return f"{len(line):,} characters, too many for max_line {data.max_line:,}"


def _encode_lines(run: Run, lines: list[str], task: int | None) -> Part:
    """The lines as a part of a corpus, without targets of their own."""
    assert run.source is not None
    rows, mixture = run.source.encode_all(lines), run.settings.data.mixture
    if run.settings.data.max_source:
        rows = rows.truncate(run.settings.data.max_source)
    if mixture is None or task is None:
        return Part(rows, rows)
    if mixture.tags and len(rows):
        rows = rows.prepended(tag_of(run.source, mixture.tasks[task]))
    return Part(rows, rows, task=np.full(len(rows), task, np.int32), mixture=mixture)


def find_task(run: Run, direction: str | None) -> int | None:
    """The place of the task that a direction names; None where the run has none.

    Raises:
        ValueError: The run is a language model, or has no such task, or more than one.
    """
    if run.source is None:
        raise ValueError(f"{run.path} is a language model: it has nothing to translate from")
    data = run.settings.data
    if data.mixture is None:
        if direction is not None:
            raise ValueError(f"{run.path} has one direction alone: drop direction")
        return None
    if direction is None and len(data.mixture.tasks) > 1:
        names = ", ".join(data.mixture.names)
        raise ValueError(f"{run.path} has several tasks: give direction, one of {names}")
    return 0 if direction is None else data.mixture.index_of(direction, data.begin)


@dataclass(frozen=True)
class Sampling:
    """How a language model's text is drawn.

    Attributes:
        length: Tokens written behind a prompt, at most.
        temperature: What logits are divided by: 1 draws from the model's law, less is safer, more
            is wilder, 0 always takes the likeliest token.
        top_k: Draw among so many likeliest tokens; 0: all.
        context: Tokens of running text kept when the model's block is full; None: the run's own
            context, or half a block.
        unknown: Let the unknown word come; else it never does.
        drawn: Draw the heads from their prior too; else they are at its location. Which of them
            speak is the likeliest in either case.
    """

    length: int = 100
    temperature: float = 1.0
    top_k: int = 0
    context: int | None = None
    unknown: bool = False
    drawn: bool = False

    def draw(self, run: Run, prompts: list[list[int]]) -> list[list[int]]:
        """Continues tokens.

        Raises:
            ValueError: An option is out of range; without prompts nothing else is done.
        """
        if run.source is not None:
            raise ValueError(f"{run.path} is a translation run: use translate")
        block, context = run.block, run.settings.data.context
        with WithSelection(run.guide):
            return sample_text(
                run.model,
                prompts,
                length=self.length,
                temperature=self.temperature,
                top_k=self.top_k,
                block=block,
                context=(context or block // 2) if self.context is None else self.context,
                drawn=self.drawn,
                stop=not block,
                begin=EOS if block else BOS,
                unknown=self.unknown,
            )


def encode_prompt(vocabulary: Vocabulary, prompt: str, running: bool) -> list[int]:
    """The tokens of a prompt; only running text has EOS between lines, and no special token."""
    lines = prompt.split("\n") if running else [prompt.replace("\n", " ")]
    rows = [[max(token, UNK) for token in vocabulary.encode(line)[:-1]] for line in lines]
    return [token for row in rows for token in (*row, EOS)][:-1]


def unknown_words(vocabulary: Vocabulary, prompt: str) -> list[str]:
    """The words of a prompt that a vocabulary does not hold, each once; not ``<unk>`` itself."""
    words = [word for word in dict.fromkeys(prompt.split()) if word != SPECIALS[UNK]]
    return [w for w in words if any(token <= UNK for token in vocabulary.encode(w)[:-1])]


def decode_text(vocabulary: Vocabulary, tokens: Iterable[int]) -> str:
    """Turns tokens into text, with a new line behind each EOS.

    A newline that the model writes, as a byte like any other, becomes a space.
    """
    lines: list[list[int]] = [[]]
    for token in tokens:
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(vocabulary.decode(line).replace("\n", " ") for line in lines)


def continue_text(run: Run, how: Sampling, prompt: str, number: int = 1) -> Iterator[str]:
    """Several continuations of a prompt, each behind the prompt as it was given."""
    running = run.block > 0
    given = encode_prompt(run.target, prompt, running)
    begun = decode_text(run.target, given)
    for start in range(0, number, TOGETHER):
        for found in how.draw(run, [given] * min(TOGETHER, number - start)):
            if not running and found[-1] == EOS:
                del found[-1]
            yield prompt + decode_text(run.target, [*given, *found]).removeprefix(begun)


def continue_or_lose(
    run: Run,
    how: Sampling,
    prompt: str,
    number: int,
    lose: Lose,
    warn_unknown: Callable[[list[str]], object],
) -> Iterator[str]:
    """Continues a prompt as :func:`continue_text`; empty texts where it is lost.

    Args:
        run: The run.
        how: How text is drawn.
        prompt: The text.
        number: Continuations.
        lose: Told why the prompt is lost: it is too long for the run or for the machine.
        warn_unknown: Told the words of the prompt that the vocabulary does not hold.
    """
    done, why = 0, _too_long(run, prompt)
    if not why and (unknown := unknown_words(run.target, prompt)):
        warn_unknown(unknown)
    try:
        for text in () if why else continue_text(run, how, prompt, number):
            yield text
            done += 1
    except (MemoryError, RuntimeError) as reason:
        if not lacks_memory(reason):
            raise
        why = in_a_line(reason)
    if why:
        lose(0, why)
        yield from [""] * (number - done)


def _too_long(run: Run, prompt: str) -> str:
    """Why a prompt is longer than a sentence of the run may be; nothing where it is not."""
    if run.block or not run.settings.data.max_line:
        return ""
    if why := _too_wide(run, prompt):
        return why
    most = run.settings.data.max_line
    tokens = len(run.target.encode(prompt))
    return f"{tokens:,} tokens, more than max_line {most:,}" if tokens > most else ""
