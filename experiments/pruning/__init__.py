"""The parts of prune.py: the curve, and smaller networks as run folders with a report, timed."""
