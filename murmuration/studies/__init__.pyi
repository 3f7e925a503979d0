"""The public names of this room and where they are defined: `__init__.py` imports them from here."""

from murmuration.studies import connectors as connectors, plots as plots, subspaces as subspaces
from murmuration.studies.alignment import Alignment as Alignment, align as align
from murmuration.studies.divergence import jensen_shannon as jensen_shannon
from murmuration.studies.diversity import (
    TradeOff as TradeOff,
    family as family,
    fit_exponent as fit_exponent,
    flipped as flipped,
    trade_off as trade_off,
)
from murmuration.studies.embedding import (
    Embedding as Embedding,
    embed_paths as embed_paths,
    kl_objective as kl_objective,
    tsne as tsne,
)
from murmuration.studies.kernels import (
    KernelDiagnosis as KernelDiagnosis,
    kernel_diagnosis as kernel_diagnosis,
    kernels_at_infinite_width as kernels_at_infinite_width,
    kernels_before as kernels_before,
)
from murmuration.studies.paths import (
    Paths as Paths,
    ScoredPath as ScoredPath,
    barrier as barrier,
    paths_between as paths_between,
)
from murmuration.studies.planes import (
    Plane as Plane,
    PlaneBasis as PlaneBasis,
    StitchedView as StitchedView,
    plane as plane,
    plane_basis as plane_basis,
    stitched_view as stitched_view,
)
from murmuration.studies.randomness import Factorial as Factorial, factorial as factorial
from murmuration.studies.similarity import (
    Similarity as Similarity,
    disagreement_bounds as disagreement_bounds,
    linear_cka as linear_cka,
    network_similarity as network_similarity,
    normalised_diversity as normalised_diversity,
    path_similarity as path_similarity,
)
from murmuration.studies.sizes import Sizes as Sizes, ensemble_sizes as ensemble_sizes
from murmuration.studies.subspaces import SAMPLERS as SAMPLERS, sample_subspace as sample_subspace
from murmuration.studies.trajectory import (
    Trajectory as Trajectory,
    open_trajectory as open_trajectory,
    trajectory_of as trajectory_of,
)
from murmuration.studies.uncertainty import UncertaintyPath as UncertaintyPath, uncertainty_path as uncertainty_path
from murmuration.studies.weight_space import (
    PointOutputs as PointOutputs,
    Points as Points,
    WeightSpace as WeightSpace,
    points_of as points_of,
    score_points as score_points,
)
