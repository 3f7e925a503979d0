"""Pictures made larger, with a map of where not to trust them; see README.md."""

from murmuration.applications.superres.applying import apply
from murmuration.applications.superres.enlarging import Enlarged, enlarge, enlarges
from murmuration.applications.superres.judging import Judged, judge
from murmuration.applications.superres.measures import psnr, ssim

__all__ = ["Enlarged", "Judged", "apply", "enlarge", "enlarges", "judge", "psnr", "ssim"]
