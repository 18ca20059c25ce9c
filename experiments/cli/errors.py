"""Error handling of programs: one line on standard error, and an exit status."""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import NoReturn

from latentheads.experiments.cli.startup import name_program

from latentheads.console import print_message
from latentheads.errors import UnfinishedError, is_out_of_memory, one_line_message, shorten
from latentheads.options import OptionError
from latentheads.passes import flush_denormals

MAX_UNKNOWN_WORDS = 10
"""Most unknown words in a warning."""

ITEM = r"\.\d+(?=\.|$)"
"""The number of a list's item in the path of an option: a command line has no word for it."""

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

GLOO = "gloo/transport"
"""What stands in the message of a RuntimeError after the end of another of several processes."""

LOST = "lost the connection to another process, whose output may say why"

OTHER_ERRORS = (FloatingPointError, OSError, MemoryError, RuntimeError, UnfinishedError)


def exit_with_error(program: str, message: object, status: int = 2) -> NoReturn:
    """Prints one line and exits."""
    print_message(f"{name_program(program)}: {message}", sys.stderr)
    sys.exit(status)


def name_options(error: BaseException) -> str:
    """The message of an error in one line, with options spelled as on the command line."""
    if isinstance(error, OptionError):
        error = ValueError(error.spelled(lambda path: f"--{re.sub(ITEM, '', path)}"))
    return one_line_message(error)


def warn_unknown(program: str, unknown: Sequence[str]) -> None:
    """Warns on standard error, in one line, of words that are not in a run's vocabulary."""
    hidden = len(unknown) - MAX_UNKNOWN_WORDS
    more = f" and {hidden} more" if hidden > 0 else ""
    named = ", ".join(shorten(word) for word in unknown[:MAX_UNKNOWN_WORDS])
    print_message(f"{name_program(program)}: not in the vocabulary: {named}{more}", sys.stderr)


@contextmanager
def warnings_as_notes(program: str) -> Iterator[None]:
    """Prints the library's warnings, a line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print_message(f"{program}: note: {warning.message}", sys.stderr)


def write_stdout(text: str) -> None:
    """Writes to standard output in UTF-8, whatever the locale."""
    sys.stdout.buffer.write(text.encode())


@contextmanager
def error_handling(
    program: str,
    on_failure: str = "",
    on_interrupt: str = "",
    user_errors: tuple[type[Exception], ...] = (ValueError, TypeError),
    status: int = 2,
) -> Iterator[None]:
    """Exits if the work fails: with status 2 after a mistake of the user, otherwise with 1.

    After a broken pipe it exits silently, as shell tools do.

    Args:
        program: The name of the program.
        on_failure: Appended to the message of a failure, such as what remains of the work.
        on_interrupt: The same after Ctrl-C, SIGTERM or SIGHUP, with the status that a shell gives
            them, such as 130.
        user_errors: The errors that mean a mistake of the user.
        status: The status after such a mistake.
    """
    try:
        with interrupted_by_signals(), flush_denormals(in_workers=True):
            yield
    except user_errors as mistake:
        exit_with_error(program, f"error: {name_options(mistake)}", status)
    except OTHER_ERRORS as reason:
        if _is_bug(reason):
            raise
        if isinstance(reason, OSError):
            _drop_unwritten()
        if isinstance(reason, BrokenPipeError):
            sys.exit(141)
        what = LOST if GLOO in str(reason) else one_line_message(reason)
        message = "; ".join(filter(None, [what, on_failure]))
        exit_with_error(program, f"error: {message}", 1)
    except KeyboardInterrupt as reason:
        exit_with_error(
            program,
            "; ".join([str(reason) or "stopped", *([on_interrupt] if on_interrupt else [])]),
            _interrupt_status(reason),
        )


class SignalInterrupt(KeyboardInterrupt):
    """A signal asks the program to end, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into a KeyboardInterrupt, so that temporary files are removed.

    A signal that is ignored, as by ``nohup``, stays ignored. Further signals are ignored while
    something cleans up.
    """
    if current_thread() is not main_thread():  # only the main thread can handle signals
        yield
        return
    handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    kept = (signal.SIG_IGN, _interrupt, None)
    replaced = {number: handler for number, handler in handlers.items() if handler not in kept}
    try:
        for number in replaced:
            signal.signal(number, _interrupt)
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def _interrupt(number: int, _: object) -> None:
    reason = sys.exception()
    while reason is not None and not isinstance(reason, KeyboardInterrupt):
        reason = reason.__context__
    if reason is None:  # else a ``finally`` cleans up behind an interrupt
        raise SignalInterrupt(number)


def _interrupt_status(reason: KeyboardInterrupt) -> int:
    """The exit status after Ctrl-C or a signal, as shells count it."""
    return 128 + (reason.number if isinstance(reason, SignalInterrupt) else signal.SIGINT)


def _is_bug(reason: BaseException) -> bool:
    """Whether an error is a bug: a RuntimeError of torch that has no reason outside the program."""
    is_known = is_out_of_memory(reason) or GLOO in str(reason)
    return isinstance(reason, RuntimeError) and not is_known


@contextmanager
def collecting_errors(
    failures: list[str], name: str, user_errors: tuple[type[Exception], ...]
) -> Iterator[None]:
    """Prints and records in a list why a part of the work fails; the other parts go on.

    For a bug, as in a user-defined guide, the traceback is printed too. A ``ValueError`` that is
    none of ``user_errors`` is raised.
    """
    try:
        yield
    except Exception as reason:
        if isinstance(reason, ValueError) and not isinstance(reason, user_errors):
            raise
        if _is_bug(reason) or not isinstance(reason, (ValueError, *OTHER_ERRORS)):
            print_message(traceback.format_exc().rstrip(), sys.stderr)
        failures.append(f"{name}: {name_options(reason)}")
        print_message(failures[-1], sys.stdout)


def rerun_command(overwrite: bool) -> str:
    """Describes the command that resumes the work; ``--overwrite`` would start it again."""
    return "without --overwrite the same command" if overwrite else "the same command"


def streaming(program: str) -> AbstractContextManager[None]:
    """As :func:`error_handling` of a program that may have written something: the status is 1."""
    return error_handling(program, user_errors=(ValueError,), status=1)


def _drop_unwritten() -> None:
    """Drops what standard output does not take, which would fail again at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_result(program: str, text: str) -> None:
    """Prints the result of a program; after a broken pipe it exits silently."""
    with streaming(program):
        try:
            print(text, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(f"cannot write standard output: {error.strerror}") from error


@dataclass
class SkippedInputs:
    """Counts skipped inputs, each printed on standard error; ``before`` precede a chunk of them."""

    program: str
    unit: str
    number: int = 0
    before: int = 0

    def note(self, index: int, reason: str) -> None:
        """Records a skipped input by its index in the chunk."""
        self.number += 1
        name = self.name(self.before + index)
        print_message(f"{name_program(self.program)}: {name} stays empty: {reason}", sys.stderr)

    def remark(self, index: int, text: str) -> None:
        """Prints a note on an input that is not skipped, by its index in the chunk."""
        name = self.name(self.before + index)
        print_message(f"{name_program(self.program)}: note: {name} {text}", sys.stderr)

    def name(self, index: int) -> str:
        """The name of an input by its index among all."""
        return f"{self.unit} {index + 1} of the input"
