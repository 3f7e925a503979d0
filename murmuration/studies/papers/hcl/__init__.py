"""Continual learning by one flow (HCL): the published form, and flows that start as LDA."""
