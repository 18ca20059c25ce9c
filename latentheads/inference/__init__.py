"""Inference: the bound, the objective, and the report on a whole part."""
