"""Fitted models in files: skops with a list of types for scikit-learn, the formats of the other packages for theirs.

Nothing is unpickled: skops rebuilds objects of the types that it or `TRUSTED` lists, and any other type is refused.
Trees are checked before they are followed. That is no defence against strangers: do not load their runs.
"""

import importlib
import importlib.util
import zipfile
from pathlib import Path
from typing import Any

from murmuration.likelihoods import CLASSIFICATION, Likelihood
from murmuration.models.estimators.member import Layout, Model
from murmuration.models.estimators.natural_boosting import NaturalBoosting
from murmuration.models.estimators.table import estimator_class, kind_of
from murmuration.models.estimators.tree_checks import damaged_tree
from murmuration.system import files
from murmuration.system.errors import Failure, Misuse, first_line

FOLDER = "models"  # in a run directory
SUFFIXES = {"sklearn": "skops", "xgboost": "ubj", "lightgbm": "txt", "catboost": "cbm"}
CLASSES: dict[str, tuple[str, str, dict[str, str]]] = {  # by suffix: package, first part of classes, format in files
    ".ubj": ("xgboost", "XGB", {}),
    ".cbm": ("catboost", "CatBoost", {"format": "cbm"}),
}
TRUSTED = (  # besides those that skops knows to be harmless
    "functools.partial",
    "murmuration.models.estimators.natural_boosting.NaturalBoosting",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    "sklearn.utils.validation.check_array",
)


def require_skops() -> None:
    """Refuse to store a model of scikit-learn without skops."""
    if importlib.util.find_spec("skops") is None:
        raise Misuse("models of scikit-learn are stored by skops: pip install 'torch-murmuration[models]'")


def save_models(path: Path, models: tuple[Model, ...]) -> list[dict[str, Any]]:
    """Write the models into a run directory and return their records for the manifest."""
    (path / FOLDER).mkdir(exist_ok=True)
    records = []
    for index, model in enumerate(models):
        stored = []
        for part, estimator in enumerate(model.estimators):
            package = kind_of(model.name).package
            file = path / FOLDER / f"{index}-{part}.{SUFFIXES[package]}"
            _write(estimator, file, package)
            stored.append({"file": file.name, "sha256": files.digest_of(file)})
        record = {"name": model.name, "labels": list(model.labels), "noise": list(model.noise), "files": stored}
        records.append({**record, "columns": [list(column) for column in model.layout.columns]})
    return records


def load_models(path: Path, records: list[dict[str, Any]], likelihood: Likelihood) -> tuple[Model, ...]:
    """Read the models of a run directory, by their records in the manifest."""
    models = []
    for record in records:
        if not record["files"]:
            raise Failure(f"{path} names no file of the model {record['name']}: the run is damaged")
        layout = Layout(tuple((str(kind), int(width)) for kind, width in record["columns"]))
        files_of_model = [(path / FOLDER / Path(file["file"]).name, file["sha256"]) for file in record["files"]]
        estimators = tuple(_read(*file, likelihood.task) for file in files_of_model)
        labels, noise = tuple(map(int, record["labels"])), tuple(map(float, record["noise"]))
        models.append(Model(str(record["name"]), estimators, layout, likelihood, labels, noise))
    return tuple(models)


def _write(estimator: Any, file: Path, package: str) -> None:
    if package == "sklearn":
        require_skops()
        import skops.io

        content = skops.io.dumps(estimator, compression=zipfile.ZIP_DEFLATED)
        if surplus := _unlisted(content):
            raise Misuse(f"{type(estimator).__name__} holds a {surplus[0]}, which is not stored: only listed types are")
        files.write_bytes(file, content)
    else:
        settings = {"format": "cbm"} if package == "catboost" else {}
        files.write_named(file, lambda named: estimator.save_model(str(named), **settings))


def _read(file: Path, digest: str, task: str) -> Any:
    """Read the estimator in a file."""
    if not file.is_file():
        raise Failure(f"{file} is missing: the run is damaged")
    if files.digest_of(file) != digest:
        raise Failure(f"{file} has changed since the run was written: its SHA-256 differs")
    try:
        if file.suffix == ".skops":
            content = file.read_bytes()
            if surplus := _unlisted(content):
                raise Failure(f"{file} holds the type {surplus[0]}, which is not listed: it is not loaded")
            return _checked(importlib.import_module("skops.io").loads(content, trusted=list(TRUSTED)), file, task)
        if file.suffix == ".txt":
            return importlib.import_module("lightgbm").Booster(model_file=str(file))
        package, prefix, settings = CLASSES[file.suffix]
        model = estimator_class(package, prefix, task)()
        model.load_model(str(file), **settings)
        return model
    except ImportError as error:
        raise Failure(f"{file} needs the package {error.name}: pip install {error.name}") from None
    except (ValueError, LookupError, AttributeError, OSError, TypeError, zipfile.BadZipFile) as error:
        raise Failure(f"{file} is not a readable model: {first_line(error)}") from None


def _checked(estimator: Any, file: Path, task: str) -> Any:
    """Return what a file holds if it is an estimator for the task whose trees can be followed."""
    method = "predict_proba" if task == CLASSIFICATION else "predict"
    known = isinstance(estimator, NaturalBoosting) or callable(getattr(estimator, method, None))
    if isinstance(estimator, type) or not known:
        raise Failure(f"{file} holds a {type(estimator).__name__} without {method}: {files.DAMAGED}")
    if (problem := damaged_tree(estimator)) is not None:
        raise Failure(f"{file} holds a tree that cannot be followed, {problem}: {files.DAMAGED}")
    return estimator


def _unlisted(content: bytes) -> list[str]:
    import skops.io

    return sorted(set(skops.io.get_untrusted_types(data=content)) - set(TRUSTED))
