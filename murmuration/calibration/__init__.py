"""Calibration: a predictive whose probabilities or spreads are what they say, learned from examples set aside."""

from murmuration.calibration.pooling import Isotonic, PoolTemperature, with_mean
from murmuration.calibration.records import Calibrator
from murmuration.calibration.stretches import MemberNoise, Stretch
from murmuration.calibration.table import (
    CALIBRATORS,
    Method,
    calibrator_from_json,
    calibrator_names,
    fit_calibrator,
)
from murmuration.calibration.temperatures import MemberTemperature, Temperature
from murmuration.calibration.vectors import Vector

__all__ = [
    "CALIBRATORS",
    "Calibrator",
    "Isotonic",
    "MemberNoise",
    "MemberTemperature",
    "Method",
    "PoolTemperature",
    "Stretch",
    "Temperature",
    "Vector",
    "calibrator_from_json",
    "calibrator_names",
    "fit_calibrator",
    "with_mean",
]
