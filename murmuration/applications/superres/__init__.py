"""Super-resolution of images with a standard deviation for every pixel; see README.md."""

from murmuration.applications.superres.evaluation import PhotoScores, evaluate
from murmuration.applications.superres.metrics import psnr, ssim
from murmuration.applications.superres.patches import Patches, open_patches
from murmuration.applications.superres.training import is_patches, reopen, train
from murmuration.applications.superres.upscale import PixelPrediction, is_superres, upscale, upscale_files

__all__ = [
    "Patches",
    "PhotoScores",
    "PixelPrediction",
    "evaluate",
    "is_patches",
    "is_superres",
    "open_patches",
    "psnr",
    "reopen",
    "ssim",
    "train",
    "upscale",
    "upscale_files",
]
