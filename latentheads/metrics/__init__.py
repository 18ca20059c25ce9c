"""Metrics: what a translation, a summary or an alignment is worth."""
