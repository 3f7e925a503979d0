"""The public names of the package and where they are defined: `murmuration/__init__.py` imports them from here."""

from murmuration.core.coupling import Repulsion as Repulsion
from murmuration.core.coupling import Space as Space
from murmuration.core.coupling import SpaceInputs as SpaceInputs
from murmuration.core.dynamics import Dynamics as Dynamics
from murmuration.core.dynamics import TrainTime as TrainTime
from murmuration.core.dynamics import WeightPath as WeightPath
from murmuration.core.recipe import Recipe as Recipe
from murmuration.core.recipe import make_recipe as make_recipe
from murmuration.core.sharing import Sharing as Sharing
from murmuration.core.weights import WeightFamily as WeightFamily
from murmuration.data import Data as Data
from murmuration.data import Split as Split
from murmuration.data import open_data as open_data
from murmuration.data.shift import corrupt as corrupt
from murmuration.evaluation import (
    EvalSet as EvalSet,
)
from murmuration.evaluation import (
    Evaluation as Evaluation,
)
from murmuration.evaluation import (
    ShiftSuite as ShiftSuite,
)
from murmuration.evaluation import (
    columns as columns,
)
from murmuration.evaluation.metrics import (
    ExampleScores as ExampleScores,
)
from murmuration.evaluation.metrics import (
    Measure as Measure,
)
from murmuration.evaluation.metrics import (
    Score as Score,
)
from murmuration.evaluation.metrics import (
    add_measure as add_measure,
)
from murmuration.evaluation.metrics import (
    remove_measure as remove_measure,
)
from murmuration.evaluation.metrics import (
    score as score,
)
from murmuration.evaluation.metrics import (
    score_detection as score_detection,
)
from murmuration.likelihoods import (
    LDAM as LDAM,
)
from murmuration.likelihoods import (
    Categorical as Categorical,
)
from murmuration.likelihoods import (
    Experts as Experts,
)
from murmuration.likelihoods import (
    Focal as Focal,
)
from murmuration.likelihoods import (
    Gaussian as Gaussian,
)
from murmuration.likelihoods import (
    HeteroscedasticGaussian as HeteroscedasticGaussian,
)
from murmuration.likelihoods import (
    Likelihood as Likelihood,
)
from murmuration.likelihoods import (
    LogitAdjusted as LogitAdjusted,
)
from murmuration.likelihoods import (
    MeanAndStd as MeanAndStd,
)
from murmuration.likelihoods import (
    MultiLabel as MultiLabel,
)
from murmuration.likelihoods import (
    Quantiles as Quantiles,
)
from murmuration.models.features import embed as embed
from murmuration.prediction.ensemble import Ensemble as Ensemble
from murmuration.prediction.posthoc import (
    PostHoc as PostHoc,
)
from murmuration.prediction.posthoc import (
    PostHocConfig as PostHocConfig,
)
from murmuration.prediction.posthoc import (
    fit_calibrator as fit_calibrator,
)
from murmuration.prediction.posthoc import (
    fit_conformal as fit_conformal,
)
from murmuration.prediction.posthoc import (
    fit_conformal_by_group as fit_conformal_by_group,
)
from murmuration.prediction.prediction_files import save_predictions as save_predictions
from murmuration.prediction.predictive import Predictive as Predictive
from murmuration.reports import plots as plots
from murmuration.reports.audit import audit as audit
from murmuration.reports.comparison import Comparison as Comparison
from murmuration.reports.comparison import compare as compare
from murmuration.reports.report import evaluate as evaluate
from murmuration.reports.report import report as report
from murmuration.sklearn import EnsembleClassifier as EnsembleClassifier
from murmuration.sklearn import EnsembleRegressor as EnsembleRegressor
from murmuration.system.errors import Failure as Failure
from murmuration.system.errors import Misuse as Misuse
from murmuration.system.memory import keep_freed_memory as keep_freed_memory
from murmuration.training.costs import CostEstimate as CostEstimate
from murmuration.training.costs import estimate_costs as estimate_costs
from murmuration.training.fitting import fit as fit
from murmuration.training.fitting import load as load
from murmuration.training.folds import cross_interval as cross_interval
from murmuration.training.inspecting import parameter_roles as parameter_roles
from murmuration.training.member_runs import (
    add_members as add_members,
)
from murmuration.training.member_runs import (
    drop_members as drop_members,
)
from murmuration.training.member_runs import (
    merge_runs as merge_runs,
)
from murmuration.training.method import Method as Method
from murmuration.training.plan import Plan as Plan
from murmuration.training.resuming import resume as resume

__version__: str
