"""Murmuration: ensembles of neural networks that say how far each prediction can be trusted.

    import murmuration as mm

    data = mm.open_data("digits")
    ensemble = mm.fit("small-cnn", data, members=5)
    predictive = ensemble.predict(data.test.x)
    print(mm.score(predictive, data.test.y))

Names are imported when they are first used: torch takes seconds to load, and `murmur --help` does not need it.
"""

from importlib import import_module

TYPE_CHECKING = False  # `typing` is not imported: Ctrl-C would end `murmur` with a traceback in that time
if TYPE_CHECKING:
    from typing import Any

    from murmuration import analysis, plots
    from murmuration.costs import CostEstimate, estimate_costs
    from murmuration.coupling import Repulsion, Space, SpaceInputs
    from murmuration.cross_fitting import cross_interval
    from murmuration.data import Data, Split, open_data
    from murmuration.data.shift import corrupt
    from murmuration.dynamics import Dynamics, TrainTime, WeightPath
    from murmuration.ensemble import Ensemble
    from murmuration.errors import Failure, Misuse
    from murmuration.evaluation import EvalSet, Evaluation, ShiftSuite
    from murmuration.features import embed
    from murmuration.fitting import fit, load
    from murmuration.inspecting import parameter_roles
    from murmuration.likelihoods import (
        LDAM,
        Categorical,
        Experts,
        Focal,
        Gaussian,
        HeteroscedasticGaussian,
        Likelihood,
        LogitAdjusted,
        MeanAndStd,
        MultiLabel,
        Quantiles,
    )
    from murmuration.member_runs import add_members, drop_members, merge_runs
    from murmuration.memory import keep_freed_memory
    from murmuration.metrics import ExampleScores, Measure, Score, add_measure, remove_measure, score, score_detection
    from murmuration.posthoc import PostHoc, PostHocConfig, fit_calibrator, fit_conformal, fit_conformal_by_group
    from murmuration.prediction_files import save_predictions
    from murmuration.predictive import Predictive
    from murmuration.recipe import Plan, Recipe, make_recipe
    from murmuration.reports.report import evaluate, report
    from murmuration.resuming import resume
    from murmuration.sharing import Sharing
    from murmuration.weights import WeightFamily

__version__ = "0.1.0"

__all__ = [
    "LDAM",
    "Categorical",
    "CostEstimate",
    "Data",
    "Dynamics",
    "Ensemble",
    "EvalSet",
    "Evaluation",
    "ExampleScores",
    "Experts",
    "Failure",
    "Focal",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "LogitAdjusted",
    "MeanAndStd",
    "Measure",
    "Misuse",
    "MultiLabel",
    "Plan",
    "PostHoc",
    "PostHocConfig",
    "Predictive",
    "Quantiles",
    "Recipe",
    "Repulsion",
    "Score",
    "Sharing",
    "ShiftSuite",
    "Space",
    "SpaceInputs",
    "Split",
    "TrainTime",
    "WeightFamily",
    "WeightPath",
    "add_measure",
    "add_members",
    "analysis",
    "columns",
    "corrupt",
    "cross_interval",
    "drop_members",
    "embed",
    "estimate_costs",
    "evaluate",
    "fit",
    "fit_calibrator",
    "fit_conformal",
    "fit_conformal_by_group",
    "keep_freed_memory",
    "load",
    "make_recipe",
    "merge_runs",
    "open_data",
    "parameter_roles",
    "plots",
    "remove_measure",
    "report",
    "resume",
    "save_predictions",
    "score",
    "score_detection",
]

_HOMES = {
    "costs": ("CostEstimate", "estimate_costs"),
    "coupling": ("Repulsion", "Space", "SpaceInputs"),
    "cross_fitting": ("cross_interval",),
    "data": ("Data", "Split", "open_data"),
    "data.shift": ("corrupt",),
    "dynamics": ("Dynamics", "TrainTime", "WeightPath"),
    "ensemble": ("Ensemble",),
    "errors": ("Failure", "Misuse"),
    "evaluation": ("EvalSet", "Evaluation", "ShiftSuite"),
    "features": ("embed",),
    "fitting": ("fit", "load"),
    "inspecting": ("parameter_roles",),
    "likelihoods": (
        "LDAM",
        "Categorical",
        "Experts",
        "Focal",
        "Gaussian",
        "HeteroscedasticGaussian",
        "Likelihood",
        "LogitAdjusted",
        "MeanAndStd",
        "MultiLabel",
        "Quantiles",
    ),
    "member_runs": ("add_members", "drop_members", "merge_runs"),
    "memory": ("keep_freed_memory",),
    "metrics": ("ExampleScores", "Measure", "Score", "add_measure", "remove_measure", "score", "score_detection"),
    "posthoc": ("PostHoc", "PostHocConfig", "fit_calibrator", "fit_conformal", "fit_conformal_by_group"),
    "prediction_files": ("save_predictions",),
    "predictive": ("Predictive",),
    "recipe": ("Plan", "Recipe", "make_recipe"),
    "sharing": ("Sharing",),
    "weights": ("WeightFamily",),
    "reports.report": ("evaluate", "report"),
    "resuming": ("resume",),
}


def __getattr__(name: str) -> "Any":
    """The public name, imported from its home and kept."""
    if name in ("analysis", "columns", "plots"):  # modules
        return import_module(f"murmuration.{name}")
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"murmuration.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'murmuration' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
