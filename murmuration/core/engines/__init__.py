"""Where members run, and which engine is fastest."""

from murmuration.core.engines.choice import Choice, choose
from murmuration.core.engines.outputs import member_outputs, outputs_by_ranks
from murmuration.core.engines.predictor import Predictor
from murmuration.core.engines.ranks import ALONE, Ranks, find_ranks
from murmuration.core.engines.team import Engine, Team, assemble, engine

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
