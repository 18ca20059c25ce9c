"""What uncertainty.py is made of: systems of runs, the texts they are tried on, tables."""
