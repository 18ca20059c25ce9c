"""Hard Concrete gates: each head has a probability of being active, with an L0 penalty."""
