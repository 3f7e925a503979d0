"""Pictures made larger, with a map of where not to trust them; see README.md."""

from murmuration.superres.applying import apply
from murmuration.superres.enlarging import Enlarged, enlarge, enlarges
from murmuration.superres.judging import Judged, judge
from murmuration.superres.measures import psnr, ssim

__all__ = ["Enlarged", "Judged", "apply", "enlarge", "enlarges", "judge", "psnr", "ssim"]
