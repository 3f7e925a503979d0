"""Pictures made larger, with a map of where not to trust them; see README.md."""

from murmuration.applications.superres.applying import apply
from murmuration.applications.superres.enlarging import Enlarged, enlarge, enlarges
from murmuration.applications.superres.judging import Judged, judge
from murmuration.applications.superres.measures import psnr, ssim
from murmuration.applications.superres.patches import Patches, open_patches
from murmuration.applications.superres.training import is_patches, reopen, train

__all__ = [
    "Enlarged",
    "Judged",
    "Patches",
    "apply",
    "enlarge",
    "enlarges",
    "is_patches",
    "judge",
    "open_patches",
    "psnr",
    "reopen",
    "ssim",
    "train",
]
