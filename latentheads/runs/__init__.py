"""Runs: settings, the folder, training from end to end, and what is loaded again."""
