"""Long-tailed recognition with trained members: heads trained again, normalised, or weighted; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.applications.longtail.expert_weights import agreement_weights, expert_weights
from murmuration.applications.longtail.heads import Transfer, normalise_heads, retrain_heads, transfer_covariance
