"""The kinds of latents, a folder each; ``options`` and ``summed_out`` are common to them."""
