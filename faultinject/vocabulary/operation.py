"""Faults of those who run the job: launchers that err, and what operators do on purpose."""

from __future__ import annotations

from .base import Fault


class LauncherDelay(Fault, frozen=True, kw_only=True, tag="launcher_delay"):
    """The next restart of the replica begins ``seconds`` later than it would have."""

    replica: int
    seconds: float


class LauncherEarly(Fault, frozen=True, kw_only=True, tag="launcher_early"):
    """The launcher takes a replica that is well for dead, and starts its successor while it runs on: two
    lives at once, of which the earlier must come to nothing."""

    replica: int


class LauncherTwice(Fault, frozen=True, kw_only=True, tag="launcher_twice"):
    """The next restart of the replica starts two lives, the second ``seconds`` later, beside the first."""

    replica: int
    seconds: float


class LauncherDown(Fault, frozen=True, kw_only=True, tag="launcher_down"):
    """The replica's launcher is away: it sees no death, ends nothing and starts nothing before it is back."""

    replica: int
    duration: float


class Drain(Fault, frozen=True, kw_only=True, tag="drain"):
    """The operator takes a replica out for maintenance: it leaves between two steps, so that no round fails,
    and is started again ``duration`` after it has gone."""

    replica: int
    duration: float


class ScaleDown(Fault, frozen=True, kw_only=True, tag="scale_down"):
    """The operator takes a replica out for good: it leaves between two steps, and is not started again."""

    replica: int


class ScaleUp(Fault, frozen=True, kw_only=True, tag="scale_up"):
    """The operator starts a replica that has gone for good, or is to go."""

    replica: int


class ConfigChanged(Fault, frozen=True, kw_only=True, tag="config_changed"):
    """The operator restarts one replica with another configuration. The job refuses it (job fatal, design
    3.4), and after ``duration`` the operator starts it with the right one."""

    replica: int
    duration: float
