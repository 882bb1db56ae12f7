"""Strikes by those who run the job: launchers that err, and operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from faultinject import Fault
from faultinject import vocabulary as v

if TYPE_CHECKING:
    from ..inject import Injector


def launcher_delay(i: Injector, fault: v.LauncherDelay, now: float) -> None:
    i.hub.launcher.delay(fault.replica, fault.seconds)


def launcher_early(i: Injector, fault: v.LauncherEarly, now: float) -> None:
    if i.targets(fault):
        i.hub.launcher.start_beside(fault.replica, now)


def launcher_twice(i: Injector, fault: v.LauncherTwice, now: float) -> None:
    i.hub.launcher.twice(fault.replica, fault.seconds)


def launcher_down(i: Injector, fault: v.LauncherDown, now: float) -> None:
    i.hub.launcher.stop_looking(fault.replica, now + fault.duration)
    i.later(fault.duration, fault)


def drain(i: Injector, fault: v.Drain, now: float) -> None:
    if i.targets(fault):
        i.hub.launcher.delay(fault.replica, fault.duration)
        i.hub.launcher.ask_to_leave(fault.replica, now)
    i.later(fault.duration, fault)


def scale_down(i: Injector, fault: v.ScaleDown, now: float) -> None:
    i.hub.launcher.give_up(fault.replica)
    if i.targets(fault):
        i.hub.launcher.ask_to_leave(fault.replica, now)


def scale_up(i: Injector, fault: v.ScaleUp, now: float) -> None:
    i.hub.launcher.take_back(fault.replica, now)


def config_changed(i: Injector, fault: v.ConfigChanged, now: float) -> None:
    if not i.hub.launcher.reconfigure(fault.replica, now):
        return
    i.later(fault.duration, fault, lambda now: i.hub.launcher.configure_again(fault.replica, now))


DO: dict[type[Fault], Callable[[Injector, Any, float], None]] = {
    v.LauncherDelay: launcher_delay,
    v.LauncherEarly: launcher_early,
    v.LauncherTwice: launcher_twice,
    v.LauncherDown: launcher_down,
    v.Drain: drain,
    v.ScaleDown: scale_down,
    v.ScaleUp: scale_up,
    v.ConfigChanged: config_changed,
}
