"""Ensembles from inside: kernels and regimes of members that share weights, and the loss landscape around members."""

from murmuration.system.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
