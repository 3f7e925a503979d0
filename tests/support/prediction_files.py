"""Files of predictions: writing them, reading them whole, and the message of a refusal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murmuration.evaluation.audit import open_predictions
from murmuration.evaluation.audit.predictions import Predictions
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse

RNG = np.random.default_rng(7)


def some_probs(*shape: int) -> np.ndarray:
    values = RNG.random(shape) + 0.01
    return values / values.sum(-1, keepdims=True)


def joined(found: Predictions) -> Predictive:
    return Predictive.concatenate(list(found.chunks()))


def saved(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises((Misuse, Failure)) as caught:
        for _ in open_predictions(path, **options).chunks():
            pass
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message or "labels" in options
    assert message.count(f"'{path}': ") <= 1
    return message.removeprefix(f"'{path}': ").replace(str(path), path.name)
