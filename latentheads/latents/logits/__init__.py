"""Latent attention logits: Gaussian noise with a prior, as in the papers."""
