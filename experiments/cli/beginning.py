"""How a program begins: Ctrl-C while it still loads its libraries ends it in one line.

Imported before anything that takes long to load.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

__all__: list[str] = []


def _end_in_one_line(
    kind: type[BaseException], reason: BaseException, trace: TracebackType | None
) -> None:
    """Prints the traceback of an error that was not caught, but for Ctrl-C one line."""
    if issubclass(kind, KeyboardInterrupt):
        print(f"{os.path.basename(sys.argv[0])}: stopped", file=sys.stderr)
    else:
        sys.__excepthook__(kind, reason, trace)


sys.excepthook = _end_in_one_line
