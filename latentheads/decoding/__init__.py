"""Decoding: beam search, sampling, and a text from end to end."""
