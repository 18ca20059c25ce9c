"""Options of a corpus in groups, as the functions that make one share them.

A function takes a group as ``**options: Unpack[Group]``, so that a type checker knows every name.
:func:`spell_options` spells them out where a reader looks: in its signature and its documentation.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import update_wrapper
from inspect import Parameter
from typing import Annotated, Any, ParamSpec, TypedDict, get_args, get_type_hints

from latentheads.corpora.corpus import Corpus
from latentheads.corpora.data import Data
from latentheads.corpora.tasks import TaskKey
from latentheads.corpora.vocabulary import Unit

__all__ = [
    "FolderPairs",
    "FolderSpeech",
    "FolderTasks",
    "FolderText",
    "HubPairs",
    "HubTasks",
    "HubText",
    "Mixing",
    "RunningText",
    "SpeechTasks",
    "spell_options",
]

P = ParamSpec("P")

WIDTH = 100
"""Letters of a line of documentation."""

OPTIONS = "**options:"
"""The beginning of the line of documentation that the options replace."""


class _Kept(TypedDict, total=False):
    cache: Annotated[
        str, "Folder that keeps what was read of the corpus for the next start; empty: none."
    ]


class _Files(TypedDict, total=False):
    train_name: Annotated[str, "How the files of training are called before the dot."]
    valid_name: Annotated[str, "The same for validation; empty: valid, val or dev."]
    test_name: Annotated[str, "The same for test."]


class _Hub(TypedDict, total=False):
    hub_path: Annotated[str, "Another repository of the hub than the known one, or local files."]
    hub_config: Annotated[str, "Its configuration."]


class _Pairs(TypedDict, total=False):
    types: Annotated[int, "Subwords of a vocabulary, at most, learned from training by BPE."]
    joint: Annotated[bool, "One vocabulary for both sides."]
    lowercase: Annotated[bool, "Lower-case everything that the model sees and writes."]
    tokenised: Annotated[bool, "The text is tokenised: keep its words, and score it as it is."]
    max_line: Annotated[
        int,
        "Most tokens of a line on either side, its end counted; 0: any. In training a longer one "
        "is left out, in valid and test it is refused.",
    ]
    max_length: Annotated[int, "Longest training sentence in words; 0: any."]
    max_ratio: Annotated[
        float,
        "Training pairs whose lengths differ by more than this factor are left out; 0: any.",
    ]
    first: Annotated[int, "Use the first so many training pairs only; 0: all."]


class Mixing(TypedDict, total=False):
    """How several tasks are mixed."""

    task_temperature: Annotated[
        float,
        "T of the share n^(1/T) that a task of n training pairs has in an epoch: 1 takes every "
        "pair once, 5 is usual and gives small tasks more.",
    ]
    one_task: Annotated[bool, "Make each batch of one task, not of all."]
    tell_apart: Annotated[
        TaskKey,
        "What model and guide may tell tasks apart by: language, domain, or, of speech, speaker.",
    ]


class _Running(TypedDict, total=False):
    block: Annotated[
        int,
        "Tokens of the blocks that the text is cut into; 0 takes every line for a sentence alone.",
    ]
    context: Annotated[
        int,
        "Report perplexity by windows too, each token with so many before it; 0: by blocks alone.",
    ]
    unit: Annotated[Unit, "What the text is made of: its words, or subwords learned by BPE."]
    types: Annotated[
        int, "Subwords, at most, learned from training by BPE, where the unit is subword."
    ]
    minimum: Annotated[
        int, "A word seen less often in training is unknown, where the unit is word."
    ]
    lowercase: Annotated[bool, "Lower-case everything that the model sees and writes."]
    max_line: Annotated[
        int, "Most tokens of a line, its end counted; 0: any. Running text in blocks has any."
    ]
    first: Annotated[int, "Use the first so many training lines only; 0: all."]


class _Speech(TypedDict, total=False):
    types: Annotated[
        int,
        "Subwords of the text, at most, learned from training by BPE; 0 writes character by "
        "character.",
    ]
    lowercase: Annotated[bool, "Lower-case everything that the model writes."]
    bins: Annotated[int, "Coefficients of a frame of sound, of which there are a hundred a second."]
    top_frequency: Annotated[
        int, "Hertz where they end: at most half the lowest sampling rate of all files."
    ]
    max_seconds: Annotated[
        float,
        "Longest utterance: a longer one is left out of training, and refused in valid and test; "
        "0: any.",
    ]
    max_line: Annotated[
        int, "Most tokens of a text, and most positions of 40 ms of an utterance; 0: any."
    ]
    first: Annotated[int, "Use the first so many training utterances only; 0: all."]


class FolderPairs(_Pairs, _Kept, _Files, total=False):
    """How pairs of texts are read from a folder."""

    max_source: Annotated[
        int, "Most subwords of a source, its end counted; the rest is cut off. 0: any."
    ]
    references: Annotated[
        str,
        "How held-out files of references are called behind the dot, several on a line with tabs "
        "between: ROUGE takes the nearest, all other figures are of the first. Empty: the target's "
        "own files.",
    ]


class FolderTasks(Mixing, _Pairs, _Kept, _Files, total=False):
    """How several tasks are read from a folder."""


class RunningText(_Running, _Kept, total=False):
    """How text of one language is read."""


class FolderText(RunningText, _Files, total=False):
    """How text of one language is read from a folder."""


class FolderSpeech(_Speech, _Kept, _Files, total=False):
    """How speech is read from a folder."""


class SpeechTasks(Mixing, FolderSpeech, total=False):
    """How several tasks of speech are read from a folder."""


class HubPairs(_Pairs, _Kept, _Hub, total=False):
    """How pairs of texts are read from the hub."""

    max_source: Annotated[
        int, "Most subwords of a source, its end counted; the rest is cut off. 0: any."
    ]


class HubTasks(Mixing, _Pairs, _Kept, _Hub, total=False):
    """How several tasks are read from the hub."""


class HubText(RunningText, _Hub, total=False):
    """How text of one language is read from the hub."""


def spell_options(make: Callable[P, Corpus]) -> Callable[P, Corpus]:
    """Spells out the options of a function that takes a group of them.

    Its signature then has each of them with the default of `Data`, and its documentation says in
    place of ``**options`` what they are. Any other option is refused.

    Args:
        make: Makes a corpus; its last argument is ``**options: Unpack[Group]``.
    """
    signature = inspect.signature(make, eval_str=True)
    *own, group = signature.parameters.values()
    (kind,) = get_args(group.annotation)
    options = get_type_hints(kind, include_extras=True)
    shown = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(Data, name), annotation=hint)
        for name, hint in get_type_hints(kind).items()
    ]
    last = [each for each in own if each.kind is Parameter.KEYWORD_ONLY]
    first = [each for each in own if each.kind is not Parameter.KEYWORD_ONLY]
    spelled = signature.replace(parameters=[*first, *shown, *last])

    def call(*given: P.args, **named: P.kwargs) -> Corpus:
        try:
            spelled.bind(*given, **named)
        except TypeError as reason:
            raise TypeError(f"{make.__name__}(): {reason}") from None
        return make(*given, **named)

    update_wrapper(call, make)
    del vars(call)["__wrapped__"]  # else tools would read the defaults of the function itself
    call.__doc__ = _spell_docs(make.__doc__ or "", options)
    call.__signature__ = spelled  # type: ignore[attr-defined]
    return call


def _spell_docs(text: str, options: Mapping[str, Any]) -> str:
    """The documentation of a function with that of its options."""
    lines = []
    for line in text.split("\n"):
        if not line.lstrip().startswith(OPTIONS):
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        for name, hint in options.items():
            _, said = get_args(hint)
            lines += textwrap.wrap(
                f"{name}: {said}",
                WIDTH,
                initial_indent=indent,
                subsequent_indent=indent + "    ",
                break_on_hyphens=False,
            )
    return "\n".join(lines)
