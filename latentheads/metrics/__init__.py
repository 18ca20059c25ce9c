"""Metrics: what a translation or a summary is worth."""
