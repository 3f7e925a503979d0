"""Answers to the fourth question: how do weights move, and which points of the path are kept?"""

from murmuration.dynamics.ivon import Ivon
from murmuration.dynamics.optimisers import OPTIMISERS, Moments, Optimiser, make_optimiser
from murmuration.dynamics.path import DYNAMICS, KEEP, dynamics_named, keeps
from murmuration.dynamics.schedules import SCHEDULES, learning_rate_factor

__all__ = [
    "DYNAMICS",
    "KEEP",
    "OPTIMISERS",
    "SCHEDULES",
    "Ivon",
    "Moments",
    "Optimiser",
    "dynamics_named",
    "keeps",
    "learning_rate_factor",
    "make_optimiser",
]
