"""Latent attention logits: Gaussian noise with a prior, as Zheng et al. 2021."""
