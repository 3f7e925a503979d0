"""Where members run, and which engine is fastest."""

from murmuration.engines.choice import Choice, choose
from murmuration.engines.outputs import member_outputs
from murmuration.engines.predictor import Predictor
from murmuration.engines.team import Engine, Team, assemble, engine

__all__ = ["Choice", "Engine", "Predictor", "Team", "assemble", "choose", "engine", "member_outputs"]
