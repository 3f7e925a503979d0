"""Continual learning by one flow with a Gaussian in its latent space for every class (HCL)."""
