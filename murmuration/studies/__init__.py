"""Ensembles from inside: kernels and regimes of members that share weights, and the loss landscape around members.

Names are imported from their files when they are first used.
"""

from importlib import import_module
from typing import Any

_HOMES = {  # file -> its public names
    "alignment": ("Alignment", "align"),
    "divergence": ("jensen_shannon",),
    "diversity": ("TradeOff", "family", "fit_exponent", "flipped", "trade_off"),
    "embedding": ("Embedding", "embed_paths", "kl_objective", "tsne"),
    "kernels": ("KernelDiagnosis", "kernel_diagnosis", "kernels_at_infinite_width", "kernels_before"),
    "paths": ("Paths", "ScoredPath", "barrier", "paths_between"),
    "planes": ("Plane", "PlaneBasis", "StitchedView", "plane", "plane_basis", "stitched_view"),
    "randomness": ("Factorial", "factorial"),  # a file of the name of the function would hide it
    "similarity": (
        *("Similarity", "network_similarity", "path_similarity"),
        *("disagreement_bounds", "linear_cka", "normalised_diversity"),
    ),
    "sizes": ("Sizes", "ensemble_sizes"),
    "subspaces": ("SAMPLERS", "sample_subspace"),
    "trajectory": ("Trajectory", "open_trajectory", "trajectory_of"),
    "weight_space": ("PointOutputs", "Points", "WeightSpace", "points_of", "score_points"),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    """Return the public name, imported from its file and kept."""
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"murmuration.studies.{home}"), name)
            globals()[name] = value
            return value
    if name in ("connectors", "plots", "subspaces"):  # modules
        return import_module(f"murmuration.studies.{name}")
    raise AttributeError(f"module 'murmuration.studies' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
