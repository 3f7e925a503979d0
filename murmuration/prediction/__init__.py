"""Trained members and what they predict: ensembles, predictives, post-hoc steps, export, prediction files."""
