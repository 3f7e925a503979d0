"""Where members run, and how the fastest way is found."""

from murmuration.engines.choosing import Choice, choose
from murmuration.engines.outputs import member_outputs
from murmuration.engines.team import Engine, Team, assemble, engine

__all__ = ["Choice", "Engine", "Team", "assemble", "choose", "engine", "member_outputs"]
