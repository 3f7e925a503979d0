"""Where members run, and which engine is fastest."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.core.engines.choice import Choice, choose
from murmuration.core.engines.outputs import member_outputs, outputs_by_ranks
from murmuration.core.engines.predictor import Predictor
from murmuration.core.engines.ranks import ALONE, Ranks, find_ranks
from murmuration.core.engines.team import Engine, Team, assemble, engine
