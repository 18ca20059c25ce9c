"""Tests of the alignments."""
