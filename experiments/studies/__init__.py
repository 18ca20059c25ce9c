"""Benchmarks, corpus preparers and other studies: run from a clone, not in the wheel."""
