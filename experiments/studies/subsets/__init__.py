"""The parts of head_subsets.py: rankings of heads, joint posteriors, guides, figures."""
