"""The public names of the package and where they are defined: `murmuration/__init__.py` imports them from here."""

from murmuration.core.coupling import Repulsion as Repulsion, Space as Space, SpaceInputs as SpaceInputs
from murmuration.core.dynamics import Dynamics as Dynamics, TrainTime as TrainTime, WeightPath as WeightPath
from murmuration.core.recipe import Recipe as Recipe, make_recipe as make_recipe
from murmuration.core.sharing import Sharing as Sharing
from murmuration.core.weights import WeightFamily as WeightFamily
from murmuration.data import Data as Data, Split as Split, open_data as open_data
from murmuration.data.shift import corrupt as corrupt
from murmuration.evaluation import (
    EvalSet as EvalSet,
    Evaluation as Evaluation,
    ShiftSuite as ShiftSuite,
    columns as columns,
)
from murmuration.evaluation.metrics import (
    ExampleScores as ExampleScores,
    Measure as Measure,
    Score as Score,
    add_measure as add_measure,
    remove_measure as remove_measure,
    score as score,
    score_detection as score_detection,
)
from murmuration.likelihoods import (
    LDAM as LDAM,
    Categorical as Categorical,
    Experts as Experts,
    Focal as Focal,
    Gaussian as Gaussian,
    HeteroscedasticGaussian as HeteroscedasticGaussian,
    Likelihood as Likelihood,
    LogitAdjusted as LogitAdjusted,
    MeanAndStd as MeanAndStd,
    MultiLabel as MultiLabel,
    Quantiles as Quantiles,
)
from murmuration.models.features import embed as embed
from murmuration.models.nets.adapt import with_noise as with_noise
from murmuration.prediction.ensemble import Ensemble as Ensemble
from murmuration.prediction.posthoc import (
    PostHoc as PostHoc,
    PostHocConfig as PostHocConfig,
    fit_calibrator as fit_calibrator,
    fit_conformal as fit_conformal,
    fit_conformal_by_group as fit_conformal_by_group,
)
from murmuration.prediction.prediction_files import save_predictions as save_predictions
from murmuration.prediction.predictive import Predictive as Predictive
from murmuration.reports import plots as plots
from murmuration.reports.audit import audit as audit
from murmuration.reports.comparison import Comparison as Comparison, compare as compare
from murmuration.reports.report import evaluate as evaluate, report as report
from murmuration.sklearn import EnsembleClassifier as EnsembleClassifier, EnsembleRegressor as EnsembleRegressor
from murmuration.system.errors import Failure as Failure, Misuse as Misuse, StopTraining as StopTraining
from murmuration.system.memory import keep_freed_memory as keep_freed_memory
from murmuration.training.costs import CostEstimate as CostEstimate, estimate_costs as estimate_costs
from murmuration.training.fitting import fit as fit, load as load, resume as resume
from murmuration.training.folds import cross_interval as cross_interval
from murmuration.training.member_runs import (
    add_members as add_members,
    drop_members as drop_members,
    merge_runs as merge_runs,
)
from murmuration.training.method import Method as Method
from murmuration.training.plan import Plan as Plan
from murmuration.training.resolve import parameter_roles as parameter_roles

__version__: str
