"""Inputs of a coupling space: plain networks, stacked, without engine or training step."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from murmuration.core.coupling import Space, SpaceInputs
from murmuration.core.coupling.estimators import Interaction
from murmuration.likelihoods import Categorical, Gaussian

Named = dict[str, Tensor]


def networks(build: Callable[[], nn.Module], members: int, seed: int = 0) -> list[nn.Module]:
    """Members with weights of their own, in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [build().double() for _ in range(members)]


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(batch: int, classes: int, seed: int = 2) -> Tensor:
    return torch.randint(classes, (batch,), generator=torch.Generator().manual_seed(seed))


def present(nets: list[nn.Module], x: Tensor, y: Tensor) -> SpaceInputs:
    """What the members have at hand on inputs (B, ...) and targets (B, ...); features where a net has a body."""
    weights = {
        name: torch.stack([dict(net.named_parameters())[name].detach() for net in nets]).requires_grad_()
        for name, _ in nets[0].named_parameters()
    }
    inputs = x.expand(len(nets), *x.shape).clone().requires_grad_()

    def run(tensors: Named, given: Tensor) -> Tensor:
        return vmap(lambda some, mine: functional_call(nets[0], some, (mine,)))(tensors, given)

    features, outputs = None, run(weights, inputs)
    if isinstance(getattr(nets[0], "body", None), nn.Module):
        body, head = nets[0].body, nets[0].head
        parts = [{k.partition(".")[2]: w for k, w in weights.items() if k.startswith(p)} for p in ("body.", "head.")]
        features = vmap(lambda some, mine: functional_call(body, some, (mine,)))(parts[0], inputs)
        outputs = vmap(lambda some, mine: functional_call(head, some, (mine,)))(parts[1], features)
    targets = y.expand(len(nets), *y.shape)
    likelihood = Gaussian(1.0) if y.is_floating_point() else Categorical(outputs.shape[-1])
    losses = likelihood.loss(outputs, targets).mean(-1)
    draws = torch.Generator().manual_seed(7)

    def draw(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=draws, dtype=like.dtype)

    return SpaceInputs(weights, tuple(weights), inputs, targets, outputs, losses, features, run, draw)


def repulsion(space: Space, seen: SpaceInputs) -> tuple[Interaction, Named]:
    """What members feel, and the gradients (M, ...) of their weights that follow."""
    signature = space.features(seen)
    interaction = space.repulsion(signature.detach())
    leaves = list(seen.weights.values())
    found = torch.autograd.grad(signature, leaves, interaction.cotangents, materialize_grads=True, retain_graph=True)
    return interaction, dict(zip(seen.weights, found, strict=True))
