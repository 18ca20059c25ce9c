"""Uncertainty: what a model's laws are worth where one acts on them."""
