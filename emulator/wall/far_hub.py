"""The hub as leaders of a worker see it: what they tell it goes there by word."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ftruntime.protocol import effects as f
from ftruntime.protocol import store as s
from ftruntime.protocol.ids import Replica, Round

from ..store import Reply
from .words import Answered, Asked, Said, Standing, Watches

if TYPE_CHECKING:
    from ..process import Process
    from .worker_side import WorkerSide

MOST_ASKED = 4_096  # requests whose answers are waited for: some are never answered


class FarHub:
    """The methods of ``Hub`` that leaders call."""

    def __init__(self, side: WorkerSide) -> None:
        self._side = side
        self._asked: OrderedDict[int, Reply] = OrderedDict()
        self._number = 0

    def watch(self, leader: Process) -> None:
        self._side.say(0, Watches(self._now, leader.life))

    def submit(self, replica: Replica, request: s.Request, reply: Reply) -> None:
        self._number += 1
        self._asked[self._number] = reply
        if len(self._asked) > MOST_ASKED:
            self._asked.popitem(last=False)
        self._side.say(0, Asked(self._now, replica, self._number, request))  # type: ignore[arg-type]

    def answered(self, word: Answered, now: float) -> None:
        reply = self._asked.pop(word.number, None)
        if reply is not None:
            reply(word.answer, now)

    def noted(self, leader: Process, note: f.Note, now: float) -> None:
        self._say(leader, note.what, note.round, now, note=True)

    def computing(self, leader: Process, round: Round, ready: float, now: float) -> None:
        self._say(leader, "computing", round, now, ready=ready)

    def reducing(self, leader: Process, round: Round, now: float) -> None:
        self._say(leader, "reducing", round, now)

    def reduced(self, leader: Process, round: Round, now: float) -> None:
        self._say(leader, "reduced", round, now)

    def applying(self, leader: Process, round: Round, now: float) -> None:
        self._say(leader, "applying", round, now)

    def _say(
        self, leader: Process, what: str, round: Round, now: float, note: bool = False, ready: float = 0.0
    ) -> None:
        standing = Standing(leader.life, leader.incarnation, leader.at_step, leader.trains, leader.leads)
        self._side.say(0, Said(now, standing, what, round, note, ready))

    @property
    def _now(self) -> float:
        return self._side.job.kernel.now
