"""Predictions as arrays and as columns of a table; see `Predictive.arrays` and `Predictive.columns`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

import murmuration.likelihoods.mixtures as mixtures
from murmuration.likelihoods import CLASSIFICATION, MULTI_LABEL, REGRESSION


def uncertainties(pred: Any) -> dict[str, Tensor]:
    """Decompose the uncertainty of a `Predictive` of classes or labels, see `Predictive.uncertainties`."""
    entropies = ("entropy", "expected_entropy", "mutual_information")
    in_nats = {name: getattr(pred, name) for name in entropies}
    if pred.task == MULTI_LABEL:
        return in_nats
    aleatoric = pred._mixed(1 - pred.average(torch.linalg.vecdot(pred.probs, pred.probs)))
    total = 1 - torch.linalg.vecdot(pred.mean, pred.mean)
    index = pred.predicted.expand(len(pred.probs), -1)[..., None]
    predicted_probs = pred.probs.gather(-1, index).squeeze(-1)  # (S, N)
    epistemic_predicted = mixtures.weighted_variance(predicted_probs, pred.member_weights)
    if pred.blend is not None:
        mixed = pred.epistemic_var.gather(-1, pred.predicted[:, None])[:, 0]
        epistemic_predicted = torch.where(pred.blend.weight > 0, mixed, epistemic_predicted)
    return {
        "confidence": pred.confidence,
        **in_nats,
        "aleatoric": aleatoric.clamp_min(0),
        "epistemic": (total - aleatoric).clamp_min(0),
        "aleatoric_predicted": pred._mixed(pred.average(predicted_probs * (1 - predicted_probs))),
        "epistemic_predicted": epistemic_predicted,
    }


def arrays(pred: Any, per_member: bool, first: int) -> dict[str, np.ndarray]:
    """Return the predictions and uncertainties of a `Predictive` as arrays by name."""
    if pred.task == REGRESSION:
        stds = ("aleatoric", "epistemic", "total")
        tensors = {"mean": pred.mean, **{f"{name}_std": getattr(pred, f"{name}_var").sqrt() for name in stds}}
        tensors["low_90"], tensors["high_90"] = pred.interval(0.9)
        members = {"member_mean": pred.member_mean, "member_std": pred.member_var.sqrt()} if per_member else {}
    else:
        tensors = {"predicted": pred.predicted, **pred.uncertainties(), "probs": pred.mean}
        members = {"member_probs": pred.probs} if per_member else {}
    plain = {name: values.numpy() for name, values in {**tensors, **members}.items()}
    outside = {} if pred.outside is None else {"outside": pred.outside.count.numpy()}
    return {**plain, **(pred.posthoc.columns(pred, first) if pred.posthoc is not None else {}), **outside}


def value_columns(pred: Any, first: int) -> dict[str, np.ndarray]:
    """Return the columns of a `Predictive` without its keys."""
    by_name = pred.arrays(first=first)
    names = pred.names or tuple(map(str, range(pred.mean.shape[1])))
    probs = by_name.pop("probs", None)
    if probs is not None:
        posthoc = [name for name in by_name if name.startswith("set_") or name in ("answered", "outside")]
        last = {name: by_name.pop(name) for name in posthoc}
        by_name |= {f"prob_{name}": probs[:, k] for k, name in enumerate(names)} | last
    if pred.task == CLASSIFICATION:
        by_name["predicted"] = np.array(names)[by_name["predicted"]]
        sets = {key: v for key, v in by_name.items() if v.ndim > 1}
        marked = np.array([name.replace("\\", "\\\\").replace("|", "\\|") for name in names])  # as in a set a|b
        return by_name | {key: np.array(["|".join(marked[row]) for row in v]) for key, v in sets.items()}
    table: dict[str, np.ndarray] = {}
    for key, values in by_name.items():
        if values.ndim == 1 or (pred.task == REGRESSION and names == ("0",)):
            table[key] = values if values.ndim == 1 else values[:, 0]
        else:
            table |= {f"{key}_{name}": values[:, k] for k, name in enumerate(names)}
    return table
