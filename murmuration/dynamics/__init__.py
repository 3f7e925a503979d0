"""Answers to the fourth question: how do weights move, and which points of the path are kept?"""

from murmuration.dynamics.optimisers import OPTIMISERS, Moments, Optimiser, make_optimiser
from murmuration.dynamics.path import KEEP, keeps
from murmuration.dynamics.schedules import SCHEDULES, learning_rate_factor

__all__ = [
    "KEEP",
    "OPTIMISERS",
    "SCHEDULES",
    "Moments",
    "Optimiser",
    "keeps",
    "learning_rate_factor",
    "make_optimiser",
]
