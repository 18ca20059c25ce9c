"""The end of a program that cannot go on: one line on standard error, and a status."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NoReturn

from latentheads.denormals import flush_denormals
from latentheads.errors import UnfinishedError, in_a_line, lacks_memory, print_message, printable

__all__ = [
    "STREAMS",
    "Losses",
    "check_streams",
    "error_handling",
    "exit_with_error",
    "name_again",
    "name_close",
    "name_options",
    "noting",
    "streaming",
    "tell",
    "warn_unknown",
    "write_stdout",
]

NAMED = 10
"""Words that are named of those that are unknown."""

ELSEWHERE = {
    **{"lr": "learning_rate", "batch_size": "tokens", "epochs": "steps", "max_steps": "steps"},
    **{"hidden_size": "width", "num_layers": "layers", "num_heads": "heads", "optim": "optimiser"},
    **{"output": "out", "output_dir": "out", "warmup": "warmup_steps", "optimizer": "optimiser"},
}
"""Options as other programs call them, and what they are called here."""

CLOSE = 0.75
"""How much of an option's letters are those of one that may be meant."""

LONGEST = 40
"""Letters of such a word that are shown."""

MISTAKES = (ValueError, TypeError)
TROUBLE = (FloatingPointError, OSError, MemoryError, RuntimeError, UnfinishedError)


def exit_with_error(program: str, said: object, status: int = 2) -> NoReturn:
    """Prints one line and exits; no control characters in it reach a terminal."""
    print_message(f"{program}: {printable(str(said), '')}", sys.stderr)
    sys.exit(status)


def name_close(message: str, known: Collection[str]) -> str:
    """A message that names an unknown option, with the one that it may have meant.

    Args:
        message: A parser's.
        known: Its options.
    """
    found = re.fullmatch(
        r"unrecognized arguments: (--?\w[^\s=]*).*|Option '(\w+)' is not accepted", message
    )
    if found is None:
        return message
    name = found[1] or f"--{found[2]}"
    said = name.lstrip("-").replace("-", "_")
    elsewhere = f"--{ELSEWHERE.get(said, '')}"
    close = [elsewhere] if elsewhere in known else get_close_matches(name, known, cutoff=CLOSE)
    meant = " or ".join(close)
    return f"{message}: {f'did you mean {meant}?' if close else '--help names all there are'}"


def warn_unknown(program: str, unknown: Sequence[str]) -> None:
    """Says on standard error which words a run does not know, in one line."""
    more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
    named = ", ".join(printable(_cut(word), "") for word in unknown[:NAMED])
    print_message(f"{program}: unknown to the model: {named}{more}", sys.stderr)


def _cut(word: str) -> str:
    """A word, without the end of a long one."""
    return word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…"


def write_stdout(text: str) -> None:
    """Writes to standard output; no control characters in it reach a terminal."""
    if sys.stdout.isatty():
        text = "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)
    sys.stdout.buffer.write(text.encode())


@contextmanager
def error_handling(
    program: str,
    trouble: str = "",
    stopped: str = "",
    mistakes: tuple[type[Exception], ...] = MISTAKES,
) -> Iterator[None]:
    """Ends a program whose work fails: with status 2 by the user's mistake, 1 by trouble.

    Args:
        program: Its name.
        trouble: Told behind the line of trouble: what is left of the work.
        stopped: The same after Ctrl-C, which gives status 130.
        mistakes: The errors that mean a mistake of the user's.
    """
    try:
        with flush_denormals():
            yield
    except mistakes as mistake:
        exit_with_error(program, f"error: {name_options(in_a_line(mistake))}")
    except TROUBLE as reason:
        if _is_fault(reason):
            raise
        if isinstance(reason, BrokenPipeError):
            _close_output()
        said = f"error: {in_a_line(reason)}"
        exit_with_error(program, "; ".join([said, *([trouble] if trouble else [])]), 1)
    except KeyboardInterrupt as reason:
        exit_with_error(
            program, "; ".join([str(reason) or "stopped", *([stopped] if stopped else [])]), 130
        )


def _is_fault(reason: BaseException) -> bool:
    """Whether an error is the program's own; torch says so too that there is no memory."""
    return isinstance(reason, RuntimeError) and not lacks_memory(reason)


@contextmanager
def noting(failed: list[str], name: str, mistakes: tuple[type[Exception], ...]) -> Iterator[None]:
    """Says and notes why a part of the work fails; what comes behind it goes on.

    Of a fault, such as one in a guide of the user's own, all is said that its writer needs.

    Args:
        failed: Where the reason is noted.
        name: The part's.
        mistakes: As for :func:`error_handling`; a ``ValueError`` that is none of them is raised.
    """
    try:
        yield
    except Exception as reason:
        if isinstance(reason, ValueError) and not isinstance(reason, mistakes):
            raise
        if _is_fault(reason) or not isinstance(reason, (ValueError, *TROUBLE)):
            print_message(traceback.format_exc().rstrip(), sys.stderr)
        failed.append(f"{name}: {name_options(in_a_line(reason))}")
        print_message(failed[-1], sys.stdout)


def name_again(overwrite: bool) -> str:
    """The command that goes on with what is written; ``--overwrite`` would train it anew."""
    return "without --overwrite the same command" if overwrite else "the same command"


STREAMS = {"stdin": "standard input", "stdout": "standard output", "stderr": "standard error"}


def check_streams(*names: str) -> None:
    """Refuses to go on where a standard stream is closed, as by ``<&-``.

    Args:
        *names: ``stdin``, ``stdout`` or both.
    """
    for name in names:
        if getattr(sys, name) is None:
            raise ValueError(f"{STREAMS[name]} is closed, and it is needed")


@contextmanager
def streaming(program: str) -> Iterator[None]:
    """Ends a program that writes to standard output where it cannot; a mistake has status 1.

    A reader that goes away ends it in silence, as the shell's own tools do.

    Args:
        program: Its name.
    """
    try:
        yield
    except ValueError as mistake:
        exit_with_error(program, f"error: {mistake}", 1)
    except (MemoryError, RuntimeError) as reason:
        if not lacks_memory(reason):
            raise
        exit_with_error(program, f"error: {in_a_line(reason)}", 1)
    except OSError as trouble:
        _close_output()
        if isinstance(trouble, BrokenPipeError):
            sys.exit(141)
        exit_with_error(program, f"error: {trouble.strerror}", 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _close_output() -> None:
    """Discards what still waits for standard output, which would fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(program: str, said: str) -> None:
    """Prints what a program has found; a reader that goes away ends it in silence.

    Args:
        program: Its name.
        said: What it has found.
    """
    with streaming(program):
        print(printable(said), flush=True)


class Losses:
    """Names on standard error what a program leaves empty, and goes on.

    Args:
        program: Its name.
        unit: What is lost, such as a line.

    Attributes:
        number: How many were lost.
        before: How many came before those that places are counted in.
    """

    def __init__(self, program: str, unit: str) -> None:
        self.program, self.unit = program, unit
        self.number = self.before = 0

    def note(self, place: int, why: str) -> None:
        """Names one, by its place from 0."""
        self.number += 1
        name = self.name(self.before + place)
        print_message(f"{self.program}: {name} stays empty: {why}", sys.stderr)

    def name(self, place: int) -> str:
        """What one of all is called."""
        return f"{self.unit} {place + 1} of the input"


WORDS = "guide|prior|recipe|preset|kl|select|select_gradient|gates|adapters|start|train|out|latent"
ARGUMENTS = (
    (r"(?<!-)\boverwrite=True", "--overwrite"),
    (r"\bchoose another out\b", "choose another --out"),
    (r"\bsay so: trusted ", "say so: --trust "),
    (rf"\b(use|or|needs|and) ({WORDS}) (?=[\w-]+$|WIDTH|RUN|[\w-]+[;,])", r"\1 --\2 "),
    (r"\buse select or gates\b", "use --select or --gates"),
    (r"^sentences must", "--sentences must"),
    (r"^(guide|prior)\.(?=\w+ must be )", r"--\1."),
    (r"^prior tied:", "--prior tied:"),
    (r"\bneeds (guide|prior)\.", r"needs --\1."),
    (r"^(tensorboard|launcher) needs", r"--\1 needs"),
    (r"\buse translate$", "use translate.py"),
    (r"\b(drop|give) direction\b", r"\1 --direction"),
    (r"^(select|gates|disagreement) (?=[\w,-]+: (this network|no block))", r"--\1 "),
    (r"\bno chain of latent has", "no chain of --latent has"),
    (r"\bmore can be given to a finished run\b", "more --steps can be given to a finished run"),
)
"""Arguments of the library as its messages spell them, and as options of a command line."""


def name_options(said: str) -> str:
    """A message of the library, its arguments spelled as options of a command line."""
    for argument, option in ARGUMENTS:
        said = re.sub(argument, option, said)
    return said
