"""The structure of a network, filled with other tensors at every call."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from murmuration.system.errors import Misuse


class Structure:
    """A private copy of a module that runs on the tensors it is given.

    `torch.func.functional_call` does the same and puts the old tensors back after every call; a private copy need not,
    which saves a small network much time. A copy serves one thread: the tensors are in the module while it runs.
    A tensor that the module uses in several places is given once, under its first name.

    A buffer that the module replaces in training (`self.mean = ...`) is copied into the tensor that was given for it.
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
        self._buffers = [slot for slot in self._slots if not isinstance(slot[0][slot[1]], nn.Parameter)]
        self._mode: bool | None = None  # not known before the first call of train()
        self._edits: dict[tuple[str, bool], bool] = {}  # part and mode -> whether its passes change their inputs

    @property
    def mixes_examples(self) -> bool:
        """Whether an example's outputs depend on the others of its batch, as far as known layers tell."""
        return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self.module.modules())

    def train(self, training: bool) -> "Structure":
        """Return the structure in training or evaluation mode; `train()` of the module decides what that means."""
        if self._mode != training:
            self.module.train(training)
            self._mode = training
        return self

    @contextmanager
    def modes(self, names: Sequence[str], training: bool) -> Iterator[None]:
        """Run these submodules, without their own submodules, in training or evaluation mode."""
        parts = [self.module.get_submodule(name) for name in names]
        before = [part.training for part in parts]
        for part in parts:
            part.training = training
        try:
            yield
        finally:
            for part, was in zip(parts, before, strict=True):
                part.training = was

    @contextmanager
    def unchanged(self, x: Tensor, part: str = "") -> Iterator[Tensor]:
        """Yield inputs for one pass of the module, or of a part, which may change them in place; x stays unchanged.

        The first pass in either mode runs on a copy; if it changes the copy, all later ones do so too.
        """
        key = (part, self.module.training)
        if not self._edits.get(key, True):
            yield x
            return
        inputs = x.clone()
        before = None if inputs.is_inference() else inputs._version
        yield inputs
        self._edits[key] = before is None or inputs._version != before

    def __call__(self, tensors: Mapping[str, Tensor], x: Tensor, part: str = "") -> Tensor:
        """Run the module, or one of its parts, on other tensors.

        Args:
            tensors: Parameters and buffers by name.
            x: Inputs of the module or part.
            part: Name of the part; "" for the module.

        Returns:
            The outputs.

        Raises:
            Misuse: If they are not one tensor.
        """
        for holder, attribute, name in self._slots:
            holder[attribute] = tensors[name]
        module, training = getattr(self.module, part) if part else self.module, self.module.training
        outputs = module(x)
        if not isinstance(outputs, Tensor):
            raise Misuse(f"the net gives {describe_outputs(outputs)[0]}: write output= to pick one tensor of these")
        for holder, attribute, name in self._buffers if training else ():
            if holder[attribute] is not tensors[name]:
                tensors[name].copy_(holder[attribute].detach())
        return outputs

    def require_parts(self) -> None:
        """Raise Misuse unless the network has the parts `body` and `head`."""
        if not all(isinstance(getattr(self.module, name, None), nn.Module) for name in ("body", "head")):
            raise Misuse(
                f"{type(self.module).__name__} has no parts body and head, so its features are not known: name them so,"
                " as the built-in nets do, or say what members share by name, as sharing='names:shared=rnn.*'"
            )


def describe_outputs(given: Any, count: int = -1, width: int = -1) -> tuple[str, str]:
    """Return the kind of a network's outputs, and the `output=` to write for the tensor (count, width) among them.

    >>> import torch
    >>> describe_outputs({"logits": torch.zeros(2, 3), "hidden": torch.zeros(2, 8)}, 2, 3)
    ("a dict of 'logits' (2, 3), 'hidden' (2, 8)", "write output='logits'")
    """
    parts: Mapping[Any, Any] = given if isinstance(given, Mapping) else getattr(given, "__dict__", {})
    parts = dict(enumerate(given)) if isinstance(given, list | tuple) else parts
    shapes = {name: tuple(part.shape) for name, part in parts.items() if isinstance(part, Tensor)}
    listed = ", ".join(f"{name!r} {shape}" for name, shape in shapes.items()) or "no tensors"
    fit = [name for name, shape in shapes.items() if shape == (count, width)]
    pick = repr(fit[0]) if fit else "lambda given: ..., a function that returns that tensor"
    kind = "tensor" if isinstance(given, Tensor) else type(given).__name__
    return f"a {kind} of {listed}", f"write output={pick}"
