"""The parts of prune.py: the curve, and pruned networks as run folders with a report."""
