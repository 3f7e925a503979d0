"""A network's structure, to be filled with other tensors at every call."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class Structure:
    """A private copy of a module that runs on whatever tensors it is given.

    `torch.func.functional_call` does the same and puts the old tensors back after every call; a private copy need not,
    which saves a small network much time. Private means one thread: the tensors are in the module while it runs.
    A tensor that the module uses in several places is given once, under its first name.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module)
        names = {id(t): name for name, t in (*self.module.named_parameters(), *self.module.named_buffers())}
        self._slots: list[tuple[dict[str, Any], str, str]] = [
            (holder, attribute, names[id(tensor)])
            for part in self.module.modules()
            for holder in (part._parameters, part._buffers)
            for attribute, tensor in holder.items()
            if tensor is not None
        ]

    def train(self, training: bool) -> "Structure":
        if self.module.training != training:
            self.module.train(training)
        return self

    def __call__(self, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The module's outputs with the given tensors in the place of its own."""
        for holder, attribute, name in self._slots:
            holder[attribute] = tensors[name]
        outputs: Tensor = self.module(x)
        return outputs
