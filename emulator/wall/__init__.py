"""One job against real time: a hub, and workers that are hosts which can really die (design 5)."""

from .crew import host_crew

__all__ = ["host_crew"]
