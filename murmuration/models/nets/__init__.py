"""Networks as plain torch modules, by name; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.models.nets.dense import CosineLinear, with_cosine_head
from murmuration.models.nets.embeddings import column_edges
from murmuration.models.nets.table import NETS, NetEntry, build_net, edges_for, is_net, nets
