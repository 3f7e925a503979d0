"""Networks as plain torch modules, by name; see README.md."""

from murmuration.nets.table import NETS, NetEntry, build_net, net_names

__all__ = ["NETS", "NetEntry", "build_net", "net_names"]
