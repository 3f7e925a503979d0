"""Heads on a trained, frozen body: the body's features are computed once, and the heads are trained on them."""

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from murmuration.core.coupling.space import FEATURES
from murmuration.core.population import Population
from murmuration.core.sharing import SHARING
from murmuration.core.weights import Structure
from murmuration.data import Split
from murmuration.data.streamed import Streamed
from murmuration.system.devices import FLOAT32, at_least_float32, computing_in
from murmuration.system.errors import Misuse
from murmuration.training.spec import TrainSpec

CHUNK = 512  # inputs that pass through the body at once


def head_only_spec(spec: TrainSpec) -> TrainSpec:
    """The specification of training the heads alone on features of the frozen body; without one, the same."""
    body = spec.backbone
    if body is None:
        return spec
    _refuse_unfit_settings(spec)
    Structure(body).require_parts()
    if not _is_head_of_body(body.eval(), spec.data.train.prepared[:2]):
        raise Misuse(
            f"{type(body).__name__} does more than head(body(x)), so heads cannot be trained on the features of its"
            " body: move all of it into body or head"
        )
    data, recipe = spec.data, replace(spec.recipe, sharing=SHARING["own"].value)  # heads have no body to share
    place, precision = torch.device(spec.plan.device), spec.plan.precision
    train, val, test = (with_features(body, split, place, precision) for split in (data.train, data.val, data.test))
    return replace(
        spec,
        build=lambda: spec.build().get_submodule("head"),
        data=replace(data, train=train, val=val, test=test),
        backbone=None,
        recipe=recipe,
    )


def _refuse_unfit_settings(spec: TrainSpec) -> None:
    coupling = spec.recipe.coupling
    if spec.plan.augment:
        raise Misuse("augment with a frozen backbone: its features are computed once; leave one of the two out")
    inputs = spec.data.train.prepared
    if isinstance(inputs, Streamed) and inputs.source.draws:
        raise Misuse(
            f"{inputs.source.name} draws random numbers, and a frozen backbone computes its features once: give"
            " mm.open_data(dataset, in_memory=True), or a data set without augmentation"
        )
    if coupling is not None and coupling.space.candidates():
        raise Misuse(
            f"coupling {spec.recipe.text('coupling')} with a frozen backbone: it is chosen on corrupted inputs, and"
            " features have none; write its settings out, such as lengthscales=pca"
        )
    if coupling is not None and FEATURES in coupling.space.needs:
        raise Misuse(
            f"coupling {spec.recipe.text('coupling')} with a frozen backbone: all members have the same features; write"
            " coupling outputs"
        )
    if spec.recipe.weights.needs_kernels:
        raise Misuse(f"weights {spec.recipe.text('weights')} with a frozen backbone: heads can only have weights point")


@torch.no_grad()
def _is_head_of_body(net: nn.Module, x: Tensor) -> bool:
    together = net(x)
    try:
        apart = net.get_submodule("head")(net.get_submodule("body")(x))
    except (RuntimeError, TypeError):  # the head cannot take the body's outputs: something stands between them
        return False
    return bool(apart.shape == together.shape and torch.allclose(apart, together, rtol=1e-4, atol=1e-5))


@torch.no_grad()
def with_features(body: nn.Module, split: Split, device: torch.device, precision: str = FLOAT32) -> Split:
    """The split with the features of the body, computed on `device` and kept on the CPU, in the place of inputs."""
    if not len(split):
        return split
    part = copy.deepcopy(body.eval().get_submodule("body")).to(device)
    with computing_in(precision, device):
        features = [at_least_float32(part(x.to(device, copy=True)).cpu()) for x in split.prepared.split(CHUNK)]
    return replace(split, prepared=torch.cat(features))


def with_backbone(heads: Population, body: nn.Module | None) -> Population:
    """The population of whole networks: these heads on the fixed body, where the heads are."""
    if body is None:
        return heads
    own = {f"head.{name}": tensor for name, tensor in heads.own.items()}
    buffers = {f"head.{name}": tensor for name, tensor in heads.buffers.items()}
    below = {name: t.detach()[None].clone() for name, t in body.named_parameters() if not _in_head(name)}
    fixed = {f"head.{name}": tensor for name, tensor in heads.fixed.items()} | below
    for name, tensor in body.named_buffers():
        if not _in_head(name):
            buffers[name] = tensor.detach().expand(heads.members, *tensor.shape).clone()
    return Population(heads.members, own, {}, buffers, fixed).to(heads.device)


def _in_head(name: str) -> bool:
    return name.partition(".")[0] == "head"
