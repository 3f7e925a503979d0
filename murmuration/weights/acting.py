"""Kernels with companions, as the operators of one pass meet them.

Linear layers and convolutions are bilinear in input and kernel, so `op(x * in, K) * out` equals the operator with the
kernel `K * (out in^T)` without ever making it: what lets members share a kernel and differ all the same (BatchEnsemble,
Wen et al. 2020). An operator that is not one of these gets that kernel made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map

from murmuration.weights.blurring import root
from murmuration.weights.family import INTO, OUT, ForwardSpec, effective_kernel
from murmuration.weights.gaussian import DELTA, VARIANCE


@dataclass(frozen=True)
class Acting:
    """The tensors of one pass, and which of them act in a way of their own."""

    tensors: Mapping[str, Tensor]
    spec: ForwardSpec
    named: dict[int, str]  # id of a kernel, or of a bias that is scaled with it -> name of the kernel
    biases: dict[int, Tensor]  # id of a bias -> its variance, where it has one

    def companions(self, weight: Any) -> tuple[Tensor | None, Tensor | None, float | None]:
        """What scales a kernel's inputs, what scales its outputs, and how much of its inputs is dropped."""
        name = self.named[id(weight)]
        return self.tensors.get(name + INTO), self.tensors.get(name + OUT), self.spec.rates.get(name)

    def noise(self, weight: Any) -> tuple[Tensor | None, Tensor | None]:
        """The variance of a kernel, or one draw of its deviation, where the operator makes the noise."""
        name = self.named[id(weight)]
        return self.tensors.get(name + VARIANCE), self.tensors.get(name + DELTA)

    def spell_out(self, args: Any, kwargs: Any, draw: Callable[[Tensor], Tensor]) -> tuple[Any, Any]:
        """The arguments of an operator that knows no companions, with kernels as a plain network would have them.

        What is a distribution is drawn once, for all examples.
        """
        if not any(
            id(value) in self.named or id(value) in self.biases or isinstance(value, list | tuple | dict)
            for value in (*args, *kwargs.values())
        ):
            return args, kwargs
        change = partial(self._effective, draw)
        return tree_map(change, args), tree_map(change, kwargs)

    def _effective(self, draw: Callable[[Tensor], Tensor], value: Any) -> Any:
        name, blur = self.named.get(id(value)), self.biases.get(id(value))
        if name is not None and value is self.tensors[name]:
            variance, delta = self.noise(value)
            delta = root(variance) * draw(value) if variance is not None else delta
            return effective_kernel(self.spec.kernels[name], self.tensors, value if delta is None else value + delta)
        if blur is not None:
            value = value + root(blur) * draw(value)
        return value if name is None else value * self.tensors[name + OUT]

    def settled(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a dropout layer, after what a weight is has had its say."""
        if self.spec.dropout == "training":
            return arguments
        return {**arguments, "training": self.spec.dropout == "always"}


def acting_on(tensors: Mapping[str, Tensor], spec: ForwardSpec) -> Acting:
    """How operators act on these tensors; kernels are known by their identity."""
    named: dict[int, str] = {}
    biases: dict[int, Tensor] = {}
    for name in spec.kernels:
        blurred = {bias: tensors[bias + VARIANCE] for bias in spec.kernels[name].biases if bias + VARIANCE in tensors}
        if name in spec.rates or blurred or any(name + part in tensors for part in (INTO, OUT, VARIANCE, DELTA)):
            named[id(tensors[name])] = name
            biases |= {id(tensors[bias]): variance for bias, variance in blurred.items()}
            if spec.bias_inside and name + OUT in tensors:
                named |= {id(tensors[bias]): name for bias in spec.kernels[name].biases}
    return Acting(tensors, spec, named, biases)
