"""`murmur embed`: images as features of a pretrained network, in an npz file."""

from typing import Annotated

import typer

from murmuration.cli.console import CONTINUES, Interrupted, print_json, say
from murmuration.cli.options import DataSource, Force, Json, Names, documented, image_size, named_targets, output_path
from murmuration.system.progress import counting_bar


def embed(
    *,
    data: DataSource,
    out: Annotated[str, typer.Option(metavar="FILE")],
    net: Annotated[str, documented("Options", "NAME")] = "efficientnet-lite0",
    weights: Annotated[str | None, documented("Options", "FILE")] = None,
    size: Annotated[str | None, documented("Options", "N")] = None,
    target: Annotated[Names, documented("Options", "NAME")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compute features of images by a pretrained network, once.

    Compute the features of images by a pretrained network without its head, and write them with labels, class names and
    splits to an .npz file, which is a data set for every other command. Images of any size are resized and cropped. A
    command that was interrupted continues when it is repeated.

    Args:
        data: The images.
        out: The .npz file to write.
        net: Network; see `murmur list nets`.
        weights: File of its weights, .safetensors or .pth; the published ones if left out.
        size: Pixels, N or HxW; 128 for networks with published weights, else as they are.
        target: Target column of a table of image files.
        force: Whether to replace the file.
        as_json: Whether to print JSON.

    Examples:
        murmur embed photos --net efficientnet-lite0 --out features.npz
        murmur train features.npz --net linear --members 10
        murmur embed cifar-10-batches-bin --size 112 --out cifar10.npz
        murmur embed photos --net resnet20 --weights resnet20.safetensors --out features.npz
    """
    from murmuration.data.raw import LoadOptions
    from murmuration.models.features import feature_source, write_features

    path = output_path(out, (".npz",), force)
    report = (lambda text: None) if as_json else say
    try:
        with counting_bar(f"features by {net}", as_json) as count:
            embedder = feature_source(net, weights or True, image_size(size), out=path, count=count, say=report)
            record = write_features(data, embedder, path, LoadOptions(named_targets(target)))
    except KeyboardInterrupt:
        raise Interrupted(CONTINUES) from None
    if as_json:
        return print_json(record)
    examples = ", ".join(f"{count:,} {part}" for part, count in record["examples"].items())
    say(f"written: {path} ({examples}; {record['features']:,} features)")
