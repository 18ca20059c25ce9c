"""The parts of analyse.py: the texts of runs, what is read of their heads, tables and JSON."""
