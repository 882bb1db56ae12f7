"""The donor's side of a fetch: frozen copies of states, and who may have ranges of them.

A donor copies the state that its plan names to host before anything changes it, so that every
range of one fetch comes from one (step, lineage) however long the fetch takes (design 3.5).

    request for a lineage ...           from ...                          answer
    ----------------------------------  --------------------------------  -----------------------
    frozen here                         a catcher that the plan names     SendRange
    named by the plan, not frozen here  a catcher that the plan names     NotHere
    any                                 an older life of a named catcher  NotHere
    any, of another position or         anyone                            NotHere
    beyond the last range
    any other                           anyone                            none yet: it waits for
                                                                          the next plan, which
                                                                          serves or refuses it

Requests wait because a catcher's rank may hear of a plan sooner than its donor's rank does.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from .effects import Effect, Freeze, Release, Send, SendRange
from .ids import Address, Lineage, MemberId, Position
from .messages import NotHere, RangeRequest
from .plan import Target

Wanted = Mapping[Lineage, frozenset[MemberId]]  # state to keep frozen -> catchers that may fetch it


class Donor:
    """One rank as donor.

    ranges:       number of ranges in this rank's shard
    max_frozen:   frozen copies at one time, as host memory allows; one more is not made
    max_waiting:  early requests kept; one more is refused
    """

    __slots__ = (
        "_frozen",
        "_max_frozen",
        "_max_waiting",
        "_me",
        "_position",
        "_ranges",
        "_waiting",
        "_wanted",
    )

    def __init__(
        self, me: MemberId, position: Position, ranges: int, *, max_frozen: int, max_waiting: int
    ) -> None:
        assert ranges > 0 and max_frozen > 0 and max_waiting >= 0
        self._me, self._position, self._ranges = me, position, ranges
        self._max_frozen, self._max_waiting = max_frozen, max_waiting
        self._wanted: Wanted = {}  # replaced as a whole, never changed in place
        self._frozen: tuple[Lineage, ...] = ()
        self._waiting: dict[RangeRequest, Address] = {}

    @property
    def frozen(self) -> tuple[Lineage, ...]:
        """Lineages of the frozen copies, oldest first."""
        return self._frozen

    @property
    def waiting(self) -> int:
        """Number of early requests kept."""
        return len(self._waiting)

    def clone(self) -> Donor:
        """An independent copy."""
        twin = copy.copy(self)
        twin._waiting = dict(self._waiting)
        return twin

    def plan(self, wanted: Wanted, held: Target | None, out: list[Effect]) -> None:
        """A new plan stands: freeze ``held`` if it is wanted, release what is wanted no more.

        Call it before any other effect of the plan, with the state that this rank holds then (None
        without one): Freeze must come before whatever changes the state (!) (design 3.5). A wanted
        state that is neither held nor frozen is simply not here.
        """
        self._wanted = {lineage: frozenset(members) for lineage, members in wanted.items()}
        # Released first, so that never more than max_frozen copies exist.
        self._release([lineage for lineage in self._frozen if lineage not in wanted], out)
        if held is not None and held.lineage in wanted:
            self._freeze(held, out)
        waiting, self._waiting = self._waiting, {}
        for request, source in waiting.items():
            self._answer(source, request, out)

    def request(self, source: Address, message: RangeRequest, out: list[Effect]) -> None:
        """A catcher's rank asks for a range; the table above says what it gets."""
        if self._early(source, message) and self._room_for(message):
            self._waiting[message] = source
        else:
            self._answer(source, message, out)

    # -- inside -----------------------------------------------------------------------------

    def _freeze(self, held: Target, out: list[Effect]) -> None:
        if held.lineage not in self._frozen and len(self._frozen) < self._max_frozen:
            self._frozen += (held.lineage,)
            out.append(Freeze(held.step, held.lineage))

    def _release(self, lineages: list[Lineage], out: list[Effect]) -> None:
        for lineage in lineages:
            out.append(Release(lineage))
        self._frozen = tuple(x for x in self._frozen if x not in lineages)

    def _valid(self, source: Address, message: RangeRequest) -> bool:
        return source == (message.replica, self._position) and 0 <= message.index < self._ranges

    def _early(self, source: Address, message: RangeRequest) -> bool:
        """Might a plan that this rank has not heard of yet allow the request?"""
        if not self._valid(source, message):
            return False
        named = self._wanted.get(message.lineage, frozenset())
        return all(m.replica != message.replica or m.incarnation < message.incarnation for m in named)

    def _room_for(self, message: RangeRequest) -> bool:
        return message in self._waiting or len(self._waiting) < self._max_waiting

    def _answer(self, source: Address, message: RangeRequest, out: list[Effect]) -> None:
        catcher = MemberId(message.replica, message.incarnation)
        allowed = catcher in self._wanted.get(message.lineage, frozenset())
        if allowed and message.lineage in self._frozen and self._valid(source, message):
            out.append(SendRange(source, message.lineage, message.index))
        else:
            refusal = NotHere(message.lineage, self._me.replica, self._me.incarnation)
            out.append(Send(source, refusal))
