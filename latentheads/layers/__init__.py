"""Layers without attention heads: numerics, embeddings, output layers, speech front end."""
