"""Answers to the first question: what do members share?

| written | what it means |
|---|---|
| `own` | nothing |
| `all` | everything: what tells members apart is what a weight is, such as masks |
| `head` | the head, on bodies of their own |
| `backbone` | the body, under heads of their own |
| `backbone:frozen=runs/x` | the body of a trained run as it is, never trained further; `frozen=yes`: of the net given |
| `names:shared=body.*` | the parameters whose names match one of these patterns (several with `;` between) |
| `rank-one` | all kernels, each scaled by factors of the member's own (BatchEnsemble, Wen et al. 2020) |
| `rank-one-uv` | the same in the convention of Velikanov et al. (2022): u after, v before each activation |

Settings of the last two: `init` is the law of the factors (`normal_1_0.5`, `rademacher`, `sign_0.75`, `ones`,
`interpolation_0.3`, ...), one for every channel, of a flattened picture too. `bias` is `own`, `last` (own beside the
last kernel: a shared one there would tie independent members together), `shared`, or `inside` (shared, and scaled with
the outputs). `norm` says whether batch normalisation is `own` or has one scale and shift for all (its statistics are
always own: members run apart), `first` and `last` whether inputs of the first and outputs of the last kernel are
scaled, `pace` multiplies the factors' learning rate, and `decay=yes` lets weight decay act on them. `gamma` belongs to
all: shared tensors move by gamma / M times the sum of members' gradients; 1 is their mean, `M` their sum, `smooth` lies
between by what the members' tangent kernels have in common at the start.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from murmuration.errors import Misuse, unknown
from murmuration.population import Named, Population
from murmuration.weights.families import INTO, OUT
from murmuration.weights.laws import law_named
from murmuration.weights.outline import Kernel, Outline
from murmuration.written import number, read

CHOICES = {
    "bias": ("own", "last", "shared", "inside"),
    "norm": ("own", "shared"),
    "first": ("yes", "no"),
    "last": ("yes", "no"),
    "decay": ("no", "yes"),
}
SCALING = ("init", "bias", "norm", "first", "last", "pace", "decay")  # settings of rank-one alone
SMOOTH = "smooth"


@dataclass(frozen=True)
class Sharing:
    """What members share."""

    what: str
    shared: str = ""  # patterns of names, for `names`
    gamma: str = "1"
    frozen: str = "no"  # no, yes (the net as it is given), or the directory of a run
    init: str = "normal_1_0.5"
    bias: str = "last"
    norm: str = "own"
    first: str = "yes"
    last: str = "yes"
    pace: float = 1.0
    decay: str = "no"

    def __post_init__(self) -> None:
        for field, known in CHOICES.items():
            if getattr(self, field) not in known:
                raise unknown(field, getattr(self, field), known)
        law_named(self.init)
        if not (math.isfinite(self.pace) and self.pace >= 0):
            raise Misuse(f"pace={self.pace}: need a number that is not negative, such as 0.5")
        if (self.what == "names") != bool(self.shared):
            raise Misuse("sharing names needs patterns of what is shared, and nothing else does: names:shared=body.*")
        if self.frozen != "no" and self.what != "backbone":
            raise Misuse(
                f"frozen={self.frozen} with sharing {self.what}: only a backbone can be; write backbone:frozen=yes"
            )
        idle = [each.name for each in fields(self) if each.name in SCALING and getattr(self, each.name) != each.default]
        if idle and not self.rank_one:
            raise Misuse(f"{idle[0]}={getattr(self, idle[0])} with sharing {self.what}: only rank-one has factors")
        self.gamma_of(members=1, smooth=1.0)

    @property
    def rank_one(self) -> bool:
        return self.what == "rank-one"

    def gamma_of(self, *, members: int, smooth: float | None) -> float:
        """The factor gamma(M) of shared gradients; `smooth` is the measured one."""
        if self.gamma == "M":
            return float(members)
        if self.gamma == SMOOTH:
            return 1.0 if smooth is None else smooth  # None: there is one member
        value = number(self.gamma, "gamma")
        if not (math.isfinite(value) and value > 0):
            raise Misuse(f"gamma={self.gamma}: write 1 (mean), M (sum), smooth, or a positive number")
        return value

    def predicate(self, module: nn.Module, outline: Outline | None) -> Callable[[str], bool]:
        """Which parameters of a network, by name, all members share."""
        if self.rank_one:
            assert outline is not None
            return self._rank_one_predicate(module, outline)
        patterns = [pattern.strip() for pattern in self.shared.split(";")]
        if self.what == "names":
            require_matches(patterns, [name for name, _ in module.named_parameters()])
        return {
            "own": lambda name: False,
            "all": lambda name: True,
            "head": lambda name: name.partition(".")[0] == "head",
            "backbone": lambda name: name.partition(".")[0] != "head",
            "names": lambda name: any(fnmatchcase(name, pattern) for pattern in patterns),
        }[self.what]

    def _rank_one_predicate(self, module: nn.Module, outline: Outline) -> Callable[[str], bool]:
        biases = {bias for kernel in outline.kernels for bias in kernel.biases}
        norms = set(norm_parameters(module))
        final = outline.kernels[-1].biases if outline.kernels else ()

        def shared(name: str) -> bool:
            if name in biases:
                return self.bias in ("shared", "inside") or (self.bias == "last" and name not in final)
            return self.norm == "shared" if name in norms else True

        return shared


SHARING = {
    "own": Sharing("own"),
    "all": Sharing("all"),
    "head": Sharing("head"),
    "backbone": Sharing("backbone"),
    "names": Sharing("names", shared="*"),
    "rank-one": Sharing("rank-one"),
    "rank-one-uv": Sharing("rank-one", bias="inside", first="no", last="no"),
}


def sharing_named(text: str) -> Sharing:
    """The answer that a text stands for.

    >>> sharing_named("rank-one:init=rademacher,gamma=M").gamma_of(members=4, smooth=None)
    4.0
    """
    return read(text, "sharing", SHARING, fixed=("what",))


def sharing_where(module: nn.Module, shared: Callable[[str], bool]) -> str:
    """The text that stands for sharing the parameters of a network for which a predicate on their names holds.

    >>> sharing_where(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), lambda name: name.startswith("0"))
    'names:shared=0.weight;0.bias'
    """
    names = [name for name, _ in module.named_parameters() if shared(name)]
    return f"names:shared={';'.join(names)}" if names else "own"


def require_matches(patterns: list[str], names: list[str]) -> None:
    """Refuse a pattern that no name matches: what it was meant to share would not be shared."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise unknown("names of parameters", pattern, names)


def norm_parameters(module: nn.Module) -> list[str]:
    """Names of the scales and shifts of normalising layers: parameters of one axis that are not beside a kernel."""
    kinds = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, layer in module.named_modules()
        if isinstance(layer, kinds)
        for name, _ in layer.named_parameters(recurse=False)
    ]


def is_factor(name: str) -> bool:
    """Whether an own tensor scales the channels of a shared kernel."""
    return name.endswith((INTO, OUT))


def with_factors(
    population: Population, sharing: Sharing, outline: Outline, streams: Callable[[int], torch.Generator]
) -> Population:
    """The population with the factors that tell its members apart; one member alone has nobody to differ from."""
    if not sharing.rank_one or population.members == 1:
        return population
    law = law_named(sharing.init)
    generators = [streams(member) for member in range(population.members)]

    def drawn(count: int, kernel: str) -> Tensor:
        kind = population.shared[kernel].dtype
        return torch.stack([law.sample((count,), generator, dtype=kind) for generator in generators])

    factors: Named = {}
    for kernel in outline.kernels:
        factors |= _factors(kernel, sharing, outline, drawn)
    return Population(population.members, {**population.own, **factors}, population.shared, population.buffers)


def _factors(kernel: Kernel, sharing: Sharing, outline: Outline, drawn: Callable[[int, str], Tensor]) -> Named:
    found = {}
    if sharing.first == "yes" or kernel is not outline.kernels[0]:
        found[kernel.name + INTO] = drawn(kernel.channels, kernel.name)
    if sharing.last == "yes" or kernel is not outline.kernels[-1]:
        found[kernel.name + OUT] = drawn(kernel.outputs, kernel.name)
    return found
