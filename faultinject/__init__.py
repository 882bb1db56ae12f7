"""Faults: a typed vocabulary, schedules of them as JSON, and a model that draws schedules.

``faultinject.strategies`` has the hypothesis strategies; it is imported by name, for it needs hypothesis.
"""

from .agenda import Agenda
from .budget import fits_budget
from .causes import CAUSES, Cause, causes_seen
from .errors import ScheduleError
from .model import Patterns, default_mtbf, draw, interruptions
from .points import POINTS, Point
from .restart import RestartTime, draw_restart
from .schedule import Schedule, check, dump, dumps, load, loads
from .shape import JobShape, Rank
from .targets import ranks_of, replica_of, replicas_of
from .vocabulary import KINDS, AnyFault, Fault, Phase, kind_of

__all__ = [
    "CAUSES",
    "KINDS",
    "POINTS",
    "Agenda",
    "AnyFault",
    "Cause",
    "Fault",
    "JobShape",
    "Patterns",
    "Phase",
    "Point",
    "Rank",
    "RestartTime",
    "Schedule",
    "ScheduleError",
    "causes_seen",
    "check",
    "default_mtbf",
    "draw",
    "draw_restart",
    "dump",
    "dumps",
    "fits_budget",
    "interruptions",
    "kind_of",
    "load",
    "loads",
    "ranks_of",
    "replica_of",
    "replicas_of",
]
