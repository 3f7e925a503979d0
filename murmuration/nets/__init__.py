"""Plain torch modules by name; see README.md. Nothing here knows of ensembles."""

from murmuration.nets.table import NETS, NetEntry, build_net, net_names

__all__ = ["NETS", "NetEntry", "build_net", "net_names"]
