"""Networks adapted to the preparation of the data: several inputs in one tensor, and the scale of pixels."""

from torch import Tensor, nn

from murmuration.data.preparation import Preparation, SeveralPreparation
from murmuration.nets.pixel_scale import set_pixel_scale
from murmuration.nets.source import NetSource


class WithSeveralInputs(nn.Module):
    """A network that takes several inputs, called with one tensor (N, D) that holds them side by side."""

    def __init__(self, net: nn.Module, preparation: SeveralPreparation) -> None:
        super().__init__()
        self.net = net
        self.preparation = preparation

    def forward(self, x: Tensor) -> Tensor:
        parts = self.preparation.unpack(x)
        return self.net(*parts.values()) if self.preparation.positional else self.net(**parts)


def for_preparation(source: NetSource, preparation: Preparation | None) -> NetSource:
    """The source of networks that take inputs prepared so; networks by name take one input."""

    def build() -> nn.Module:
        network = source.build()
        if isinstance(preparation, SeveralPreparation) and "name" not in source.record:
            return WithSeveralInputs(network, preparation)
        set_pixel_scale(network, preparation)
        return network

    return NetSource(build, source.record)
