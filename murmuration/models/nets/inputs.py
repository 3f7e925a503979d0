"""Networks adapted to data and loss: several inputs in one tensor, the scale of pixels, a last layer of cosines."""

from typing import Any

import torch
from torch import Tensor, nn

from murmuration.data.preparation import Preparation, SeveralPreparation, TokenPreparation
from murmuration.models.nets.adapt import Output, materialised, select_output
from murmuration.models.nets.dense import with_cosine_head
from murmuration.models.nets.pixel_scale import set_pixel_scale
from murmuration.models.nets.source import NetSource, name_of
from murmuration.system.errors import Misuse

OUTPUT, COSINES = "output", "cosines"  # in the record of a network


class WithSeveralInputs(nn.Module):
    """A network that takes several inputs, called with one tensor (N, D) that holds them side by side."""

    def __init__(self, net: nn.Module, preparation: SeveralPreparation) -> None:
        super().__init__()
        self.net = net
        self.preparation = preparation

    def forward(self, x: Tensor) -> Tensor:
        parts = self.preparation.unpack(x)
        return self.net(*parts.values()) if self.preparation.positional else self.net(**parts)


def for_preparation(
    source: NetSource, preparation: Preparation | None, input_shape: tuple[int, ...], output: Output | None = None
) -> NetSource:
    """Adapt a source of networks to prepared inputs and one tensor of outputs; networks by name take one input."""
    dtype = torch.int64 if isinstance(preparation, TokenPreparation) else torch.float32

    def build() -> nn.Module:
        network = source.build()
        if isinstance(preparation, SeveralPreparation) and "name" not in source.record:
            network = WithSeveralInputs(network, preparation)
        set_pixel_scale(network, preparation)
        return select_output(materialised(network, input_shape, dtype), output)

    if output is None:
        return NetSource(build, source.record)
    return NetSource(build, {**source.record, OUTPUT: output_record(output)})


def output_record(output: Output) -> Any:
    """Describe the option `output` for the record of a run: a function by its name."""
    return output if isinstance(output, str | int) else {"function": name_of(output)}


def output_again(record: dict[str, Any], output: Output | None) -> Output | None:
    """Restore the option `output` from a run's record; a function must be passed again."""
    stored: Any = record.get(OUTPUT)
    if output is None and isinstance(stored, dict):
        raise Misuse(f"the run's output is a function, {stored['function']}: give it again as output=...")
    return stored if output is None else output


def ending_in_cosines(source: NetSource) -> NetSource:
    """Replace the last layer of a source's networks by one that returns cosines."""
    return NetSource(lambda: with_cosine_head(source.build()), {**source.record, COSINES: True})
