"""Experiments that can be done again by one command."""
