"""A program in a process of its own, with limits, and killed at the moment that is asked for.

A started Python costs seconds, most of them for PyTorch. So the attack imports the programs once
and forks.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

__all__ = ["ROOT", "Ended", "Limits", "Moment", "import_programs", "start"]

ROOT = Path(__file__).parents[2]
PROGRAMS = ("run", "compare", "sweep", "translate", "generate", "score", "analyse", "prune")
HEAVY = ("torch._dynamo", "matplotlib.figure", "pandas", "scipy.stats", "arviz_stats.base")
"""What the programs import late, and every forked process would import again."""

POLL = 0.005


@dataclass(frozen=True)
class Limits:
    """What a process may use; the system, not the program, sees to it.

    Attributes:
        memory: Address space in bytes, above that of the process that starts it.
        file: Largest file that it may write, in bytes.
        work: Seconds of a processor; more is a hang.
        sleep: Seconds by the clock without any work; more is a hang too, however busy the machine.
    """

    memory: int = 8 * 10**9
    file: int = 200 * 10**6
    work: int = 60
    sleep: float = 15.0


@dataclass(frozen=True)
class Moment:
    """When a process is sent a signal.

    Attributes:
        seconds: After so many, where ``act`` is 0.
        act: Just before this act on files in the watched folder, counted from 1.
        signal: What is sent.
    """

    seconds: float = 0.0
    act: int = 0
    signal: signal.Signals = signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        program: Which program it was.
        status: Its exit status; less than 0: the signal that ended it.
        out: Its standard output.
        error: Its standard error.
        seconds: How long it ran.
        memory: The most memory that it held, in bytes.
        late: Whether it was ended because it would not end.
        acts: How often it opened, renamed, made or removed something in the watched folder.
    """

    program: str
    status: int
    out: str
    error: str
    seconds: float
    memory: int
    late: bool
    acts: int


def import_programs() -> None:
    """Imports everything that forked processes need, before the first is forked."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    for name in (*map(_module, PROGRAMS), *HEAVY):
        import_module(name)


def start(
    program: str,
    *words: str,
    folder: Path,
    text: bytes = b"",
    limits: Limits | None = None,
    watched: Path | None = None,
    moment: Moment | None = None,
    modules: Path | None = None,
) -> Ended:
    """Runs a program to its end.

    Args:
        program: Its name, without ``.py``.
        *words: Its command line.
        folder: Where it is started.
        text: Its standard input.
        limits: What it may use.
        watched: The folder in which its acts on files are counted.
        moment: When it is sent a signal; None: never.
        modules: A folder whose modules it may import, as by ``PYTHONPATH``.
    """
    limits, acts = limits or Limits(), memoryview(mmap.mmap(-1, 8)).cast("q")
    with ExitStack() as files:
        given, out, error = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(text)
        given.seek(0)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            with _leaving():
                _enter(folder, (given, out, error), limits)
                if modules is not None:
                    os.environ["PYTHONPATH"] = str(modules)
                    sys.path.insert(0, str(modules))
                if watched is not None:
                    _watch_acts(str(watched), acts, moment)
                _run_here(program, words)
        status, memory, late = _wait_for(child, limits, moment)
        seconds = time.monotonic() - began
        return Ended(program, status, _text(out), _text(error), seconds, memory, late, acts[0])


def _wait_for(child: int, limits: Limits, moment: Moment | None) -> tuple[int, int, bool]:
    """Waits for a process; its status, its memory, and whether it had to be ended."""
    began, late = time.monotonic(), False
    due = moment if moment is not None and not moment.act else None
    worked, since = 0, began
    try:
        while True:
            actual, status, used = os.wait4(child, os.WNOHANG)
            if actual:
                code = os.waitstatus_to_exitcode(status)
                return code, used.ru_maxrss * 1024, late or code == -signal.SIGXCPU
            now = time.monotonic()
            if due is not None and now - began >= due.seconds:
                os.kill(child, due.signal)
                due = None
            runs, ticks = _look_at(child)
            if runs or ticks != worked:
                worked, since = ticks, now
            if now - since >= limits.sleep:
                os.kill(child, signal.SIGKILL)
                late = True
            time.sleep(POLL)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise


def _look_at(child: int) -> tuple[bool, int]:
    """Whether a process runs, or waits for a processor or a disk, and what it has used of one.

    Where the system does not say, it counts as running.
    """
    try:
        words = Path(f"/proc/{child}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return True, 0
    return words[0] in (b"R", b"D"), int(words[11]) + int(words[12])


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


@contextmanager
def _leaving() -> Iterator[None]:
    """Whatever happens, the child ends here and never goes on as its parent."""
    try:
        yield
    except SystemExit as reason:
        os._exit(reason.code if isinstance(reason.code, int) else 70)
    except BaseException:
        traceback.print_exc()
    os._exit(70)


def _address_space() -> int:
    """Bytes of address space of this process: the libraries of a GPU alone take gigabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _enter(folder: Path, files: Sequence[IO[bytes]], limits: Limits) -> None:
    """Makes the child a process of its own: its files, its folder, its limits, its signals."""
    os.setsid()
    for index, file in enumerate(files):
        os.dup2(file.fileno(), index)
    os.chdir(folder)
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory + _address_space()),
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.work, limits.work + 5))  # SIGXCPU, not SIGKILL
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _module(program: str) -> str:
    """The name that a program is imported by; a test attacks one of its own."""
    return f"latentheads.experiments.{program}" if program in PROGRAMS else program


def _run_here(program: str, words: Sequence[str]) -> NoReturn:
    """Runs a program in this process as a new interpreter would, to its exit status."""
    sys.argv = [str(ROOT / "experiments" / f"{program}.py"), *words]
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    try:
        left = import_module(_module(program)).main(list(words))
    except SystemExit as reason:
        left = reason.code
    except BaseException as reason:
        sys.excepthook(type(reason), reason, reason.__traceback__)  # that of the programs
        left = 130 if isinstance(reason, KeyboardInterrupt) else 1
    if isinstance(left, str):
        print(left, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    sys.exit(left if isinstance(left, int) else int(left is not None))


def _watch_acts(folder: str, acts: memoryview, moment: Moment | None) -> None:
    """Counts acts on files, however the programs go about them, and sends the signal at its act."""

    def see(event: str, given: tuple[object, ...]) -> None:
        if event != "open" and not event.startswith(("os.", "shutil.", "tempfile.")):
            return
        if any(_lies_in(item, folder) for item in given):
            acts[0] += 1
            if moment is not None and acts[0] == moment.act:
                os.kill(os.getpid(), moment.signal)

    sys.addaudithook(see)


def _lies_in(path: object, folder: str) -> bool:
    return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(folder)
