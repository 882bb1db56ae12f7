"""Strikes at processes: end them, stop them, set their clocks wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from faultinject import Fault
from faultinject import vocabulary as v

from ..odd import wrong_clock

if TYPE_CHECKING:
    from ..inject import Injector


def crash(i: Injector, fault: v.Crash, now: float) -> None:
    for process in i.targets(fault):
        i.job.hosts.crashed(process, fault.cause or "crash", now)


def hang(i: Injector, fault: v.Hang, now: float) -> None:
    for process in i.targets(fault):
        in_ftar = process.computing < 0 and bool(process.rings)
        if in_ftar or fault.variant == "never_joins":
            process.stick()
        else:
            process.stall = True  # it goes on until FTAR, and sticks there


def hang_at_start(i: Injector, fault: v.HangAtStart, now: float) -> None:
    for process in i.targets(fault):
        i.job.hosts.crashed(process, fault.cause or "crash", now)
    if i.job.hub is not None and i.hub.launcher.runs(fault.rank[0]):
        i.hub.launcher.hang_next(fault.rank)
        i.until_next_end(fault.rank[0], fault)


def pause(i: Injector, fault: v.Pause, now: float) -> None:
    """Everything that the processes would hear meanwhile, they hear when they go on."""
    targets = i.targets(fault)
    for process in targets:
        process.pause()

    def resume(now: float) -> None:
        for process in targets:
            process.resume(now)

    i.later(fault.duration, fault, resume)


def zombie(i: Injector, fault: v.Zombie, now: float) -> None:
    """The old processes stand still, are taken for dead, and go on after ``delay``."""
    processes = i.job.hosts.detach(fault.replica)
    if not processes:
        return
    for process in processes:
        process.pause()
    if i.job.hub is not None:
        i.hub.launcher.detach(fault.replica, now)
    i.last_ended = max(i.last_ended, now + fault.delay)

    def come_back(now: float) -> None:
        for process in processes:
            process.resume(now)

    i.later(fault.delay, fault, come_back)


def replica_lost_for_ever(i: Injector, fault: v.ReplicaLostForEver, now: float) -> None:
    leader = i.job.processes.get((fault.replica, 0))
    if leader is not None:
        i.job.log_crash(leader, fault.cause or "lost for ever", now)
    if i.job.hub is not None:
        i.hub.launcher.lose(fault.replica, now)


def clock_skew(i: Injector, fault: v.ClockSkew, now: float) -> None:
    """The clocks run at their rate until the fault ends, and keep what they have gained or lost."""
    targets = i.targets(fault)
    i.carefully(fault)
    clocks = [wrong_clock(process) for process in targets]
    for clock in clocks:
        clock.run(fault.rate, now)

    def mend(now: float) -> None:
        for clock in clocks:
            clock.run(1.0 / fault.rate, now)

    i.later(fault.duration, fault, mend)


def clock_jump(i: Injector, fault: v.ClockJump, now: float) -> None:
    targets = i.targets(fault)
    i.carefully(fault)
    for process in targets:
        wrong_clock(process).jump(fault.jump, now)


DO: dict[type[Fault], Callable[[Injector, Any, float], None]] = {
    v.Crash: crash,
    v.Hang: hang,
    v.HangAtStart: hang_at_start,
    v.Pause: pause,
    v.Zombie: zombie,
    v.ReplicaLostForEver: replica_lost_for_ever,
    v.ClockSkew: clock_skew,
    v.ClockJump: clock_jump,
}
