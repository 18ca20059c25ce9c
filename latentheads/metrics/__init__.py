"""Metrics: how good a translation, a transcript, a summary or an alignment is."""
