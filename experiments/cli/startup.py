"""How a program begins: Ctrl-C while it still loads its libraries ends it in one line.

Imported before anything that takes long to load. Where standard output or standard error is closed,
as by ``2>&-``, what would go there goes nowhere: ``print`` would write notes among the rest.

PyTorch is asked for large pages under large tensors. A step on a CPU makes and forgets many
matrices of a few megabytes, and every page of fresh memory costs an interrupt: with large pages a
step of preset ``multi30k`` takes a tenth less time. It has no effect where the system does not know
``madvise``; a value set outside stays. The C library is asked to keep the memory of matrices that
are freed: decoding makes one of the vocabulary's scores for each token, and a greedy search takes
10 to 16 % less time.

A thread that waits for others spins less long before it sleeps: beside other busy programs a step
takes less time by that, as docs/faq.md measures.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextvars import ContextVar
from io import TextIOWrapper
from types import TracebackType

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of the C library's ``mallopt``."""

COMMAND: ContextVar[str] = ContextVar("COMMAND", default="")
"""The command that runs a program by its name; empty: the file of the program is run."""


def name_program(file: str) -> str:
    """A program as the user calls it: its file, such as run.py, or ``latentheads run``."""
    command = COMMAND.get()
    return f"{command} {file.removesuffix('.py')}" if command and file.endswith(".py") else file


def _end_in_one_line(
    kind: type[BaseException], reason: BaseException, trace: TracebackType | None
) -> None:
    """Prints the traceback of an error that was not caught, but for Ctrl-C one line."""
    if issubclass(kind, KeyboardInterrupt):
        print(f"{os.path.basename(sys.argv[0])}: stopped", file=sys.stderr)
    else:
        sys.__excepthook__(kind, reason, trace)


os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
    # the second keeps nothing without the first, which an older C library refuses
    libc.mallopt(M_MMAP_THRESHOLD, 2**30) and libc.mallopt(M_TRIM_THRESHOLD, 2**30)
sys.excepthook = _end_in_one_line
if sys.stdin is None:  # closed, as by a system of jobs: there is nothing to read
    sys.stdin = open(os.devnull)  # noqa: SIM115
if sys.stderr is None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
if sys.stdout is None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
if isinstance(sys.stdout, TextIOWrapper):  # a sign that a terminal does not know costs no table
    sys.stdout.reconfigure(errors="backslashreplace")
