"""Attention, cut where heads become random: scores, drawn logits, read-out; and n-grams."""
