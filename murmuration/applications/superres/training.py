"""Training of a super-resolution ensemble: `mm.fit` with image targets as the likelihood's matter."""

from typing import Any

import murmuration as mm
from murmuration.applications.superres.patches import Patches, open_patches, patches_named
from murmuration.errors import Misuse

NETS = ("subpixel", "subpixel-plain")


def train(data: mm.Data, *, net: str = "subpixel", noise_std: float = 0.02, **settings: Any) -> mm.Ensemble:
    """An ensemble that maps small images to larger ones, from the data of `open_patches`.

    Targets keep their units (0 black, 1 white) and their noise is given: `noise_std`, of one pixel. `settings` are
    those of `mm.fit`: recipe, members, epochs, plan, out and so on.
    """
    check_net(net)
    plan = settings.get("plan")
    if plan is not None and plan.augment:
        raise Misuse(f"augment={','.join(plan.augment)} changes inputs, and targets are images here: leave it out")
    likelihood = mm.Gaussian(noise_std, targets=data.train.y.shape[1])
    return mm.fit(net, data, likelihood=likelihood, **settings)


def check_net(net: str) -> None:
    """Refuse a network that does not map images to images."""
    if net not in NETS:
        raise Misuse(f"{net} does not make images: write {' or '.join(NETS)}")


def is_patches(manifest: dict[str, Any]) -> bool:
    """Whether a run was trained on data of `open_patches`."""
    return str(manifest.get("data", {}).get("name", "")).startswith("patches:")


def patches_of(manifest: dict[str, Any]) -> Patches:
    """The settings of a run's training data; refused if it was not trained on patches of photographs."""
    if not is_patches(manifest):
        raise Misuse("the run was not trained on patches of photographs: train one with murmur superres train")
    return patches_named(manifest["data"]["name"])


def reopen(manifest: dict[str, Any]) -> mm.Data:
    """The training data of a run, as `mm.resume` needs it again."""
    return open_patches(patches_of(manifest))
