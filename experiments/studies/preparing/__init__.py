"""Corpora made from the files that they are distributed in: a file for each."""
