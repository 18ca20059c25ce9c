"""What the benchmarks share: the network by hand, the plans, the races."""
