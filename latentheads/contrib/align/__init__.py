"""Word alignment of two texts: hidden Markov models of both directions, trained to agree."""
