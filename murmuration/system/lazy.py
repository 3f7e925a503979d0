"""Public names of a package, imported when they are first used: torch takes seconds, and `murmur --help` needs none.

Each name is written once, in the type stub beside the package's `__init__.py`. This module imports next to nothing: it
is the first of the package to be loaded, before the program handles Ctrl-C.
"""

import re
import sys
from importlib import import_module

IMPORT = re.compile(r"^from (\S+) import ([^(\n]+|\([^)]+\))$", re.MULTILINE)


def attach_stub(package: str, file: str, *others: str):  # type: ignore[no-untyped-def]
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose stub imports its public names.

    Args:
        package: `__name__` of the package.
        file: `__file__` of the package.
        *others: Names that it defines itself.
    """
    with open(f"{file}i", encoding="utf-8") as stub:
        homes = {name: home for home, names in IMPORT.findall(stub.read()) for name in re.findall(r"(\w+) as", names)}

    def get(name: str):  # type: ignore[no-untyped-def]
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        home = import_module(homes[name])
        is_module = homes[name] == package or not hasattr(home, name)
        value = import_module(f"{homes[name]}.{name}") if is_module else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted([*homes, *others]), sorted(homes)
