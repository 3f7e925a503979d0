"""Where members run, and which engine is fastest."""

from murmuration.engines.choice import Choice, choose
from murmuration.engines.outputs import member_outputs, outputs_by_ranks
from murmuration.engines.predictor import Predictor
from murmuration.engines.ranks import ALONE, Ranks, find_ranks
from murmuration.engines.team import Engine, Team, assemble, engine

__all__ = [
    "ALONE",
    "Choice",
    "Engine",
    "Predictor",
    "Ranks",
    "Team",
    "assemble",
    "choose",
    "engine",
    "find_ranks",
    "member_outputs",
    "outputs_by_ranks",
]
