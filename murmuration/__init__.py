"""Murmuration: ensembles of neural networks that say how far each prediction can be trusted.

    import murmuration as mm

    data = mm.open_data("digits")
    ensemble = mm.fit("small-cnn", data, members=5)
    predictive = ensemble.predict(data.test.x)
    print(mm.score(predictive, data.test.y))

Names are imported when they are first used: torch takes seconds to load, and `murmur --help` does not need it.
"""

import re
from importlib import import_module

__version__ = "0.1.0"

with open(f"{__file__}i", encoding="utf-8") as _stub:  # each public name is written once, in the type stub
    _IMPORTS = re.findall(r"^from (\S+) import ([^(\n]+|\([^)]+\))$", _stub.read(), re.MULTILINE)
_HOMES = {name: home for home, names in _IMPORTS for name in re.findall(r"(\w+) as", names)}
__all__ = sorted(_HOMES)


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    """Import a public name from the module that the stub names, and keep it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'murmuration' has no attribute '{name}'")
    home = import_module(_HOMES[name])
    value = getattr(home, name) if hasattr(home, name) else import_module(f"{_HOMES[name]}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
