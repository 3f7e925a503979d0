"""Networks as plain torch modules, by name; see README.md."""

from murmuration.nets.table import NETS, build_net

__all__ = ["NETS", "build_net"]
