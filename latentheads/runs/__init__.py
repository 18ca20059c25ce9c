"""Runs: settings, the folder, training from end to end, and what is loaded again."""

from latentheads.plugins import load_options

load_options()  # before anything here reads the tables of classes
