"""Families: conditional distributions of heads, of which priors and posteriors are made."""
