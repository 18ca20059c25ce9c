"""The parts of analyse.py: the texts of runs, tables and JSON."""
