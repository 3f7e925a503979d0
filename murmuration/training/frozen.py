"""Heads on a body that is trained already: the body runs once over the examples, and heads learn from what it saw."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from murmuration.data import Split
from murmuration.errors import Misuse
from murmuration.population import Population
from murmuration.training.loop import Job
from murmuration.weights import Structure

CHUNK = 512  # inputs that pass through the body at once


def at_work(job: Job) -> Job:
    """The job that is trained: the job itself, or its heads alone on the features of a frozen body."""
    body = job.backbone
    if body is None:
        return job
    _refuse_what_needs_inputs(job)
    Structure(body).require_parts()
    _refuse_more_than_parts(body, job.data.train)
    data, alone = job.data, replace(job.recipe, sharing="own")  # heads have no body to share
    seen = replace(data, train=featured(body, data.train), val=featured(body, data.val), test=featured(body, data.test))
    return replace(job, build=lambda: job.build().get_submodule("head"), data=seen, backbone=None, recipe=alone)


def _refuse_what_needs_inputs(job: Job) -> None:
    repulsion = job.recipe.repulsion
    if job.plan.augment:
        raise Misuse("augment with a frozen backbone: its features are computed once; leave one of the two out")
    if repulsion is not None and repulsion.lengthscales == "tuned":
        raise Misuse("lengthscales=tuned with a frozen backbone: features have no corruptions; write lengthscales=pca")
    if repulsion is not None and repulsion.space == "features":
        raise Misuse("coupling features with a frozen backbone: all members have the same; write coupling outputs")
    if job.recipe.weighs.needs_kernels:
        raise Misuse(f"weights {job.recipe.weights} with a frozen backbone: heads can only have points")


def _refuse_more_than_parts(net: nn.Module, split: Split) -> None:
    """Heads learn from what the body says; a network that does more than head(body(x)) would predict otherwise."""
    if not _consists_of_parts(net.eval(), split.x[:2]):
        raise Misuse(
            f"{type(net).__name__} does more than head(body(x)), so heads cannot be trained on what its body says: "
            "move all of it into body or head"
        )


@torch.no_grad()
def _consists_of_parts(net: nn.Module, x: Tensor) -> bool:
    together = net(x)
    try:
        apart = net.get_submodule("head")(net.get_submodule("body")(x))
    except (RuntimeError, TypeError):  # the head cannot take what the body says: something stands between them
        return False
    return bool(apart.shape == together.shape and torch.allclose(apart, together, rtol=1e-4, atol=1e-5))


@torch.no_grad()
def featured(body: nn.Module, split: Split) -> Split:
    """The examples with the features of the body in the place of inputs."""
    part = body.eval().get_submodule("body")
    return Split(torch.cat([part(x) for x in split.x.split(CHUNK)]) if len(split) else split.x, split.y)


def whole(heads: Population, body: nn.Module | None) -> Population:
    """The population of whole networks that heads belong to."""
    if body is None:
        return heads
    own = {f"head.{name}": tensor for name, tensor in heads.own.items()}
    buffers = {f"head.{name}": tensor for name, tensor in heads.buffers.items()}
    below = {name: t.detach().clone() for name, t in body.named_parameters() if not _of_head(name)}
    for name, tensor in body.named_buffers():
        if not _of_head(name):
            buffers[name] = tensor.detach().expand(heads.members, *tensor.shape).clone()
    return Population(heads.members, own, below, buffers)


def _of_head(name: str) -> bool:
    return name.partition(".")[0] == "head"
