"""Bayesian convolutional networks by variational inference: accuracy, uncertainty along training, pruning."""
