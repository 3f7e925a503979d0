"""Calls of the Python API with hostile values: a call answers rightly, refuses in one line, or has failed the user.

python tools/fuzz_api.py --cases 5000           calls, whose numbers go on where the last ones ended
python tools/fuzz_api.py --cases 0 --again      those that were bad, after a change
python tools/fuzz_api.py --show 4711            one call again, with its traceback

A case is a number: it seeds the choice of an area, of a call and of a value of `fuzz_values.py`. Verdicts: `right` (the
clean answer, or one that cannot be compared), `refused` (`Misuse`, or what scientific Python refuses by its checks in
an estimator), `failed` (`Failure`), `internal` (any other exception, or a message of several lines), `wrong` (an answer
where there is none, or another than the clean one). Counts accumulate in benchmarks/results/fuzz-api.json.
"""

import argparse
import inspect
import json
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from fuzz_values import ANY, FORMS, LABELS, REFUSE, SAME, SETTINGS, TABLES, Change
from torch import nn

import murmuration as mm
from murmuration.data import open_data
from murmuration.prediction.posthoc.conformal import CONFORMAL_METHODS
from murmuration.prediction.prediction_files import save_predictions
from murmuration.sklearn import EnsembleClassifier, EnsembleRegressor
from murmuration.system.errors import LONGEST, Failure, Misuse
from murmuration.training.plan import Plan
from murmuration.training.resolve import FEATURES, LOSS, START

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "fuzz-api.json"
SECONDS = 60  # of one call
ROWS, COLUMNS, CLASSES = 40, 3, 3
SMALL: dict[str, Any] = {"members": 1, "steps": 2, "progress": False}
MOST = 10  # of the numbers that cost their value:
COSTLY = {"epochs", "steps", "members", "n_estimators", "folds", "size", "warmup", "batch_size"}
OTHER_SHAPES = ("three axes", "flat", "an axis more", "transposed")
TENSORS = ("float64", "Fortran order", "NaN", "infinity", "1e39", "no rows", "one row more", "integers", *OTHER_SHAPES)
OTHER_CLASSES = {  # forms of labels that are other classes, as good as the clean ones
    *("halves", "beyond", "negative", "huge", "one-hot", "text inside", "date inside", "complex"),
    *("whole floats", "booleans", "objects", "dates", "durations", "tensor with gradients", "float64", "longdouble"),
    *("parameter", "half", "bfloat16"),
}
RNG = np.random.default_rng(20261119)
X = RNG.normal(size=(ROWS, COLUMNS)).astype(np.float32)
Y = np.resize(np.arange(CLASSES), ROWS)
TARGETS = X.sum(1, keepdims=True).astype(np.float64)
TABLE = pd.DataFrame(
    {
        "a": X[:, 0].astype(np.float64),
        "b": np.arange(ROWS) % 7 + np.resize([0, 10], ROWS),
        "c": np.resize(["red", "green", "blue"], ROWS),
        "d": pd.date_range("2020-01-01", periods=ROWS) + pd.to_timedelta(np.arange(ROWS) % 5, unit="D"),
        "e": np.resize([True, False, False], ROWS),
    }
)


class Call(NamedTuple):
    """One call of the API: values for its argument, and what it does with one."""

    values: dict[str, Change]
    clean: Any
    act: Callable[[Any], Any]
    compares: bool = True


class Ended(Exception):  # noqa: N818 - not an error
    """Training has begun: the keyword was accepted."""


def probabilities(shape: tuple[int, ...]) -> np.ndarray:
    values = np.random.default_rng(1).random((*shape, CLASSES)) + 0.1
    return values / values.sum(-1, keepdims=True)


def settings(name: str = "") -> dict[str, Change]:
    """Values for a keyword."""
    cheap = [v for v in SETTINGS if not (name in COSTLY and isinstance(v, int | float) and abs(v) > MOST)]
    return {f"{i}": (ANY, lambda _, value=value: value) for i, value in enumerate(cheap)}


def free(values: dict[str, Change], *names: str) -> dict[str, Change]:
    """The values, of which some may be accepted."""
    return {**values, **{name: (ANY, values[name][1]) for name in names}}


@cache
def ensembles() -> dict[str, mm.Ensemble]:
    torch.manual_seed(0)
    nets = [nn.Linear(COLUMNS, CLASSES) for _ in range(2)]
    small = {"members": 2, "epochs": 1, "progress": False}
    return {
        "classes": mm.fit("mlp", (X, Y), **small),
        "numbers": mm.fit("mlp", (X, TARGETS), **small),
        "ridge": mm.fit("ridge", (X, TARGETS), progress=False),
        "given": mm.Ensemble.from_models(nets),
        "table": mm.fit("mlp", TABLE.assign(y=Y), target="y", **small),
    }


@cache
def estimators() -> dict[str, Any]:
    small = {"members": 1, "epochs": 1, "random_state": 0}
    return {
        "classifier": EnsembleClassifier(**small).fit(X, Y),
        "regressor": EnsembleRegressor(**small).fit(X, TARGETS),
    }


def outputs(pred: mm.Predictive) -> torch.Tensor:
    return pred.outputs.double()


def written(ensemble: mm.Ensemble, x: Any) -> torch.Tensor:
    save_predictions(ensemble, x, "p.npz")
    with np.load("p.npz") as arrays:
        return torch.from_numpy(arrays["probs" if "probs" in arrays else "mean"])


def double(values: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values)).double()


def numbers_of(value: Any) -> torch.Tensor:
    """The numbers in a result, as one tensor."""
    if isinstance(value, dict):
        return torch.tensor([float(v) for v in value.values()]).double()
    parts = value if isinstance(value, tuple) else (value,)
    return torch.cat([torch.as_tensor(np.asarray(part)).double().reshape(-1) for part in parts])


# The calls of every area


def areas() -> dict[str, dict[str, Call]]:
    """Every call by area and name."""
    return {
        "predict": predictions(),
        "fit": fits(),
        "tables": of_tables(),
        "scikit-learn": of_estimators(),
        **of_predictives(),
        "constructors": constructors(),
        "as_module": modules(),
    }


def predictions() -> dict[str, Call]:
    """Predictions for arrays, by every kind of ensemble."""
    found: dict[str, Call] = {}
    for name, model in ensembles().items():
        if name == "table":
            continue
        y = TARGETS if name in ("numbers", "ridge") else Y
        inputs, labelled = free(FORMS, "one row more"), free(FORMS, "three axes", "1e39") if name == "given" else FORMS
        acts: dict[str, tuple[dict[str, Change], Callable[..., Any]]] = {
            "predict": (inputs, lambda x, m: outputs(m.predict(x))),
            "prepared": (free(inputs, "no rows"), lambda x, m: outputs(m.predict(x, prepared=True))),
            "stream": (inputs, lambda x, m: torch.cat([outputs(pred) for pred in m.stream(x)], 1)),
            "save": (inputs, lambda x, m: written(m, x)),
            "labelled": (labelled, lambda x, m, y=y: m.labelled((x, y)).prepared.double()),
        }
        for what, (values, act) in acts.items():
            found[f"{name}: {what}"] = Call(values, X, partial(act, m=model))
        draws = partial(lambda v, m: m.predict(X, draws=v), m=model)
        found[f"{name}: draws="] = Call(settings("members"), None, draws, compares=False)
    return found


def of_tables() -> dict[str, Call]:
    """Predictions for tables."""
    model = ensembles()["table"]
    return {
        "predict": Call(TABLES, TABLE, lambda x: outputs(model.predict(x))),
        "stream": Call(TABLES, TABLE, lambda x: outputs(mm.Predictive.concatenate([*model.stream(x)]))),
        "save": Call(TABLES, TABLE, lambda x: written(model, x)),
    }


def fits() -> dict[str, Call]:
    """Every keyword of `fit`, and its data."""
    reading = [name for name in inspect.signature(open_data).parameters if name != "source"]
    own = [name for name in inspect.signature(mm.fit).parameters if name not in ("settings", "progress")]
    names = dict.fromkeys([*Plan.__dataclass_fields__, *reading, *own, *START, *LOSS, *FEATURES, "unheard_of"])
    found = {name: Call(settings(name), None, partial(begun, name), compares=False) for name in names}
    classes = {name: change for name, change in LABELS.items() if name not in OTHER_CLASSES}
    found["x"] = Call(free(FORMS, "three axes"), X, lambda v: open_data((v, Y)).train.prepared.double())
    found["y"] = Call(classes, Y, lambda v: open_data((X, v)).train.y.double())
    found["numbers"] = Call(FORMS, TARGETS, lambda v: open_data((X, v), task="regression").train.y)
    return found


def begun(name: str, value: Any) -> None:
    """Begin to train with a keyword, and end at the first report of progress."""

    def ended(*_: Any) -> None:
        raise Ended

    mm.fit(**{"net": "mlp", "data": (X, Y), **SMALL, "progress": ended, name: value})


def of_predictives() -> dict[str, dict[str, Call]]:
    """Scores, conformal rules and calibrators of predictions."""
    scores: dict[str, Call] = {}
    conformal: dict[str, Call] = {}
    calibrators: dict[str, Call] = {}
    pred, moments = mm.Predictive.from_probs(probabilities((2, ROWS))), mm.Predictive.from_moments(TARGETS[None], 0.5)
    for name, p, y, values in (("classes", pred, Y, LABELS), ("numbers", moments, TARGETS, free(FORMS, "1e39"))):
        scores[f"{name}: score"] = Call(values, y, partial(lambda v, p: numbers_of(mm.score(p, v)), p=p))
        scores[f"{name}: log_prob"] = Call(values, y, partial(lambda v, p: p.log_prob(v), p=p))
        scores[f"{name}: audit"] = Call(values, y, partial(lambda v, p: mm.audit(p, v), p=p), compares=False)
        for method in CONFORMAL_METHODS["classification" if name == "classes" else "regression"]:
            fit = partial(lambda v, p, how: numbers_of(mm.fit_conformal(how, p, v).regions(p)), p=p, how=method)
            conformal[f"{name}: {method}"] = Call(values, y, fit)
        for keyword in ("coverage", "seed", "penalty", "start", "scale", "method"):
            usual = {"method": "raps" if name == "classes" else "normalised", "pred": p, "y": y}
            call = partial(lambda v, usual, key: mm.fit_conformal(**{**usual, key: v}), usual=usual, key=keyword)
            conformal[f"{name}: {keyword}="] = Call(settings(), None, call, compares=False)
        fit = partial(lambda v, p: outputs(mm.fit_calibrator("temperature", p, v)(p)), p=p)
        calibrators[f"{name}: y"] = Call(values, y, fit)
        by_method = partial(lambda v, p, y: mm.fit_calibrator(v, p, y), p=p, y=y)
        calibrators[f"{name}: method="] = Call(settings(), None, by_method, compares=False)
    counts = partial(mm.fit_calibrator, "logit_adjustment", pred, Y)
    calibrators["counts="] = Call(settings(), None, counts, compares=False)
    return {"scores": scores, "conformal": conformal, "calibrators": calibrators}


def constructors() -> dict[str, Call]:
    """Predictives of probabilities and of moments."""
    make, both, forms = mm.Predictive.from_probs, mm.Predictive.from_moments, free(FORMS, "one row more")
    means, probs = TARGETS[None], probabilities((2, 4))
    return {
        "from_probs": Call(forms, probabilities((2, ROWS)), lambda v: outputs(make(v))),
        "from_probs, one model": Call(forms, probabilities((ROWS,)), lambda v: outputs(make(v))),
        "weights": Call(free(forms, "nothing"), np.array([0.25, 0.75]), lambda v: make(probs, v).mean),
        "means": Call(free(forms, "no rows", "1e39"), means, lambda v: outputs(both(v, 0.5))),
        "stds": Call(free(forms, "scalar", "1e39"), np.abs(means) + 1, lambda v: outputs(both(means, v))),
        "outliers": Call(settings(), None, lambda v: both(means, 0.5, outliers=v), compares=False),
    }


def of_estimators() -> dict[str, Call]:
    """Both scikit-learn estimators: inputs, targets, weights, and every parameter."""
    found: dict[str, Call] = {}
    inputs = free(FORMS, "NaN", "NaN in the last place", "missing")
    classes = {name: change for name, change in LABELS.items() if name not in OTHER_CLASSES}
    for name, y, values in (("classifier", Y, classes), ("regressor", TARGETS[:, 0], FORMS)):
        model = estimators()[name]
        fit = partial(mean_of_fit, type(model))
        predict = partial(lambda v, m: double(m.predict(v)), m=model)
        found[f"{name}: predict"] = Call(free(inputs, "one row more"), X, predict)
        found[f"{name}: fit X"] = Call(inputs, X, partial(lambda v, y, fit: fit(v, y), y=y, fit=fit))
        found[f"{name}: fit y"] = Call(values, y, partial(fit, X))
        found[f"{name}: weights"] = Call(free(FORMS, "nothing", "scalar"), np.ones(ROWS), partial(fit, X, y))
        region = model.predict_set if name == "classifier" else model.predict_interval
        for keyword in ("coverage", "method"):
            call = partial(lambda v, region, key: region(X, **{key: v}), region=region, key=keyword)
            found[f"{name}: {keyword}="] = Call(settings(), None, call, compares=False)
        for parameter in sorted(model.get_params(deep=False)):
            make = partial(
                lambda v, make, y, key: make(**{**SIZES, key: v}).fit(X, y), make=type(model), y=y, key=parameter
            )
            found[f"{name}: {parameter}="] = Call(settings(parameter), None, make, compares=False)
    return found


SIZES = {"members": 1, "steps": 2}


def mean_of_fit(make: Any, x: Any, y: Any, weight: Any = None) -> torch.Tensor:
    return double(make(**SIZES, random_state=0).fit(x, y, sample_weight=weight).predictive(X).mean)


def modules() -> dict[str, Call]:
    """Ensembles as modules, which take tensors; given networks, of unknown inputs, say themselves what they refuse."""
    found, forms = {}, free(FORMS, "one row more", "no rows")
    for name in ("classes", "numbers", "given"):
        known = [label for label in TENSORS if name != "given" or label not in OTHER_SHAPES]
        act = partial(lambda x, m: m(torch.as_tensor(x).float())["mean"].double(), m=ensembles()[name].as_module())
        found[name] = Call({label: forms[label] for label in known}, X, act)
    return found


# Cases


@cache
def calls() -> tuple[dict[str, dict[str, Call]], dict[tuple[str, str], Any]]:
    """All calls, and the clean answers of those that have one."""
    found = areas()
    answers = {(a, n): call.act(call.clean) for a, named in found.items() for n, call in named.items() if call.compares}
    return found, answers


def run_case(case: int, loud: bool = False) -> tuple[str, str, str]:
    """Return the area of a case, its verdict, and a message."""
    rng = np.random.default_rng([20261119, case])
    found, answers = calls()
    area = list(found)[int(rng.choice(len(found), p=shares(found)))]
    name = list(found[area])[int(rng.integers(len(found[area])))]
    call = found[area][name]
    label, expected, value = drawn(rng, call)
    where = f"{area}, {name}, {repr(value)[:60] if label.isdigit() else label}"
    signal.alarm(SECONDS)
    try:
        answer = call.act(value)
    except Ended:
        return area, "right", where
    except (Misuse, Failure) as error:
        text = str(error)
        if "\n" in text or len(text) > LONGEST + 200:
            return area, "internal", f"{where}: a message of {len(text)} characters"
        return area, "refused" if isinstance(error, Misuse) else "failed", f"{where}: {text}"
    except BaseException as error:
        if loud:
            traceback.print_exc()
        if area == "scikit-learn" and refused_by_checks(error):
            return area, "refused", f"{where}: {error}"
        return area, "internal", f"{where}: {type(error).__name__}: {str(error).splitlines()[0:1]} {place_of(error)}"
    finally:
        signal.alarm(0)
    return area, *judged(expected, answer, answers.get((area, name)), where)


def drawn(rng: np.random.Generator, call: Call) -> tuple[str, str, Any]:
    """Draw a value of a call; not every array has every form."""
    while True:
        label = list(call.values)[int(rng.integers(len(call.values)))]
        expected, change = call.values[label]
        try:
            return label, expected, change(call.clean)
        except (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError):
            continue


def judged(expected: str, answer: Any, clean: Any, where: str) -> tuple[str, str]:
    """Return whether an answer is right."""
    if clean is None or not isinstance(answer, torch.Tensor):
        return ("wrong", f"{where}: accepted") if expected == REFUSE else ("right", where)
    if expected == REFUSE and not bool(answer.isnan().any()):  # a module says NaN where `predict` refuses
        return "wrong", f"{where}: accepted"
    if expected == SAME and not (answer.shape == clean.shape and torch.allclose(answer, clean, 1e-4, 1e-5, True)):
        return "wrong", f"{where}: another answer"
    return "right", where


def refused_by_checks(error: BaseException) -> bool:
    """Return whether an error is a refusal by the checks of scikit-learn, in the words of scikit-learn."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "murmuration" in frame.filename]
    inside = frames[frames.index(ours[-1]) :] if ours else frames
    through = any("/sklearn/" in frame.filename and "murmuration" not in frame.filename for frame in inside)
    own = bool(ours) and ours[-1].filename.endswith("sklearn.py") and "raise" in (ours[-1].line or "")
    return isinstance(error, TypeError | ValueError) and (through or own)


def place_of(error: BaseException) -> str:
    """Return the line of this package where an error was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "murmuration" in f.filename]
    return f"({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def shares(found: dict[str, dict[str, Call]]) -> np.ndarray:
    """Return the share of each area: between equal shares and those by number of calls and values."""
    sizes = np.array([sum(len(call.values) for call in named.values()) for named in found.values()], dtype=float)
    return np.sqrt(sizes) / np.sqrt(sizes).sum()


def add(record: dict[str, Any], case: int, outcome: tuple[str, str, str]) -> None:
    """Count one outcome; bad ones are kept."""
    area, verdict, message = outcome
    counts = record["kinds"].setdefault(area, {})
    counts[verdict] = counts.get(verdict, 0) + 1
    if verdict in ("internal", "wrong"):
        record["bad"].append({"case": case, "kind": area, "verdict": verdict, "message": message[:400]})
        print(f"case {case}: {verdict}: {message[:300]}", flush=True)


def fuzz(
    cases: int, record: dict[str, Any] | None = None, again: bool = False, path: Path | None = None
) -> dict[str, Any]:
    """Run further cases, or those that were bad again, and return the record."""
    record = record or {"cases": 0, "kinds": {}, "bad": []}
    numbers = range(record["cases"], record["cases"] + cases)
    if again:
        numbers, bad, record["bad"] = [entry["case"] for entry in record["bad"]], record["bad"], []
        for entry in bad:
            record["kinds"][entry["kind"]][entry["verdict"]] -= 1
    for case in numbers:
        add(record, case, run_case(case))
        record["cases"] = max(record["cases"], case + 1)
        if path is not None and case % 100 == 99:
            path.write_text(json.dumps(record, indent=1) + "\n")
    if path is not None:
        path.write_text(json.dumps(record, indent=1) + "\n")
    return record


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--show", type=int)
    parser.add_argument("--again", action="store_true", help="the cases of the record that were bad")
    chosen = parser.parse_args()
    record_path = chosen.record.resolve()
    known = json.loads(record_path.read_text()) if record_path.exists() else None
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="fuzz-api-") as folder:
        os.chdir(folder)
        if chosen.show is not None:
            print(run_case(chosen.show, loud=True))
        else:
            result = fuzz(chosen.cases, known, chosen.again, record_path)
            totals: dict[str, int] = {}
            for counts in result["kinds"].values():
                for verdict, count in counts.items():
                    totals[verdict] = totals.get(verdict, 0) + count
            print(f"{result['cases']} cases: {totals}")
            sys.exit(bool(result["bad"]))
        os.chdir("/")
