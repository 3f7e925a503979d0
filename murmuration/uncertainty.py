"""Uncertainty decomposition of a classification: one number per input.

| name | definition |
|---|---|
| `confidence` | the largest mean probability |
| `entropy` | of the mean probabilities: total uncertainty, in nats |
| `expected_entropy` | mean entropy of the members: aleatoric, in nats |
| `mutual_information` | the difference: epistemic, in nats |
| `aleatoric` | trace of E[diag(p) - p p^T] (Kwon et al. 2020) |
| `epistemic` | trace of E[(p - mean)(p - mean)^T] |
| `aleatoric_predicted` `epistemic_predicted` | the same matrices' diagonal entry of the predicted class |

The two traces add up to 1 - |mean|^2, which is at most 1 - 1/K. Epistemic terms of a single member are zero.
"""

import torch
from torch import Tensor

from murmuration.mixtures import weighted_variance
from murmuration.predictive import Predictive


def uncertainties(pred: Predictive) -> dict[str, Tensor]:
    """Every uncertainty of the table above by name, each (N,).

    >>> found = uncertainties(Predictive.from_probs([[[1.0, 0.0]], [[0.0, 1.0]]]))
    >>> found["aleatoric"].item(), found["epistemic"].item(), found["epistemic_predicted"].item()
    (0.0, 0.5, 0.25)
    """
    aleatoric = 1 - pred.average(torch.linalg.vecdot(pred.probs, pred.probs))
    total = 1 - torch.linalg.vecdot(pred.mean, pred.mean)
    index = pred.predicted.expand(len(pred.probs), -1)[..., None]
    chosen = pred.probs.gather(-1, index).squeeze(-1)  # (S, N)
    return {
        "confidence": pred.confidence,
        "entropy": pred.entropy,
        "expected_entropy": pred.expected_entropy,
        "mutual_information": pred.mutual_information,
        "aleatoric": aleatoric.clamp_min(0),
        "epistemic": (total - aleatoric).clamp_min(0),
        "aleatoric_predicted": pred.average(chosen * (1 - chosen)),
        "epistemic_predicted": weighted_variance(chosen, pred.member_weights),
    }
