"""Question 1: what members share.

A parameter is shared by all members or each member has its own; `Sharing.predicate` decides by name. With rank-one
sharing (BatchEnsemble, Wen et al. 2020) all kernels are shared and each member has factors that scale their input and
output channels: `op(x * in, K) * out`. There is one factor per channel; the positions of a flattened image count as one
channel. TabM (Gorishniy et al. 2025) has random signs on the first inputs, ones elsewhere, own heads and shared
embeddings.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from murmuration.core.population import Named, Population
from murmuration.core.weights.distributions import Distribution, Normal
from murmuration.core.weights.family import INTO, OUT, Streams
from murmuration.core.weights.kernel_trace import NORM_LAYERS, KernelTrace
from murmuration.system.errors import Misuse, require_choices, unknown
from murmuration.system.option_text import FIXED, Answer

SMOOTH = "smooth"


@dataclass(frozen=True)
class Sharing:
    """Which parameters members share, and how shared ones are scaled and trained.

    All fields from `init` on are for rank-one sharing only.

    Attributes:
        what: "own" (nothing is shared), "all", "head", "backbone", "names" or "rank-one".
        shared: For "names", patterns of parameter names, separated by ";".
        gamma: Shared tensors move by gamma / M times the sum of the members' gradients: 1 is their mean, "M" their
            sum, "smooth" a value between the two, measured from the members' tangent kernels at initialisation.
        frozen: For "backbone": True to never train the backbone of the network, or a run to take the backbone from.
        init: Distribution of the factors.
        others: Distribution of all factors except those of the first kernel's inputs; None for the same.
        bias: "own"; "last" (own beside the last kernel only: a shared one there would tie independent members
            together); "shared"; or "inside" (shared, and scaled with the outputs).
        norm: Whether the scale and shift of normalising layers are "own" or "shared"; running statistics are own.
        first: Whether the inputs of the first kernel are scaled.
        last: Whether the outputs of the last kernel are scaled.
        factors: "all", or "first" for those of the first kernel's inputs only.
        head: Whether the last kernel is shared and "scaled", or "own".
        unscaled: Patterns of parameters that are shared without factors, separated by ";".
        lr_multiplier: Multiplier of the factors' learning rate.
        decay: Whether weight decay acts on the factors.
    """

    what: str = field(metadata=FIXED)
    shared: str = ""
    gamma: float | str = 1.0
    frozen: bool | str = False
    init: Distribution = field(default=Normal(1.0, 0.5))
    others: Distribution | None = None
    bias: str = "last"
    norm: str = "own"
    first: bool = True
    last: bool = True
    factors: str = "all"
    head: str = "scaled"
    unscaled: str = ""
    lr_multiplier: float = 1.0
    decay: bool = False

    def __post_init__(self) -> None:
        require_choices(self, bias=("own", "last", "shared", "inside"), norm=("own", "shared"))
        require_choices(self, factors=("all", "first"), head=("scaled", "own"))
        if not (math.isfinite(self.lr_multiplier) and self.lr_multiplier >= 0):
            raise Misuse(f"lr_multiplier={self.lr_multiplier}: need a number that is not negative, such as 0.5")
        if (self.what == "names") != bool(self.shared):
            raise Misuse("sharing names needs patterns of what is shared, and nothing else does: names:shared=body.*")
        if self.frozen and self.what != "backbone":
            value = "yes" if self.frozen is True else self.frozen
            raise Misuse(f"frozen={value} with sharing {self.what}: only a backbone can be; write backbone:frozen=yes")
        for setting in fields(self)[4:] if not self.rank_one else ():
            if (value := getattr(self, setting.name)) != setting.default:
                raise Misuse(f"{setting.name}={value} with sharing {self.what}: only rank-one has factors")
        number = isinstance(self.gamma, int | float) and 0 < self.gamma < math.inf
        if self.gamma not in ("M", SMOOTH) and not number:
            raise Misuse(f"gamma={self.gamma}: write 1 (mean), M (sum), smooth, or a positive number")

    @property
    def rank_one(self) -> bool:
        """Whether kernels are shared and scaled by factors."""
        return self.what == "rank-one"

    @property
    def needs_parts(self) -> bool:
        """Whether the network must consist of a `body` and a `head`."""
        return self.what in ("head", "backbone")

    @property
    def bias_inside(self) -> bool:
        """Whether the factors of a kernel's outputs scale its bias too."""
        return self.bias == "inside"

    def check_trace(self, trace: KernelTrace) -> None:
        """Refuse networks in which members would share a parameter that factors cannot scale.

        Args:
            trace: Kernels of the network.
        """
        if self.rank_one:
            trace.require_supported().require_scalable("sharing rank-one").require_once(trace.trained, "factors")

    def gamma_of(self, *, members: int, smooth: float | None) -> float:
        """Return the factor of shared gradients.

        Args:
            members: Number M of members.
            smooth: The measured value of "smooth"; None for a single member.

        Returns:
            gamma(M).
        """
        if self.gamma == "M":
            return float(members)
        if self.gamma == SMOOTH:
            return 1.0 if smooth is None else smooth
        return float(self.gamma)

    def predicate(self, module: nn.Module, trace: KernelTrace | None) -> Callable[[str], bool]:
        """Return a predicate on parameter names that is true for shared parameters.

        Args:
            module: The network.
            trace: Its kernels, needed for rank-one sharing.

        Returns:
            The predicate.

        Raises:
            Misuse: If a pattern of `shared` matches no parameter.
        """
        if self.rank_one:
            assert trace is not None
            self.require_biases_in_operators(module, trace)
            biases = {*trace.biases, *(bias for kernel in trace.kernels for bias in kernel.biases)}
            norms = set(norm_parameters(module))
            final = {bias for kernel in trace.kernels if kernel.name in trace.last for bias in kernel.biases}
            heads = {*trace.last, *final} if self.head == "own" else set()

            def shared(name: str) -> bool:
                if name in heads or self.is_unscaled(name):
                    return name not in heads
                if name in biases:
                    return self.bias in ("shared", "inside") or (self.bias == "last" and name not in final)
                return self.norm == "shared" if name in norms else True

            return shared
        patterns = [pattern.strip() for pattern in self.shared.split(";")]
        if self.what == "names":
            names = [name for name, _ in module.named_parameters()]
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in names):
                    raise unknown("names of parameters", pattern, names)
        return {
            "own": lambda name: False,
            "all": lambda name: True,
            "head": lambda name: name.partition(".")[0] == "head",
            "backbone": lambda name: name.partition(".")[0] != "head",
            "names": lambda name: any(fnmatchcase(name, pattern) for pattern in patterns),
        }[self.what]

    def require_biases_in_operators(self, module: nn.Module, trace: KernelTrace) -> None:
        """Refuse own biases of a network that adds a bias outside of the linear operator, where it would stay shared.

        Such a bias is known by its length: that of a kernel's outputs, or of the last kernel's where only the last
        bias is own.

        Args:
            module: The network.
            trace: Its kernels.

        Raises:
            Misuse: If there is one.
        """
        if self.bias not in ("own", "last"):
            return
        kernels = [k for k in trace.kernels if self.bias == "own" or k.name in trace.last]
        added = {name for name, kind in trace.kinds if kind == "added"}
        for name, parameter in module.named_parameters():
            if name in added and parameter.ndim == 1 and not self.is_unscaled(name):
                for kernel in (k for k in kernels if k.outputs == len(parameter)):
                    raise Misuse(
                        f"bias={self.bias}: '{name}' is added to activations as a bias of '{kernel.name}' is, but "
                        f"outside of its operator, so it would stay shared: write F.linear(x, {kernel.name}, {name}), "
                        "or bias=shared"
                    )

    def is_unscaled(self, name: str) -> bool:
        """Return whether a parameter is shared without factors.

        Args:
            name: Name of the parameter.
        """
        return any(fnmatchcase(name, pattern.strip()) for pattern in self.unscaled.split(";"))

    def add_factors(
        self, population: Population, trace: KernelTrace, streams: Streams, chunks: Sequence[int] = ()
    ) -> Population:
        """Add rank-one factors `K:in` (M, C_in) and `K:out` (M, C_out) to the own tensors of a population.

        Only shared kernels have factors. Not to be called for a single member, which has none.

        Args:
            population: Members without factors.
            trace: Kernels of the network.
            streams: Random stream of each member.
            chunks: Numbers of adjacent first inputs whose factors are equal at the start, such as the channels of one
                column.

        Returns:
            The population with factors; itself if the sharing is not rank-one.
        """
        if not self.rank_one:
            return population
        generators = [streams(member) for member in range(population.members)]
        kernels = [k for k in trace.kernels if not self.is_unscaled(k.name)]

        def draw(init: Distribution, count: int, kernel: str) -> Tensor:
            dtype = population.shared[kernel].dtype
            return torch.stack([init.sample((count,), generator, dtype=dtype) for generator in generators])

        factors: Named = {}
        for kernel in kernels:
            first, name = kernel is kernels[0], kernel.name
            if name not in population.shared or (self.factors == "first" and not first):
                continue
            init = self.init if first or self.others is None else self.others
            sizes = chunks if first and sum(chunks) == kernel.channels else [1] * kernel.channels
            if self.first or not first:
                factors[name + INTO] = draw(init, len(sizes), name).repeat_interleave(torch.tensor(sizes), dim=1)
            if self.factors == "all" and (self.last or name not in trace.last):
                factors[name + OUT] = draw(self.others or self.init, kernel.outputs, name)
        return replace(population, own={**population.own, **factors})


def input_chunks(module: nn.Module) -> Sequence[int]:
    """Return the number of channels of each column after the embedding of a network for tables; empty without one."""
    chunks = (getattr(part, "chunks", None) for part in module.modules())
    return next((sizes for sizes in chunks if isinstance(sizes, list)), [])


SHARING: dict[str, Answer[Sharing]] = {
    "own": Answer(Sharing("own"), "nothing: every member has its own parameters"),
    "all": Answer(Sharing("all"), "every parameter; members differ by their weight family, such as masks"),
    "head": Answer(Sharing("head"), "the head; every member has its own body"),
    "backbone": Answer(
        Sharing("backbone"), "the body; every member has its own head. frozen=runs/x takes a trained body as it is"
    ),
    "names": Answer(Sharing("names", shared="*"), "parameters whose names match patterns: names:shared=body.*"),
    "rank-one": Answer(
        Sharing("rank-one"), "all kernels, scaled by factors of each member (BatchEnsemble, Wen et al. 2020)"
    ),
    "rank-one-uv": Answer(
        Sharing("rank-one", bias="inside", first=False, last=False),
        "rank-one in the convention of Velikanov et al. (2022): u after, v before each activation",
    ),
}


def norm_parameters(module: nn.Module) -> list[str]:
    """Return the names of the scales and shifts of normalising layers."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, layer in module.named_modules()
        if isinstance(layer, NORM_LAYERS)
        for name, _ in layer.named_parameters(recurse=False)
    ]


def is_factor(name: str) -> bool:
    """Return whether a tensor is a rank-one factor."""
    return name.endswith((INTO, OUT))
