"""Layers of a network that hold no heads: numbers, tables, output, what hears."""
