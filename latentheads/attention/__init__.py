"""Attention whose logits are sample sites, local attention, and neural n-grams."""
