"""Generative adversarial training with a point-estimate or Bayesian discriminator; see README.md."""
