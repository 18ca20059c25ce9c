"""The parts of prune.py: smaller networks of a run, as run folders with a report, and timed."""
