"""Keeps a job folded: positions that behave alike are run once and counted (design 5).

Faults are known before they happen. The positions that the next few of them touch (the *window*) are run for
themselves, and whatever stands in another relation to them in the tree than the rest, too: the run is
*unfolded* there before a fault can make a difference. When one of them has happened and the job has
recovered, the positions are seated anew (``reseat.py``). Where faults come too densely for that, one will
strike a position that is folded: then the run begins again from the start with twice the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultinject import AnyFault, Schedule
from faultinject.targets import ranks_of
from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Address, Position, Round

from .ahead import Coming, Drawn, positions_of
from .folding import Seating, classes, combined, link_colours
from .reseat import quiet, reseat, standing

if TYPE_CHECKING:
    from .emulation import Emulation
    from .process import Process

WINDOW = 3  # faults that are unfolded ahead
LOOK_AFTER_S = 0.1  # from a commit: in the middle of the update, which takes twice as long


class Widen(Exception):
    """A fault struck a position that is folded: begin again with ``window``; ``faults`` are the same
    faults."""

    def __init__(self, window: int, faults: Schedule | Drawn) -> None:
        super().__init__(f"a fault struck a rank that was folded; again with {window} faults ahead")
        self.window, self.faults = window, faults


class Folds:
    """Who is run in a job, and when that changes.

    window:  how many faults are unfolded ahead
    seats:   (round, positions that were unfolded on purpose) of each seating
    """

    def __init__(self, job: Emulation, faults: Schedule | Drawn) -> None:
        self._job, self._faults = job, faults
        self._fan_out = job.config.fan_out
        self._links = link_colours(job.network.topology, self._fan_out)
        self._coming = Coming(faults, job.settings.step_seconds, job.shape)
        self._planned: list[AnyFault] = []  # those of the window that have not happened
        self._ahead = 0  # how many there were
        self._repeated: dict[Round, list[Position]] | None = None
        self._most = 0
        self._latency: dict[tuple[Address, Address], float] = {}
        self.window = WINDOW
        self.seats: list[tuple[Round, list[Position]]] = []
        self.seating = Seating(classes(self._links, self._fan_out), self._fan_out)

    def repeat(self, seats: list[tuple[Round, list[Position]]]) -> None:
        """Seat as an earlier run did, which knew faults that it did not live to see."""
        self._repeated = dict(seats)

    def begin(self) -> None:
        """Before the first process is started."""
        self._sit(0, self._positions(0), [])

    def meta(self) -> dict[str, object]:
        """What the log's first entry says of who is run."""
        return {"positions": list(self.seating.positions), "counts": self.seating.sizes}

    def report(self) -> dict[str, Any]:
        """For the summary. ``seats`` make a replay possible."""
        return {
            "positions": len(self.seating.positions),
            "most_positions": self._most,
            "refolds": len(self.seats) - 1,
            "window": self.window,
            "seats": [[round, positions] for round, positions in self.seats],
        }

    # -- messages in a replica -----------------------------------------------------------------------

    def seat(self, process: Process) -> None:
        """``process`` stands for its class from here on."""
        position = process.address[1]
        process.weight = self.seating.counts[position]
        process.rank.member.hear_only(self.seating.family(position))

    def tell(self, process: Process, to: Address, message: m.Message, now: float) -> None:
        """``process`` tells its parent or child something, while no link fails."""
        latency = self._latency.get((process.address, to))
        if latency is None:
            latency = self._job.network.link(process.address, to)[0]
            self._latency[process.address, to] = latency
        self.deliver(process, to, message, now + latency)

    def deliver(self, process: Process, to: Address, message: m.Message, arrival: float) -> None:
        """Whoever is run for ``to`` hears it, once for all who are told the same."""
        replica, at = process.address
        speaker, hearer, times = self.seating.route(at, to[1])
        process.sent += times
        self._job.kernel.at(arrival, process.mates[hearer].handler, e.Received((replica, speaker), message))

    # -- faults --------------------------------------------------------------------------------------

    def happens(self, fault: AnyFault) -> None:
        """``fault`` is about to take effect. Raises Widen if what it hits is not run for itself."""
        self._coming.happened(fault)
        self._planned = [other for other in self._planned if other is not fault]
        shape = self._job.shape
        touched = positions_of(fault, shape)
        everywhere = [(replica, position) for replica in range(shape.replicas) for position in touched]
        for replica, position in touched and (ranks_of(fault, shape) or everywhere):
            process = self._job.processes.get((replica, self.seating.stands_in[position]))
            if process is not None and process.alive and not self.seating.alone(position):
                if self._repeated is not None:
                    raise RuntimeError(f"rank {position} of replica {replica} was unfolded, and is not now")
                raise Widen(2 * self.window, self._anew())

    def _anew(self) -> Schedule | Drawn:
        return self._faults if isinstance(self._faults, Schedule) else self._faults.anew()

    # -- seating -------------------------------------------------------------------------------------

    def committed(self, round: Round) -> None:
        """``round`` was committed. Half-way through the update that follows is the time to look."""
        if self._due(round):
            self._job.kernel.at(self._job.now + LOOK_AFTER_S, self._look, round)

    def _due(self, round: Round) -> bool:
        if self._repeated is not None:
            return round in self._repeated
        return len(self._planned) < self._ahead

    def _look(self, round: Round, now: float) -> None:
        job = self._job
        lasting = [positions_of(fault, job.shape) for fault in job.injector.lasting]
        if not all(lasting) or not quiet(job, round, now):
            return
        old, stand = self.seating, {}
        for position in old.positions:
            stand[position] = standing(job, position, now)
        touched = sorted({*self._positions(round), *(p for each in lasting for p in each)})
        self._sit(round, touched, [stand[old.stands_in[p]] for p in range(old.ranks)])
        self._latency.clear()
        states = reseat(job, old, self.seating)
        for process in job.processes.values():
            self.seat(process)
        job.log(["refold", now, list(self.seating.positions), self.seating.sizes, states])

    def _positions(self, round: Round) -> list[Position]:
        """What the next faults touch."""
        if self._repeated is not None:
            return self._repeated[round]
        self._planned = self._coming.touching(self.window)
        self._ahead = len(self._planned)
        return sorted({p for fault in self._planned for p in positions_of(fault, self._job.shape)})

    def _sit(self, round: Round, touched: list[Position], stand: list[tuple[object, ...]]) -> None:
        """Seat so that ``touched`` are run for themselves, and none that stand unlike for each other."""
        job, ranks = self._job, self.seating.ranks
        alone = {position: position for position in touched}
        colours = combined(ranks, self._links, alone, *([stand] if stand else []))
        preferred = self.seating.positions if stand else ()
        self.seating = Seating(classes(colours, self._fan_out), self._fan_out, preferred)
        self.seats.append((round, touched))
        self._most = max(self._most, len(self.seating.positions))
        job.positions = self.seating.positions
