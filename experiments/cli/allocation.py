"""Asks PyTorch for large pages under large tensors; imported before PyTorch.

A step on a CPU makes and forgets many matrices of a few megabytes, and every page of fresh memory
costs an interrupt: with large pages a step of preset ``multi30k`` takes a tenth less time. It has
no effect where the system does not know ``madvise``; a value set outside stays.
"""

import os

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
