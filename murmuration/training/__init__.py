"""Training: the specification of a run, the batches, one step for every method, the loop, the choice of an engine."""

from murmuration.system.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
