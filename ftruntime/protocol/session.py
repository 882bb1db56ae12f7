"""A leader's session with the consensus store: registration, lease, record, and intents.

    phase        event                              next    what it does
    -----------  ---------------------------------  ------  -----------------------------------
    REGISTERING  the head has our nonce             ACTIVE  takes a lease
    ACTIVE       the store lost its head (!)        BEREFT  publishes the newest head it has seen
    BEREFT       a newer head is there              ACTIVE  goes on, by way of ``recovering``
    any          a higher incarnation of the        GONE    exits and never registers again (!)
                 replica, or a refused write
    ACTIVE,      the job is over (``ending.py``)    GONE    gives its lease up
    BEREFT

While the store does not answer, every request is looked into again after ``timeouts.store``
seconds, for ever: training goes on to the vote, commits wait, nothing is lost.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Collection

import msgspec

from . import store
from .advance import Next, NotYet
from .client import StoreClient
from .config import JobConfig
from .effects import Effect, Exit, Note, SetTimer
from .errors import ConfigError
from .head import Head, Status
from .ids import MemberId, Replica, Step
from .intent import Intent, evaluate
from .plan import lineage_root
from .planner import Members
from .record import Held, Record, Stance
from .recovery import newest_of, rebuild, suspend
from .registry import genesis, register, superseded


class Phase(enum.IntEnum):
    REGISTERING = 1
    ACTIVE = 2
    BEREFT = 3
    GONE = 4


MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.REGISTERING: frozenset({Phase.ACTIVE, Phase.GONE}),
    Phase.ACTIVE: frozenset({Phase.BEREFT, Phase.GONE}),
    Phase.BEREFT: frozenset({Phase.ACTIVE, Phase.GONE}),
    Phase.GONE: frozenset(),
}


class Session:
    """One life of one replica, in the eyes of the store.

    nonce:    names this process's registration, so that a repeat is recognised (!)
    attempt:  0 for the first process of this replica ever: only then may it found the job. Later ones
              count on: no two lives have one incarnation, even if the store forgets some
    forlorn:  looks in a row at which, unregistered, it found a store without its head and nobody with a lease
    said:     the last record that was put, whether or not the store has answered yet
    word:     what the leader would say now, put or not
    """

    __slots__ = (
        "_attempt",
        "_config",
        "_confirmed",
        "_forlorn",
        "_intent",
        "_nonce",
        "_put_off",
        "_replica",
        "_until",
        "client",
        "me",
        "phase",
        "said",
        "word",
    )

    def __init__(self, config: JobConfig, replica: Replica, nonce: str, attempt: int) -> None:
        self._config = config
        self._replica = replica
        self._nonce = nonce
        self._attempt = attempt
        self._intent: Intent | None = None
        self._put_off: Intent | None = None
        self._confirmed = False
        self._forlorn = 0
        self._until: Step = 0
        self.client = StoreClient(config.timeouts.store)
        self.me = MemberId(replica, 0)
        self.phase = Phase.REGISTERING
        self.said: Record | None = None
        self.word: Record | None = None

    def clone(self) -> Session:
        other = copy.copy(self)
        other.client = self.client.clone()
        return other

    # -- events -------------------------------------------------------------------------------

    def start(self, until: Step, out: list[Effect]) -> None:
        """``until``: the last step that this process was asked for; 0: none."""
        self._until = until
        self._read_again(out)
        out.append(SetTimer("poll", 0, self._config.timeouts.poll))

    def answered(self, number: int, answer: object, out: list[Effect]) -> None:
        """The store's answer to call ``number``; late ones are news as well."""
        call = self.client.answered(number, answer, out)
        if getattr(answer, "fenced", False):
            self._leave("a later life of this replica has registered", out)
        elif call is not None and call.purpose == "fresh" and self._intent is not None:
            self._decide_on(self._intent, answer, out)
        if isinstance(answer, store.View):
            self._repeat_lost_word(out)
        self._look(out)

    def _repeat_lost_word(self, out: list[Effect]) -> None:
        """The store lost its content once more, and with it the word that others wait for."""
        said, waits = self.said, self.phase in (Phase.REGISTERING, Phase.BEREFT)
        lost = said is not None and self.client.members.record(said.member) != said
        if waits and lost and not self.client.busy("put"):
            self._put(out)

    def _decide_on(self, intent: Intent, view: object, out: list[Effect]) -> None:
        """The head was read first, then the records: decide on just that, unless it is old already."""
        self._intent = None
        head = self.client.head
        if isinstance(view, store.View) and view.head is not None and view.head == head:
            self._decide(intent, Members(view.records, frozenset(view.leased)), out)

    def watched(self, change: object, out: list[Effect]) -> None:
        self._put_off = None
        self.client.watched(change, out)
        self._look(out)

    def unanswered(self, number: int, out: list[Effect]) -> None:
        """Timer ``store``: whatever became of the request, look at what the store shows."""
        call = self.client.expired(number)
        if call is None or self.phase is Phase.GONE:
            return
        if call.purpose == "put":
            self._put(out)
        elif call.purpose in ("cas", "again"):
            self._read_again(out)

    def renew(self, out: list[Effect]) -> None:
        """Timer ``renew``: keep the lease; unanswered renewals are simply followed by the next."""
        if self.phase is Phase.GONE:
            return
        lease = self._config.timeouts.lease
        self.client.ask("renew", store.Renew(self.me, lease), out)
        out.append(SetTimer("renew", 0, lease / 3))

    def poll(self, out: list[Effect]) -> None:
        """Timer ``poll``: the watch may have lost something."""
        if self.phase is Phase.GONE:
            return
        self._put_off = None
        alone = self.phase is Phase.REGISTERING and self._bereft() and not self.client.members.leased
        self._forlorn = self._forlorn + 1 if alone else 0
        self._read_again(out)
        out.append(SetTimer("poll", 0, self._config.timeouts.poll))

    def confirm(self, out: list[Effect]) -> None:
        """The operator's word: go on although not all replicas have reported to an empty store."""
        self._confirmed = True
        self._look(out)

    def simplify(self, unawaited: Collection[str]) -> tuple[int, ...]:
        """See ``Rank.simplify``. What was put off in a round that is over is never pursued again."""
        head, put_off = self.client.head, self._put_off
        if put_off is not None and head is not None and put_off.round < head.round:
            self._put_off = None
        return self.client.renumber(unawaited)

    # -- what the leader asks for -----------------------------------------------------------------

    def publish(self, record: Record, out: list[Effect]) -> None:
        """Overwrite our record, unless it says this already."""
        if record != self.said and self.phase is not Phase.GONE:
            self.said = record
            self._put(out)

    def pursue(self, intent: Intent | None, out: list[Effect]) -> None:
        """Work towards ``intent``; called with the same one until it is granted or needless."""
        if intent is None or self.phase is not Phase.ACTIVE or self._waiting():
            return
        if intent == self._put_off:
            return
        if intent.fresh:
            self._intent = intent
            self.client.ask("fresh", store.Read(linearizable=True), out)
        else:
            self._decide(intent, self.client.members, out)

    def retire(self, out: list[Effect]) -> None:
        """The job is over, and this replica has its result: nobody is to count on it any more."""
        self._move(Phase.GONE)
        self.client.ask("expire", store.Expire(self.me), out)

    # -- inside -------------------------------------------------------------------------------------

    def _waiting(self) -> bool:
        return any(self.client.busy(purpose) for purpose in ("cas", "again", "fresh"))

    def _decide(self, intent: Intent, members: Members, out: list[Effect]) -> None:
        result = evaluate(self._config, self.client, intent, self.me, members)
        if isinstance(result, Next):
            self._cas(result.head, out)
        elif isinstance(result, NotYet):
            self._put_off = intent  # until something changes in the store
            out.append(Note("not-yet", intent.round, result.reason))

    def _cas(self, head: Head, out: list[Effect]) -> None:
        epoch, version = self.client.stands
        self.client.ask("cas", store.Cas(epoch, version, head), out)

    def _read_again(self, out: list[Effect]) -> None:
        if not self.client.busy("again"):
            self.client.ask("again", store.Read(linearizable=True), out)

    def _put(self, out: list[Effect]) -> None:
        assert self.said is not None
        self.client.ask("put", store.Put(self.said), out)

    def _look(self, out: list[Effect]) -> None:
        """Do what the newest view of the store asks for."""
        if self.phase is Phase.REGISTERING:
            self._register(out)
        elif self.phase is Phase.ACTIVE and self._bereft():
            self._move(Phase.BEREFT)
            out.append(Note("store-lost", 0, "the store came back empty or older: waiting for all records"))
        elif self.phase is Phase.BEREFT and not self._bereft():
            self._move(Phase.ACTIVE)
        if self.phase is Phase.BEREFT:
            self._mourn(out)
        self._notice_successor(out)

    def _bereft(self) -> bool:
        """The store has no head, or none that can be the newest."""
        head = self.client.head
        return head is None or self.client.lost or head.status is Status.LOST or self._outdated(head)

    def _outdated(self, head: Head) -> bool:
        """Somebody's word, perhaps its last, knows of a newer head than the one that stands (!)."""
        words = self.client.members.records
        return any(word.seen is not None and word.seen.known > head.known for word in words)

    def _notice_successor(self, out: list[Effect]) -> None:
        head = self.client.head
        if self.phase is not Phase.ACTIVE or head is None or head.current(self.me):
            return
        if head.incarnations[self._replica][0] < self.me.incarnation:
            self._leave("the store that was rebuilt does not know this life", out, restart=True)
        else:
            self._leave("a later life of this replica has registered", out)

    def _register(self, out: list[Effect]) -> None:
        if self._waiting():
            return
        head = self.client.head
        if head is None or self._bereft():
            self._found(out)
            return
        if superseded(head, self._replica, self._nonce, self._attempt):
            self._leave("a later process of this replica has registered", out, restart=True)
            return
        try:
            changed, incarnation = register(
                self._config, head, self._replica, self._nonce, self._attempt, self._until
            )
        except ConfigError as error:
            self._leave(str(error), out)
            return
        if changed is not head:
            self._cas(changed, out)
            return
        self.me = MemberId(self._replica, incarnation)
        self.said = None
        self._move(Phase.ACTIVE)
        self.renew(out)

    def _found(self, out: list[Effect]) -> None:
        """A store without its head: found the job, or, if there was one (!), wait until it is rebuilt."""
        unheard = self.client.head is None and not self._heads_heard_of()
        if unheard and (self._attempt == 0 or self._confirmed):
            self._cas(genesis(self._config, self._until), out)
        else:
            self._mourn(out)

    def _heads_heard_of(self) -> list[Head]:
        """Heads that the words of members name."""
        return [word.seen for word in self.client.members.records if word.seen is not None]

    def _mourn(self, out: list[Effect]) -> None:
        """The store lost its head: stop it, say what was seen or heard of it, rebuild it once all have said
        so (!). Whoever is registered waits for nobody; others give those the time of a rollback."""
        self.publish(self._last_word(), out)
        if self._waiting():
            return
        standing, members = self.client.standing, self.client.members
        if standing is not None and standing.status is not Status.LOST:
            self._cas(suspend(standing), out)
            return
        if members.record(self.me) != self.said or not self._may_rebuild():
            return  # records that do not show this word yet may be of an earlier loss
        result = rebuild(self._config, members.records, standing, self._confirmed)
        if isinstance(result, Next):
            self._cas(result.head, out)

    def _last_word(self) -> Record:
        """What this process holds, and the newest head that it has seen; or heard of, if that is later by an
        epoch, or it has seen none."""
        own = [] if self.said is None or self.said.seen is None else [self.said.seen]
        head = self.client.head
        better = self.client.lost and head is not None and head.status is not Status.LOST
        if head is not None and (better or self.phase is Phase.BEREFT):
            own.insert(0, head)
        epoch = max((seen.epoch for seen in own), default=0)
        known = own + [seen for seen in self._heads_heard_of() if seen.epoch > epoch]
        seen = newest_of(known) if known else None
        return msgspec.structs.replace(self._holdings(), seen=seen)

    def _holdings(self) -> Record:
        word = self.word or self.said
        if self.phase is Phase.BEREFT and word is not None:
            return word
        root = lineage_root(self._config.job, self._config.initial_digest)
        held = Held(0, root, (0,) * self._config.stream_count)
        return Record(self.me, held, 0, 0, Stance.RUNNING, ready=False)

    def _may_rebuild(self) -> bool:
        """One that is not registered has seen nothing itself, and the words in the store may be of an earlier
        loss: while anyone has a lease, it is up to those."""
        t = self._config.timeouts
        return self.phase is Phase.BEREFT or self._confirmed or self._forlorn * t.poll >= t.rollback_grace

    def _leave(self, reason: str, out: list[Effect], restart: bool = False) -> None:
        if self.phase is not Phase.GONE:
            self._move(Phase.GONE)
            out.append(Exit(reason, restart))

    def _move(self, phase: Phase) -> None:
        assert phase in MOVES[self.phase], f"session: {self.phase.name} to {phase.name}"
        self.phase = phase
