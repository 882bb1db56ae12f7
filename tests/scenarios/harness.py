"""The commands of scenario files. The protocol is the real one, the world is ``faultinject.explore.world``.

    job KEY=VALUE ...        configuration (``catch_up.mode=zeros``); two small buckets unless said otherwise;
                             until=N: processes are asked for N steps
    ask STEP                 those that start from here on are asked for so many steps
    log all|heads|none       what is shown of what happens
    start R ...              launchers start the processes of these replicas
    crash R [unseen] [silent]
                             all its processes are gone; unseen: its launcher too, so the lease stands;
                             silent: no connection is reset
    late R                   what its last life had asked of the store arrives only now
    expire R                 the lease of R ends
    hold / release WHAT      link 0-1 (both ways), link 0>1, link 0-* (all others), requests R ...,
                             answers R ..., watch R ..., device R ..., store (all of the three, all R)
    let WHAT [COUNT]         link 0>1, request R, answer R, watch R, device R: one more of these, held or not,
                             and what follows from it
    lose WHAT                link 0>1 (what is under way), request R (not carried out), answer R (carried out)
    cut 0-1 / heal 0-1       the connections are reset, and trying anew fails / works again
    fire NAME RANK [TAG]     the timers NAME of a rank (0, or 0/1) fire
    wait SECONDS             the clock goes on
    times N COMMAND          COMMAND, N times, each time with what follows from it
    settle                   everything happens that is not held and no timer, until nothing is under way
    until CONDITION          ... until: round N; step N; recovering; held N (by all who live); see WORDS
    confirm R                the operator's word to the leader of R
    store wipe | back N      the store comes back empty, or without its last N heads
    show WHAT                head, holds, ledger, records, leases, chain, penalties, links

What is under way happens in turns: everything that may happen at the beginning of a turn happens once.
Devices are slow: they get a turn when nothing else is under way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from faultinject.explore.world import Action
from ftruntime.protocol import events as e
from ftruntime.protocol.config import load
from ftruntime.protocol.ids import Address

from . import show
from .script import Block
from .traced import TracedWorld

TURNS = 2000
SMALL = {
    "ranks_per_replica": 1,
    "scalars": 0,
    "samples_per_step": 4,
    "max_stream_lag": 16,
    "ftar": {"buckets": [64, 64], "chunk_bytes": 32, "slots": 4},
}
QUEUES = {"request": "requests", "answer": "answers", "watch": "watches"}
PLACES = {"requests": "request", "answers": "answer", "watch": "watch", "device": "device"}
Place = tuple[int | None, int | None]  # None: any
Held = tuple[str, Place, Place]
ANYWHERE: Place = (None, None)


class Harness:
    """One scenario: ``run`` takes block after block."""

    def __init__(self) -> None:
        self._world: TracedWorld | None = None
        self._held: set[Held] = set()
        self._shown: list[str] = []

    @property
    def world(self) -> TracedWorld:
        if self._world is None:
            raise ValueError("a scenario begins with: job replicas=R ...")
        return self._world

    def run(self, block: Block) -> list[str]:
        """Carry the commands out, and return the lines that they show. Raises ValueError with the line."""
        self._shown = []
        for number, command in enumerate(block.commands, block.line):
            try:
                self._command(command)
            except ValueError as error:
                raise ValueError(f"line {number}: {command}: {error}") from error
        return self._shown

    def _command(self, command: str) -> None:
        word, *words = command.split()
        if word not in COMMANDS:
            raise ValueError(f"no such command: {word}")
        if self._world is not None:
            self._world.seen.clear()
        COMMANDS[word](self, *words)
        if self._world is not None:
            self._shown += self._world.take()

    # -- lives -----------------------------------------------------------------------------------

    def _job(self, *pairs: str) -> None:
        if self._world is not None:
            raise ValueError("the job has begun")
        values: dict[str, Any] = json.loads(json.dumps(SMALL))
        for pair in pairs:
            key, _, value = pair.partition("=")
            *path, last = key.replace("ranks", "ranks_per_replica").split(".")
            place = values
            for part in path:
                place = place.setdefault(part, {})
            place[last] = _value(value)
        until = values.pop("until", 0)
        values.setdefault("streams", values["replicas"])
        self._world = TracedWorld(load(values))
        self._world.until = until

    def _ask(self, step: str) -> None:
        self.world.until = int(step)

    def _log(self, level: str) -> None:
        if level not in ("all", "heads", "none"):
            raise ValueError(f"no such level: {level}")
        self.world.level = level

    def _start(self, *replicas: str) -> None:
        for replica in replicas:
            self.world.start(int(replica))

    def _crash(self, replica: str, *how: str) -> None:
        self.world.crash(int(replica), seen="unseen" not in how, silent="silent" in how)

    def _late(self, replica: str) -> None:
        for request in self.world.strays.pop(int(replica), ()):
            self.world.late(request)

    def _expire(self, replica: str) -> None:
        for member in list(self.world.register.leases):
            if member.replica == int(replica):
                self.world.expire(member)

    def _confirm(self, replica: str) -> None:
        self.world.tell((int(replica), 0), e.Confirmed())

    # -- what may not happen, what happens, what is lost ---------------------------------------------

    def _hold(self, *words: str) -> None:
        self._held |= set(self._places(*words))

    def _release(self, *words: str) -> None:
        self._held -= set(self._places(*words))

    def _places(self, what: str, *words: str) -> Iterator[Held]:
        if what == "link":
            for source, to in _link(*words):
                yield "message", source, to
        elif what == "store":
            for kind in QUEUES:
                yield kind, ANYWHERE, ANYWHERE
        elif what in PLACES:
            for where in words:
                yield PLACES[what], _place(where), ANYWHERE
        else:
            raise ValueError(f"nothing to hold of: {what}")

    def _is_held(self, action: Action) -> bool:
        at, to = action.at, action.to
        return any(
            action.kind == kind
            and _within(at, a)
            and (kind != "message" or (_within(to, b) and _apart(at, to, a, b)))
            for kind, a, b in self._held
        )

    def _let(self, what: str, where: str, count: str = "1") -> None:
        for _ in range(int(count)):
            self.world.do(self._one(what, where))
            self._settle()

    def _one(self, what: str, where: str) -> Action:
        for action in self.world.actions():
            if what == "link" and action.kind == "message":
                if any(_within(action.at, a) and _within(action.to, b) for a, b in _link(where)):
                    return action
            elif action.kind == what and _within(action.at, _place(where)):
                return action
        raise ValueError(f"no {what} under way at {where}")

    def _lose(self, what: str, where: str) -> None:
        if what == "link":
            for source, to in _link(where):
                self._lose_link(source, to)
            return
        replica = int(where)
        if what not in ("request", "answer"):
            raise ValueError(f"nothing to lose of: {what}")
        if not self.world.requests.get(replica):
            raise ValueError(f"replica {replica} has no request under way")
        if what == "answer":
            self.world.lose_answer(replica)
        else:
            self.world.requests[replica] = self.world.requests[replica][1:]

    def _lose_link(self, source: Place, to: Place) -> None:
        for link in [k for k in self.world.links if _within(k[0], source) and _within(k[1], to)]:
            del self.world.links[link]

    def _cut(self, link: str) -> None:
        for source, to in _link(link):
            assert source[0] is not None and to[0] is not None, "a cut names two replicas"
            self._lose_link(source, to)
            self.world.cut.add((source[0], to[0]))
            peer = self.world.member(to[0])
            for at in [a for a in self.world.ranks if _within(a, source)]:
                if peer is not None:
                    self.world.tell(at, e.PeerLost(peer.replica, peer.incarnation, "connection reset"))

    def _heal(self, link: str) -> None:
        self.world.cut -= {(source[0], to[0]) for source, to in _link(link)}

    # -- time --------------------------------------------------------------------------------------

    def _fire(self, name: str, where: str, tag: str = "") -> None:
        place = _place(where)
        at = (place[0] or 0, place[1] or 0)
        due = [a for a in self.world.actions() if a.kind == "timer" and a.at == at and a.name == name]
        due = [a for a in due if not tag or a.tag == int(tag)]
        if not due:
            of = f" with tag {tag}" if tag else ""
            raise ValueError(f"no timer {name}{of} at {at[0]}/{at[1]}")
        for action in due:
            self.world.do(action)

    def _times(self, count: str, *words: str) -> None:
        for _ in range(int(count)):
            COMMANDS[words[0]](self, *words[1:])
            self._settle()

    def _wait(self, seconds: str) -> None:
        self.world.now += float(seconds)

    def _settle(self) -> None:
        if not self._turns(lambda: False):
            raise ValueError(f"does not come to rest in {TURNS} turns")

    def _until(self, *words: str) -> None:
        reached = self._condition(*words)
        if reached():
            return
        if self._turns(reached) and not reached():
            self._shown += self.world.take()
            raise ValueError("comes to rest before that; so far:\n" + "\n".join(self._shown))
        if not reached():
            raise ValueError(f"not reached in {TURNS} turns")

    def _turns(self, enough: Callable[[], bool]) -> bool:
        """Turn after turn until ``enough`` or nothing is under way; False if there were too many."""
        for _ in range(TURNS):
            ready = [a for a in self.world.actions() if a.kind != "timer" and not self._is_held(a)]
            turn = [a for a in ready if a.kind != "device"] or ready
            if not turn:
                return True
            for action in turn:
                if self._possible(action):
                    self.world.do(action)
                    if enough():
                        return True
        return False

    def _possible(self, action: Action) -> bool:
        """Whether what could happen at the beginning of the turn still can."""
        world = self.world
        if action.kind == "message":
            return (action.at, action.to) in world.links
        if action.kind == "device":
            return action.at in world.devices and bool(world.devices[action.at].pending)
        return bool(getattr(world, QUEUES[action.kind]).get(action.at[0]))

    def _condition(self, *words: str) -> Callable[[], bool]:
        match words:
            case ("round", number):
                return lambda: (head := self.world.head) is not None and head.round >= int(number)
            case ("step", number):
                return lambda: (head := self.world.head) is not None and head.end.step >= int(number)
            case ("recovering",):
                return lambda: (head := self.world.head) is not None and head.status.name == "RECOVERING"
            case ("held", number):
                return lambda: all(leader.held.step >= int(number) for leader in show.leaders(self.world))
            case ("see", *text):
                return lambda: any(" ".join(text) in line for line in self.world.seen)
        raise ValueError(f"no such condition: {' '.join(words)}")

    # -- store and sight ---------------------------------------------------------------------------

    def _store(self, what: str, count: str = "") -> None:
        if what == "wipe":
            self.world.register.wipe()
        elif what == "back":
            self.world.register.go_back(int(count))
        else:
            raise ValueError(f"the store cannot {what}")

    def _show(self, what: str) -> None:
        if what not in show.SHOWS:
            raise ValueError(f"nothing to show of: {what}")
        self._shown += show.SHOWS[what](self.world)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _place(text: str) -> Place:
    """``0`` is all of replica 0, ``0/1`` its rank 1, ``*`` anywhere."""
    replica, _, position = text.partition("/")
    return (None if replica == "*" else int(replica), int(position) if position else None)


def _link(text: str) -> list[tuple[Place, Place]]:
    one_way = ">" in text
    a, _, b = text.partition(">" if one_way else "-")
    source, to = _place(a), _place(b)
    return [(source, to)] if one_way else [(source, to), (to, source)]


def _within(at: Address, place: Place) -> bool:
    return place[0] in (None, at[0]) and place[1] in (None, at[1])


def _apart(at: Address, to: Address, a: Place, b: Place) -> bool:
    """``0-*`` means other replicas: the tree inside a replica is not a link to others."""
    return at[0] != to[0] or (a[0] is not None and b[0] is not None)


COMMANDS: dict[str, Callable[..., None]] = {
    "job": Harness._job,
    "ask": Harness._ask,
    "log": Harness._log,
    "start": Harness._start,
    "crash": Harness._crash,
    "late": Harness._late,
    "expire": Harness._expire,
    "confirm": Harness._confirm,
    "hold": Harness._hold,
    "release": Harness._release,
    "let": Harness._let,
    "lose": Harness._lose,
    "cut": Harness._cut,
    "heal": Harness._heal,
    "fire": Harness._fire,
    "wait": Harness._wait,
    "times": Harness._times,
    "settle": Harness._settle,
    "until": Harness._until,
    "store": Harness._store,
    "show": Harness._show,
}
