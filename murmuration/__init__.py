"""Murmuration: ensembles of neural networks that say how far each prediction can be trusted.

    import murmuration as mm

    data = mm.open_data("digits")
    ensemble = mm.fit("small-cnn", data, members=5)
    predictive = ensemble.predict(data.test.x)
    print(mm.score(predictive, data.test.y))

Names are imported when they are first used: torch takes seconds to load, and `murmur --help` does not need it.
"""

from murmuration.system.lazy import attach_stub

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__, "__version__")
