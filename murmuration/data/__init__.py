"""Data: formats, splits, preparation and augmentation."""

from murmuration.system.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
