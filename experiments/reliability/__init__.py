"""The parts of uncertainty.py: systems of runs, texts, tables, figures."""
