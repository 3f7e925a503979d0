"""Super-resolution of images with a standard deviation for every pixel; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.applications.superres.training import Patches, is_patches, open_patches, reopen, train
from murmuration.applications.superres.upscale import is_superres, upscale, upscale_files
