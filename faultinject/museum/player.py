"""Plays a schedule of the museum on a ``World``: every step is one line of a small language.

    start A                 the launcher starts the processes of A
    crash A                 they are gone, and the launcher ends the lease
    reset A                 everyone's connections to A (if it is gone: to its last life) are reset
    expire A                the lease of A ends, as when it could not renew
    partition A             nothing passes between A and the others or the store, and the lease of A ends
    heal A                  it passes again; A renews its lease and asks anew, having lost all answers
    hold WHERE [WHAT [N]]   what waits at WHERE stands still; with WHAT (and N) only once that is next
    release WHERE | all     it goes on
    run                     everything that is not held happens until nothing is left
    serve A                 the store carries out the next request of A, held or not
    lose A                  the same, and the answer is lost
    fire A NAME [TAG]       a timer of A's leader fires; without TAG the newest of that name
    freeze A                the requests of A stay under way to the store, though A is succeeded
    thaw A                  they arrive
    expect ...              see ``Player.expect``: the schedule is where it says it is

A job begins with round 1, catch-up only, which waits for replicas; the first step is trained in round 2.

WHERE is a link ``A>B`` (``A.1>B.1`` for ranks other than position 0) or ``A store``, ``A answers``,
``A watch``, ``A device``. WHAT is the name of a message, event or request (``Commit``: a Cas that lengthens
the chain); N the number of a chunk or acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faultinject.explore.world import Action, World
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.events import BucketReady
from ftruntime.protocol.head import Status
from ftruntime.protocol.ids import Address, MemberId, Replica
from ftruntime.protocol.store import Cas

from .checks import Watcher, level, torn

AT_REST = 5_000  # actions after which a world that should come to rest is taken for one that never will
FAIR = 8_000
LOOKS = ("store", "poll", "renew")  # timers that only talk to the store again
KINDS = {"store": "request", "answers": "answer", "watch": "watch", "device": "device"}


def address(name: str) -> tuple[int, int]:
    replica, _, position = name.partition(".")
    return "ABCDEFGH".index(replica), int(position or 0)


class Elsewhere(AssertionError):
    """The schedule is not where it says it is."""


class Player:
    """``world`` after the steps so far, ``watcher`` with what it found."""

    def __init__(self, config: JobConfig) -> None:
        self.world, self.watcher = World(config), Watcher()
        self._held: dict[
            tuple[str, Address, Address], tuple[str, ...]
        ] = {}  # (kind, at, to) -> (what, number): see ``_stands``
        self._turns: dict[Any, int] = {}  # when an action last happened, for fairness
        self._clock = 0
        self._dead: dict[
            Replica, MemberId
        ] = {}  # replica -> its last life, for connections that are still to be reset
        self._left_behind: dict[str, Any] = {}

    def play(self, step: str) -> None:
        """Raises Elsewhere where the step cannot be taken."""
        verb, *words = step.split()
        getattr(self, verb)(*words)
        self.watcher.look(self.world)

    # -- verbs ---------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        self.world.start(address(name)[0])

    def crash(self, name: str) -> None:
        self._end(address(name)[0], seen=True)

    def _end(self, replica: Replica, seen: bool) -> None:
        self._dead[replica] = self.world.member(replica)
        self.world.crash(replica, seen)

    def reset(self, name: str) -> None:
        replica = address(name)[0]
        member = self._dead.pop(replica, None) or self.world.member(replica)
        self.world.lost(replica, member.incarnation)

    def expire(self, name: str) -> None:
        self.world.expire(self.world.member(address(name)[0]))

    def partition(self, name: str) -> None:
        self._cut(name, self.hold)
        self.expire(name)

    def heal(self, name: str) -> None:
        """It passes again; what was on its way to the store or from it is lost."""
        self._cut(name, self.release)
        replica = address(name)[0]
        for queues in (self.world.requests, self.world.answers, self.world.watches):
            queues[replica] = ()
        for timer, tag in self.world.timers[address(name)]:
            if timer in LOOKS:
                self.world.fire(address(name), timer, tag)

    def _cut(self, name: str, act: Callable[..., None]) -> None:
        replicas, ranks = self.world.config.replicas, self.world.config.ranks_per_replica
        for other in "ABCDEFGH"[:replicas].replace(name, ""):
            for position in range(ranks):
                act(f"{name}.{position}>{other}.{position}")
                act(f"{other}.{position}>{name}.{position}")
        for queue in ("store", "answers", "watch"):
            act(name, queue)

    def hold(self, *words: str) -> None:
        self._held[_place(words)] = tuple(words[1 if ">" in words[0] else 2 :])

    def release(self, *words: str) -> None:
        if words == ("all",):
            self._held.clear()
        else:
            del self._held[_place(words)]

    def run(self) -> None:
        for _ in range(AT_REST):
            if not self._next(timers=False):
                return
        raise AssertionError(f"the world does not come to rest in {AT_REST} actions")

    def serve(self, name: str) -> None:
        self._waits(name)
        self.world.do(Action("request", address(name)))

    def lose(self, name: str) -> None:
        self._waits(name)
        self.world.lose_answer(address(name)[0])

    def _waits(self, name: str) -> None:
        if not self.world.requests.get(address(name)[0]):
            raise Elsewhere(f"{name} asks nothing of the store")

    def fire(self, name: str, timer: str, tag: str | None = None) -> None:
        tags = [t for n, t in self.world.timers.get(address(name), ()) if n == timer]
        if address(name) not in self.world.ranks or (not tags and tag is None):
            raise Elsewhere(f"{name} has set no timer {timer}")
        self.world.fire(address(name), timer, max(tags) if tag is None else int(tag))

    def freeze(self, name: str) -> None:
        replica = address(name)[0]
        self._left_behind[name] = self.world.requests[replica]
        self._end(replica, seen=False)

    def thaw(self, name: str) -> None:
        for _, request in self._left_behind.pop(name):
            self.world.late(request)

    def expect(self, *words: str) -> None:
        """``A holds N`` (the device), ``A recorded N`` (the record), ``end N`` (of the chain) steps; ``status
        running`` or ``recovering``; ``plan A B`` (contributors) and ``catchers A B`` of the open round."""
        found = self._found(words)
        if found != words:
            raise Elsewhere(f"expected {' '.join(words)}, found {' '.join(found)}")

    def _found(self, words: tuple[str, ...]) -> tuple[str, ...]:
        world, head = self.world, self.world.head
        if words[0] == "end":
            return "end", str(head.end.step)
        if words[0] == "status":
            return "status", Status(head.status).name.lower()
        if words[0] == "plan":
            return "plan", *("ABCDEFGH"[m.replica] for m in head.plan.contributors)
        if words[0] == "catchers":
            return "catchers", *("ABCDEFGH"[c.member.replica] for c in head.plan.catchers)
        if words[1] == "recorded":
            replica = address(words[0])[0]
            record = world.register.records[world.member(replica)]
            return words[0], "recorded", str(record.held.step)
        steps = {d.state[0] for at, d in world.devices.items() if at == address(words[0])}
        return words[0], "holds", *map(str, steps)

    # -- what happens next ---------------------------------------------------------------------

    def _next(self, timers: bool) -> bool:
        """The action that has waited longest for its turn, of those that come first. False: there is none."""
        moves = [a for a in self.world.actions() if not self._stands(a) and (timers or a.kind != "timer")]
        if not moves:
            return False
        first = min(self._rank(a) for a in moves)
        action = min((a for a in moves if self._rank(a) == first), key=lambda a: self._turns.get(a[:4], 0))
        self._clock += 1
        self._turns[action[:4]] = self._clock
        self.world.do(action)
        self.watcher.look(self.world)
        return True

    def _rank(self, action: Action) -> int:
        """A backward pass takes longer than anything but a time-out, or a lone replica would outrun taps."""
        if action.kind == "timer":
            return 1 if action.name in LOOKS or not self._computing() else 2
        return 1 if self._is_compute(action) else 0

    def _is_compute(self, action: Action) -> bool:
        return action.kind == "device" and isinstance(self._first(action), BucketReady)

    def _computing(self) -> bool:
        """Whether anyone's backward pass is under way: while it is, nobody runs out of time."""
        return any(isinstance(event, BucketReady) for d in self.world.devices.values() for event in d.pending)

    def _stands(self, action: Action) -> bool:
        held = self._held.get((action.kind, action.at, action.to))
        if held is None or not held:
            return held is not None
        thing = self._first(action)
        names = {type(thing).__name__}
        head = self.world.head
        if isinstance(thing, Cas) and head is not None and thing.head.end.step > head.end.step:
            names.add("Commit")
        numbers = [getattr(thing, name) for name in ("seq", "index", "count") if hasattr(thing, name)]
        return held[0] in names and (len(held) == 1 or int(held[1]) in numbers)

    def _first(self, action: Action) -> object:
        world, replica = self.world, action.at[0]
        if action.kind == "message":
            return world.links[action.at, action.to][0]
        if action.kind == "device":
            return world.devices[action.at].pending[0]
        if action.kind == "watch":
            return world.watches[replica][0]
        return getattr(world, action.kind + "s")[replica][0][1]

    # -- the end -------------------------------------------------------------------------------

    def finish(self) -> None:
        """A fair run without faults: all replicas come to train together again, or the job is stuck."""
        world = self.world
        self.release("all")
        for name in ["ABCDEFGH"[r] for r in self._dead]:
            self.reset(name)
        goal = 2 if world.head is None else world.head.end.step + 2
        for _ in range(FAIR):
            self._restart()
            if self._together(goal):
                break
            self._next(timers=True)
        else:
            status = world.head.status.name.lower()
            self.watcher.report(
                "stuck", f"not all trained step {goal} together: {status}, {world.head.plan.reason}"
            )
            return
        for replica in range(world.config.replicas):
            self.hold("ABCDEFGH"[replica], "store", "Cas")
        self.run()
        for replica in torn(world):
            self.watcher.report("torn", f"the ranks of replica {replica} hold different states")
        if not level(world):
            self.watcher.report("two lineages", "not every replica came to the end of the chain")

    def _restart(self) -> None:
        for replica in range(self.world.config.replicas):
            if (replica, 0) not in self.world.ranks:
                self.world.start(replica)

    def _together(self, goal: int) -> bool:
        head = self.world.head
        if head is None:
            return False
        members = tuple(self.world.member(r) for r in range(self.world.config.replicas))
        return head.status is Status.RUNNING and head.end.step >= goal and head.end.contributors == members


def _place(words: tuple[str, ...]) -> tuple[str, Address, Address]:
    if ">" in words[0]:
        source, _, to = words[0].partition(">")
        return "message", address(source), address(to)
    return KINDS[words[1]], address(words[0]), (-1, -1)
