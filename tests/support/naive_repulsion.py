"""Repulsive steps the slow way: separate networks, plain autograd, loops over members, pairs and samples."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.coupling import FeatureSpace, OutputPrior, OutputSpace, Repulsion, WeightSpace

Gradients = list[dict[str, Tensor]]  # one a member


@dataclass
class Naive:
    """Members on one batch, and what repels them."""

    nets: list[nn.Module]
    x: Tensor  # (B, D)
    y: Tensor  # (B,) or (B, K)
    repulsion: Repulsion
    weight: float = 1.0
    loss_scale: float = 1.0
    metric: Callable[[Tensor], Tensor] = lambda s: s

    @property
    def space(self) -> Any:
        return self.repulsion.space

    def gradients(self) -> Gradients:
        """What every member descends."""
        losses = [self.loss(net, net(self.x)) for net in self.nets]
        pulls = [self.slopes(net, self.loss_scale * loss) for net, loss in zip(self.nets, losses, strict=True)]
        shown = self.shown(losses)
        objectives = self.objectives(shown)
        if self.space.estimator == "svgd":
            kernel = [[float(k) for k in row] for row in self.kernels(shown)]
            pulls = [
                {name: sum(kernel[i][j] * pulls[j][name] for j in range(len(pulls))) / len(pulls) for name in pulls[i]}
                for i in range(len(pulls))
            ]
        pushes = [self.slopes(net, self.weight * r) for net, r in zip(self.nets, objectives, strict=True)]
        return [{name: pull[name] + push[name] for name in pull} for pull, push in zip(pulls, pushes, strict=True)]

    def loss(self, net: nn.Module, outputs: Tensor) -> Tensor:
        if self.y.is_floating_point():  # unit noise
            return (0.5 * (outputs - self.y).square() + 0.5 * math.log(2 * math.pi)).sum(-1).mean()
        return nn.functional.cross_entropy(outputs, self.y)

    def slopes(self, net: nn.Module, value: Tensor) -> dict[str, Tensor]:
        found = torch.autograd.grad(value, list(net.parameters()), retain_graph=True, materialize_grads=True)
        return {name: gradient for (name, _), gradient in zip(net.named_parameters(), found, strict=True)}

    def shown(self, losses: list[Tensor]) -> list[Tensor]:
        """Each member's rows (B, R), with graph."""
        rows = max(1, round(getattr(self.space, "batch_fraction", 1.0) * len(self.x)))
        kinds = {WeightSpace: self.weights, OutputSpace: self.outputs, FeatureSpace: self.features}
        return [kinds.get(type(self.space), self.input_gradients)(net, rows) for net in self.nets]

    def weights(self, net: nn.Module, rows: int) -> Tensor:
        return torch.cat([parameter.flatten() for parameter in net.parameters()]).unsqueeze(0)

    def outputs(self, net: nn.Module, rows: int) -> Tensor:
        values = net(self.x[:rows])
        probs = self.space.of != "logits" and not self.y.is_floating_point()
        return (values.softmax(-1) if probs else values).flatten().unsqueeze(0)

    def features(self, net: nn.Module, rows: int) -> Tensor:
        return net.body(self.x[:rows]).flatten().unsqueeze(0)

    def input_gradients(self, net: nn.Module, rows: int) -> Tensor:
        x = self.x[:rows].clone().requires_grad_()
        values = net(x)
        if self.y.is_floating_point():
            told = values.sum()
        else:
            values = values.log_softmax(-1) if self.space.of == "log-prob" else values
            told = values[torch.arange(rows), self.y[:rows]].sum()
        g = torch.autograd.grad(told, x, create_graph=True)[0]
        return self.metric(g / g.norm(dim=1, keepdim=True))

    def objectives(self, shown: list[Tensor]) -> list[Tensor]:
        """For every member the number whose gradient is the repulsion, prior included."""
        t = [rows @ self.basis().T for rows in shown] if isinstance(self.space, FeatureSpace) else shown
        kernel = self.kernels(t)
        density = [sum(row).detach() for row in kernel]
        found = {
            "kde": lambda i: sum(kernel[i]).log(),
            "blob": lambda i: sum(kernel[i]).log() + sum(k / d for k, d in zip(kernel[i], density, strict=True)),
            "svgd": lambda i: sum(kernel[i]) / len(kernel),
            "sge": lambda i: (self.blended(kernel, t, power=1)[i] * t[i]).sum(),
            "ssge": lambda i: (self.blended(kernel, t, power=2)[i] * t[i]).sum(),
        }[self.space.estimator]
        return [found(i) + self.penalty(shown[i]) for i in range(len(t))]

    def kernels(self, t: list[Tensor]) -> list[list[Tensor]]:
        """k_ij, differentiable by what i shows alone."""
        members, batch = len(t), len(t[0])
        table = []
        for i in range(members):
            row = []
            for j in range(members):
                total = torch.zeros((), dtype=t[i].dtype)
                for b in range(batch):
                    distance = (t[i][b] - t[j][b].detach()).square().sum()
                    total = total + torch.exp(-distance / self.denominator(t, j, b))
                row.append(total / batch)
            table.append(row)
        return table

    def denominator(self, t: list[Tensor], j: int, b: int) -> float:
        d2 = [[float((p[b] - q[b]).square().sum()) for q in t] for p in t]
        members, convention = len(t), self.space.bandwidth
        if convention == "code":
            return middle([row[j] for row in d2]) / math.log(members) + 1e-12
        every = middle([value for row in d2 for value in row])
        return every / math.log(members + 1 if convention == "rde" else members)

    def blended(self, kernel: list[list[Tensor]], t: list[Tensor], power: int) -> Tensor:
        """(K + eta)^-1 G or K (K + eta)^-2 G, (M, B, R)."""
        sums = [torch.autograd.grad(sum(row), mine, retain_graph=True)[0] for row, mine in zip(kernel, t, strict=True)]
        k = torch.tensor([[float(value) for value in row] for row in kernel], dtype=t[0].dtype)
        if self.space.bandwidth == "code":  # not symmetric, and perhaps not positive
            values, vectors = torch.linalg.eigh((k + k.T) / 2)
            k = vectors @ torch.diag(values.clamp_min(0)) @ vectors.T
        inverse = torch.linalg.inv(k + 0.01 * torch.eye(len(k), dtype=k.dtype))
        matrix = inverse if power == 1 else k @ inverse @ inverse
        return torch.einsum("ij,jbr->ibr", matrix, torch.stack(sums))

    def basis(self) -> Tensor:
        """The directions (r, B F) of the features that losses feel most."""
        slopes = []
        for net in self.nets:
            phi = net.body(self.x).detach().requires_grad_()
            slopes.append(torch.autograd.grad(self.loss(net, net.head(phi)), phi)[0].flatten())
        return torch.linalg.svd(torch.stack(slopes), full_matrices=False)[2][: self.space.projection]

    def penalty(self, shown: Tensor) -> Tensor | float:
        prior = getattr(self.space, "prior", OutputPrior())
        if prior.kind == "gaussian":
            return prior.scale / 2 * shown.square().sum()
        return (1 + prior.scale * shown.square()).log().sum() if prior.kind == "cauchy" else 0.0


def middle(values: list[float]) -> float:
    """The median."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2
