"""The parts of uncertainty.py: systems of runs, the texts they are tried on, tables."""
