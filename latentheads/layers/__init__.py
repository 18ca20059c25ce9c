"""Layers of a network that hold no heads: numerics, tables, output, the input of speech."""
