"""Networks as plain torch modules, by name; see README.md."""

from murmuration.nets.cosine import CosineLinear, with_cosine_head
from murmuration.nets.table import NETS, build_net

__all__ = ["NETS", "CosineLinear", "build_net", "with_cosine_head"]
