"""Networks of other libraries by name: `timm:NAME` and `hf:NAME`, built from their configurations without the network.

Both become `body` then `head`, so that every recipe applies: the body gives the features that the library's own last
dense layer takes, the head is that layer with the outputs that the data needs.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.models.nets.dense import Shape, with_head
from murmuration.models.nets.pixel_scale import WHITE, PixelScale
from murmuration.system.errors import Misuse, did_you_mean, first_line
from murmuration.system.files import read_json

PREFIXES = ("timm:", "hf:")
LIBRARIES = {  # name -> inputs and description
    "timm:NAME": ("images", "a network of timm (extra timm)"),
    "hf:FOLDER": ("tokens or images", "a classifier of transformers with config.json in a local folder (extra hf)"),
    "hf:TYPE:KEY=VALUE": ("tokens or images", "the same from a type and its settings: hf:bert:hidden_size=64"),
}


def is_library_net(name: str) -> bool:
    """Return whether a name is that of a network of another library.

    >>> is_library_net("timm:resnet18"), is_library_net("resnet18")
    (True, False)
    """
    return name.startswith(PREFIXES)


def library_net(name: str, input_shape: Shape, outputs: int) -> nn.Module:
    """Build a network of timm or transformers, with weights drawn from torch's global generator."""
    library, _, own_name = name.partition(":")
    return (timm_net if library == "timm" else hf_net)(own_name, input_shape, outputs)


def timm_net(name: str, input_shape: Shape, outputs: int) -> nn.Module:
    """Build `timm.create_model(name)` as body and head; the body starts with the pixel scale of published weights."""
    timm = import_library("timm", "timm", f"timm:{name}")
    if len(input_shape) != 3:
        raise Misuse(f"timm:{name} takes images (channels, height, width), got {input_shape}")
    if not timm.is_model(name):
        close = did_you_mean(name, timm.list_models())
        raise Misuse(f"unknown net 'timm:{name}': {close}see timm.list_models()")
    channels, *size = input_shape
    options: dict[str, Any] = {"pretrained": False, "num_classes": 0, "in_chans": channels}
    if timm.get_pretrained_cfg_value(name, "fixed_input_size"):
        options["img_size"] = tuple(size)
    try:
        net = timm.create_model(name, **options)
    except Exception as error:  # sizes that a network cannot have
        raise Misuse(f"timm:{name} cannot take images {input_shape}: {first_line(error)}") from error
    body = nn.Sequential()
    mean, std = (timm.get_pretrained_cfg_value(name, key) for key in ("mean", "std"))
    if mean is not None and len(mean) == channels:
        body.add_module("pixels", unit_scale(mean, std))
    body.add_module("net", net)
    return with_head(body, getattr(net, "head_hidden_size", None) or net.num_features, outputs)


def unit_scale(mean: Sequence[float], std: Sequence[float]) -> PixelScale:
    """Return the pixel scale of weights for pixels in 0..1 with these statistics."""
    return PixelScale(*(tuple(WHITE * value for value in statistic) for statistic in (mean, std)))


class LogitsOf(nn.Module):
    """A transformers model called with one tensor, tokens (N, T) or images (N, C, H, W), that returns its logits.

    The padding token of the configuration, if it has one, is masked.
    """

    def __init__(self, net: nn.Module, images: bool) -> None:
        super().__init__()
        self.net, self.images = net, images

    def forward(self, x: Tensor) -> Tensor:
        if self.images:
            return self.net(pixel_values=x).logits
        padding = getattr(self.net.config, "pad_token_id", None)
        return self.net(input_ids=x, attention_mask=None if padding is None else (x != padding).long()).logits


def hf_net(name: str, input_shape: Shape, outputs: int) -> nn.Module:
    """Build a classifier of transformers from `DIR`, a folder with config.json, or `TYPE:key=value,...`.

    Types of text models (bert, distilbert, roberta, gpt2, ...) take tokens (N, T), types of image models (vit, ...)
    images.
    """
    transformers, config = import_library("transformers", "hf", f"hf:{name}"), hf_config(name)
    from transformers.models.auto import modeling_auto

    images = config.model_type in modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    if not images and config.model_type not in modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
        raise Misuse(f"hf:{name} is of type {config.model_type}: expected a type that classifies texts or images")
    if len(input_shape) != (3 if images else 1):
        expected = "images (channels, height, width)" if images else "tokens (T,), inputs='tokens'"
        raise Misuse(f"hf:{name} takes {expected}, got inputs of shape {input_shape}")
    config.num_labels = outputs
    if images:
        config.num_channels, config.image_size = input_shape[0], input_shape[1]
    kind = "Image" if images else "Sequence"
    net = getattr(transformers, f"AutoModelFor{kind}Classification").from_config(config, trust_remote_code=False)
    inside = f"{net.base_model_prefix}."
    linear = {part: layer for part, layer in net.named_modules() if isinstance(layer, nn.Linear)}
    dense = [part for part in linear if linear[part].out_features == outputs and not part.startswith(inside)]
    if len(dense) != 1:
        raise Misuse(f"hf:{name} ends in {len(dense)} dense layers of {outputs} outputs: expected one")
    net.set_submodule(dense[0], nn.Identity())
    body, file = nn.Sequential(), Path(name) / "preprocessor_config.json"
    record = read_json(file) if images and file.is_file() else {}
    if "image_mean" in record and "image_std" in record:
        body.add_module("pixels", unit_scale(record["image_mean"], record["image_std"]))
    body.add_module("logits", LogitsOf(net, images))
    return with_head(body, linear[dense[0]].in_features, outputs)


def hf_config(name: str) -> Any:
    """Load the configuration of a local folder, whose code is never run, or create that of a type with settings."""
    from transformers import AutoConfig

    kind, _, text = name.partition(":")
    if Path(name).is_dir():
        try:
            return AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise Misuse(f"hf:{name}: {first_line(error)}; expected a folder with config.json") from error
    settings = hf_settings(text)
    try:
        return AutoConfig.for_model(kind, **settings)
    except (ValueError, KeyError) as error:
        expected = "a folder with config.json, or a type such as hf:bert:hidden_size=64"
        raise Misuse(f"unknown net 'hf:{name}': expected {expected}") from error


def hf_settings(text: str) -> dict[str, int | float]:
    """Parse settings, numbers by name.

    >>> hf_settings("hidden_size=64,hidden_dropout_prob=0.2")
    {'hidden_size': 64, 'hidden_dropout_prob': 0.2}
    """
    settings: dict[str, int | float] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        try:
            settings[key.strip()] = float(value) if set(value) & set(".eE") else int(value)
        except ValueError as error:
            raise Misuse(f"'{part}': expected a setting and a number, such as hidden_size=64") from error
    return settings


def import_library(module: str, extra: str, net: str) -> Any:
    """Import a library; the refusal says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Misuse(f"{net} needs {error.name}: pip install 'torch-murmuration[{extra}]'") from None
    except Exception as error:  # timm imports torchvision, whose build must fit that of torch
        problem = f"{module} cannot be imported ({first_line(error)})"
        raise Misuse(f"{net}: {problem}; install a torchvision that fits torch {torch.__version__}") from None
