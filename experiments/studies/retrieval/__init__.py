"""The parts of paraphrase.py: an encoder, its task, and noise, gates and removal of its heads."""
