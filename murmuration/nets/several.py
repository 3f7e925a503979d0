"""Networks with several inputs, as modules of the one tensor that holds them all."""

from collections.abc import Callable

from torch import Tensor, nn

from murmuration.data.preparation import Preparation, SeveralPreparation
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


def with_several_inputs(source: NetSource, preparation: Preparation | None) -> NetSource:
    """The source of networks for several inputs, where the preparation has several; else the source as it is."""
    if not isinstance(preparation, SeveralPreparation) or "name" in source.record:
        return source
    build: Callable[[], nn.Module] = source.build
    return NetSource(lambda: WithSeveralInputs(build(), preparation), source.record)
