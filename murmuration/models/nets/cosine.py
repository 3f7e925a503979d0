"""A last layer whose outputs are cosines, between the features and a direction for each class."""

import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.system.errors import Misuse


class CosineLinear(nn.Linear):
    """A dense layer without bias whose inputs and rows are divided by their lengths: outputs are in [-1, 1]."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(x, dim=-1), F.normalize(self.weight, dim=-1))


def with_cosine_head(net: nn.Module) -> nn.Module:
    """Replace the dense layer `head` of a network by one whose outputs are cosines.

    Args:
        net: Network with a part `head`; changed in place.

    Returns:
        The network.

    Raises:
        Misuse: If the network has no dense layer called `head`.

    >>> import torch, murmuration.models.nets as nets
    >>> bool((with_cosine_head(nets.build_net("mlp", (4,), 3))(torch.randn(9, 4)).abs() <= 1).all())
    True
    """
    head = getattr(net, "head", None)
    if not isinstance(head, nn.Linear):
        raise Misuse(f"{type(net).__name__} has no dense layer called head: end the net in CosineLinear instead")
    net.head = CosineLinear(head.in_features, head.out_features)
    return net
