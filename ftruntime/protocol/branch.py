"""A rank's place in the tree of its replica: orders are passed on down it, answers are gathered up it."""

from __future__ import annotations

from . import messages as m
from .config import JobConfig
from .effects import Effect, Send
from .errors import ErrorReport
from .gather import Ballot, RollCall
from .ids import MemberId, Position, Replica, Round
from .tree import children, parent


class Branch:
    """Gathers what the subtree of one rank says. A leaf keeps nothing and answers for itself.

    ``up`` collects what the rank at position 0 tells the leader beside it.
    """

    __slots__ = ("_ballots", "_calls", "_children", "_config", "_parent", "_voters", "me", "position", "up")

    def __init__(self, config: JobConfig, replica: Replica, position: Position) -> None:
        self._config = config
        self._parent = parent(position, config.fan_out)
        self._children = tuple(children(position, config.ranks_per_replica, config.fan_out))
        self._voters = (position, *self._children)
        self._ballots: dict[tuple[str, Round], Ballot] = {}
        self._calls: dict[tuple[str, int], RollCall] = {}
        self.me = MemberId(replica, 0)
        self.position = position
        self.up: list[m.Message] = []

    def _clone_branch(self, other: Branch) -> None:
        other._ballots = {key: ballot.clone() for key, ballot in self._ballots.items()}
        other._calls = {key: call.clone() for key, call in self._calls.items()}
        other.up = list(self.up)

    def hear_only(self, children: tuple[Position, ...]) -> None:
        """From here on only these ``children`` are told and heard: each answers for others that do the same.
        For a driver that runs such positions once; not while answers are outstanding."""
        assert not self._calls, "whose answers are outstanding is not changed"
        self._children = children
        self._voters = (self.position, *children)

    def _relay(self, message: m.Message, out: list[Effect]) -> None:
        """Pass an order on first, so that no subtree waits for this rank's own work."""
        replica = self.me.replica
        for child in self._children:
            out.append(Send((replica, child), message))

    def _tell(self, message: m.Message, out: list[Effect]) -> None:
        """Say ``message`` to the parent; at the root, to the leader."""
        if self._parent is None:
            self.up.append(message)
        else:
            out.append(Send((self.me.replica, self._parent), message))

    def _cast_vote(
        self,
        voter: Position,
        round: Round,
        yes: bool,
        scalars: m.Scalars,
        report: ErrorReport | None,
        out: list[Effect],
    ) -> None:
        """Count a vote, and pass on what is new of the whole subtree."""
        if self._children:
            ballot = self._ballots.setdefault(("vote", round), Ballot(self._voters))
            news = ballot.cast(voter, yes, scalars, report)
            if news is None:
                return
            yes, scalars, report = news, ballot.scalars() if news else (), ballot.report
        self._tell(m.Vote(round, yes, scalars, None if yes else report), out)

    def _cast_seal(
        self, voter: Position, round: Round, complete: bool, scalars: m.Scalars, out: list[Effect]
    ) -> None:
        """Count an answer to a seal: one rank without a bucket is enough to know."""
        if self._children:
            ballot = self._ballots.setdefault(("seal", round), Ballot(self._voters))
            news = ballot.cast(voter, complete, scalars, None)
            if news is None:
                return
            complete, scalars = news, ballot.scalars() if news else ()
        self._tell(m.Sealed(round, complete, scalars), out)

    def _answer(self, topic: str, key: int, voter: Position, message: m.Message, out: list[Effect]) -> None:
        """Count one answer, and pass ``message`` on when it was the last one of the subtree."""
        if self._children:
            call = self._calls.setdefault((topic, key), RollCall(self._voters))
            if not call.answer(voter):
                return
            del self._calls[topic, key]
        self._tell(message, out)

    def _forget_ballots(self, round: Round) -> None:
        self._ballots.pop(("vote", round), None)
        self._ballots.pop(("seal", round), None)

    def _forget_call(self, topic: str, key: int) -> None:
        self._calls.pop((topic, key), None)

    def _forget_calls(self, topic: str) -> None:
        for key in [k for k in self._calls if k[0] == topic]:
            del self._calls[key]
