"""Figures and pages on the loss landscape between trained networks."""
