"""Heads on a trained, frozen body: the body's features are computed once, and the heads are trained on them."""

import copy
from dataclasses import replace
from typing import Any

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
    """Return the specification of training the heads alone on features of the frozen body; without one, the same."""
    body = spec.backbone
    if body is None:
        return spec
    _refuse_unfit_settings(spec)
    Structure(body).require_parts()
    if not _is_head_of_body(body.eval(), spec.data.train.prepared[:2]):
        problem = "does more than head(body(x)), so heads cannot be trained on the features of its body"
        raise Misuse(f"{type(body).__name__} {problem}: move all of it into body or head")
    device, precision = torch.device(spec.plan.device), spec.plan.precision
    splits: dict[str, Any] = {name: getattr(spec.data, name) for name in ("train", "val", "test")}
    splits = {name: with_features(body, split, device, precision) for name, split in splits.items()}
    recipe = replace(spec.recipe, sharing=SHARING["own"].value)  # heads have no body to share
    data = replace(spec.data, **splits)
    return replace(spec, build=lambda: spec.build().get_submodule("head"), data=data, backbone=None, recipe=recipe)


def _refuse_unfit_settings(spec: TrainSpec) -> None:
    coupling = spec.recipe.coupling
    if spec.plan.augment:
        raise Misuse("augment with a frozen backbone: its features are computed once; leave one of the two out")
    inputs = spec.data.train.prepared
    if isinstance(inputs, Streamed) and inputs.source.draws:
        problem = f"{inputs.source.name} draws random numbers, and a frozen backbone computes its features once"
        raise Misuse(f"{problem}: give mm.open_data(dataset, in_memory=True), or a data set without augmentation")
    reason = None
    if coupling is not None and coupling.space.candidates():
        advice = "write its settings out, such as lengthscales=pca"
        reason = f"it is chosen on corrupted inputs, and features have none; {advice}"
    elif coupling is not None and FEATURES in coupling.space.needs:
        reason = "all members have the same features; write coupling outputs"
    if reason is not None:
        raise Misuse(f"coupling {spec.recipe.text('coupling')} with a frozen backbone: {reason}")
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
    """Replace the inputs of a split by features of the body, computed on `device` and kept on the CPU."""
    if not len(split):
        return split
    part = copy.deepcopy(body.eval().get_submodule("body")).to(device)
    with computing_in(precision, device):
        features = [at_least_float32(part(x.to(device, copy=True)).cpu()) for x in split.prepared.split(CHUNK)]
    return replace(split, prepared=torch.cat(features))


def with_backbone(heads: Population, body: nn.Module | None) -> Population:
    """Return the population of whole networks: these heads on the fixed body, where the heads are."""
    if body is None:
        return heads
    parts = (heads.own, heads.buffers, heads.fixed)
    own, buffers, fixed = ({f"head.{name}": tensor for name, tensor in named.items()} for named in parts)
    for name, parameter in body.named_parameters():
        if name.partition(".")[0] != "head":
            fixed[name] = parameter.detach()[None].clone()
    for name, buffer in body.named_buffers():
        if name.partition(".")[0] != "head":
            buffers[name] = buffer.detach().expand(heads.members, *buffer.shape).clone()
    return Population(heads.members, own, {}, buffers, fixed).to(heads.device)
