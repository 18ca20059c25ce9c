"""The posterior of a tiny model by Hamiltonian Monte Carlo; by hand: ``python -m tests.gold``."""
