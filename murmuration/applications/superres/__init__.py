"""Super-resolution of images with a standard deviation for every pixel; see README.md."""

from murmuration.applications.superres.training import Patches, is_patches, open_patches, reopen, train
from murmuration.applications.superres.upscale import is_superres, upscale, upscale_files

__all__ = ["Patches", "is_patches", "is_superres", "open_patches", "reopen", "train", "upscale", "upscale_files"]
