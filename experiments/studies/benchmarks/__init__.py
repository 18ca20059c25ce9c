"""Parts that the benchmarks share: the network by hand, plans, races."""
