"""A rank in its rounds: it computes, reduces or holds, votes, and applies or drops (design 3.3, 3.4).

Each round that this rank runs, holds or still serves is a ``Share`` (``share.py`` has its table);
what happens to the rank's state and shard is in ``shard.py``. A rank gets a round's outcome before the
next plan and never infers one from the other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from . import messages as m
from .config import JobConfig
from .congestion import Tier, Window, fresh_window
from .effects import Abort, Apply, Drop, Effect, Exit, Finish, Hold, Launch, Measure, Send
from .errors import ErrorClass, ErrorReport
from .geometry import geometry
from .ids import Address, Lineage, MemberId, Position, Replica, Round
from .ledger import SampleRange
from .ring import Ring
from .shard import Change, Phase, Shard
from .share import Share, State
from .tap import TapSink, TapSource
from .task import Part

MAX_SERVED = 4  # rounds that are applied here and still served
MAX_EARLY = 64  # messages of a round whose plan has not come down yet


class Member(Shard):
    """One rank of a replica.

    shares:  the rounds that this rank runs, holds, or still serves, oldest first
    over:    the job is, and mates may end before this rank does
    stale:   messages that had no effect because they were of another round or life
    """

    __slots__ = ("_begun", "_early", "_launched", "_window", "over", "shares", "stale")

    def __init__(self, config: JobConfig, replica: Replica, position: Position) -> None:
        super().__init__(config, replica, position)
        self.shares: dict[Round, Share] = {}
        self.stale = 0
        self.over = False
        self._begun: Round = 0
        self._early: tuple[tuple[Address, m.Message], ...] = ()
        self._launched: tuple[Lineage, tuple[SampleRange, ...]] | None = None  # base and samples
        self._window: tuple[MemberId, Window] | None = None  # of the last right neighbour

    def clone(self) -> Member:
        other = copy.copy(self)
        self._clone_shard(other)
        other.shares = {round: share.clone() for round, share in self.shares.items()}
        return other

    # -- messages ------------------------------------------------------------------------------

    def command(self, source: Address, message: m.Message, now: float, out: list[Effect]) -> None:
        """An order down the tree: for this rank and its subtree."""
        self._relay(message, out)
        ORDERS[type(message)](self, source, message, now, out)

    def _child_vote(self, source: Address, message: m.Vote, now: float, out: list[Effect]) -> None:
        if message.round in self.shares:
            self._cast_vote(source[1], message.round, message.yes, message.scalars, message.report, out)

    def _child_sealed(self, source: Address, message: m.Sealed, now: float, out: list[Effect]) -> None:
        if message.round in self.shares:
            self._cast_seal(source[1], message.round, message.complete, message.scalars, out)

    def _child_done(self, source: Address, message: m.Done, now: float, out: list[Effect]) -> None:
        if message.order != self._passed_over:  # a late word on a checkpoint that was given up
            self._answer("done", message.order, source[1], message, out)

    def _child_prepared(self, source: Address, message: m.Prepared, now: float, out: list[Effect]) -> None:
        self._answer("prepared", 0, source[1], message, out)

    # -- a round begins ------------------------------------------------------------------------

    def _begin(self, source: Address, message: m.Begin, now: float, out: list[Effect]) -> None:
        plan, task = message.plan, message.task
        holding = task.part in (Part.LEARN, Part.ZEROS) and not task.wanted
        assert self.phase is Phase.IDLE or holding, "only holding goes on while the state changes"
        assert plan.round > self._begun, "plans come in order"
        self._begun = plan.round
        self._retire(out)
        self._freeze(task, out)
        if task.part is Part.CONTRIBUTE:
            self._contribute(message, now, out)
        elif task.part is Part.ZEROS:
            self._contribute_zeros(message, now, out)
        elif task.part is Part.LEARN:
            self._learn(message, out)
        self._replay_early(now, out)

    def _retire(self, out: list[Effect]) -> None:
        """A round is served until its neighbours have all of it or are gone (``_progress``). Only the oldest
        go before that: a neighbour that neither comes nor goes must not take memory without end."""
        served = [round for round, share in self.shares.items() if share.state is State.APPLIED]
        for round in served[:-MAX_SERVED]:
            self._forget(round, out)

    def _retire_before(self, share: Share, right: MemberId, out: list[Effect]) -> None:
        """A neighbour that contributed to this round holds its base: it is past whatever came before."""
        if right in share.plan.contributors:
            for round, older in list(self.shares.items()):
                past = round < share.plan.round and older.state is State.APPLIED
                if past and older.ring is not None and older.ring.right == right:
                    self._forget(round, out)

    def _forget(self, round: Round, out: list[Effect]) -> None:
        """Free everything of ``round``."""
        share = self.shares.pop(round, None)
        self._forget_ballots(round)
        if share is not None:
            out.append(Abort(round))
            out.append(Drop(round))

    def _contribute(self, begin: m.Begin, now: float, out: list[Effect]) -> None:
        plan, task = begin.plan, begin.task
        assert self.lineage == plan.base.lineage, "a contribution comes from the base alone (!)"
        share = self._ring_share(begin, True)
        work = (plan.base.lineage, task.ranges)
        reuse = self._launched == work and self._config.gradient_retention != "none"
        self._launched = work
        out.append(Launch(plan, task, reuse))
        assert share.ring is not None
        share.ring.start(now, out)

    def _contribute_zeros(self, begin: m.Begin, now: float, out: list[Effect]) -> None:
        ring = self._ring_share(begin, False).ring
        assert ring is not None
        out.append(Hold(begin.plan, begin.task))
        ring.start(now, out)
        for bucket in range(len(self._config.ftar.buckets)):
            ring.bucket_ready(bucket, now, out)

    def _ring_share(self, begin: m.Begin, contributing: bool) -> Share:
        task, ftar, round = begin.task, self._config.ftar, begin.plan.round
        assert task.left is not None and task.right is not None
        shape = geometry(ftar.buckets, task.members, ftar.chunk_bytes, ftar.slots)
        ring = Ring(
            shape,
            self.me,
            task.left,
            task.right,
            position=self.position,
            round=round,
            window=self._window_to(task.right),
            contributing=contributing,
            chunk_timeout=self._config.timeouts.chunk,
            max_retries=ftar.retries,
        )
        source = None
        if task.learners:
            window, total = self._config.catch_up.tap_chunks, shape.finished_total
            source = TapSource(
                round, self.me.incarnation, task.learners, self.position, window=window, total=total
            )
        share = self.shares[round] = Share(begin.plan, task, ring, None, source)
        return share

    def _window_to(self, right: MemberId) -> Window:
        """Go on with the window that the last round to the same neighbour ended with."""
        if self._window is not None and self._window[0] == right:
            return self._window[1]
        ftar = self._config.ftar
        return fresh_window(Tier[ftar.tier.upper()], ftar.slots)

    def _learn(self, begin: m.Begin, out: list[Effect]) -> None:
        task, ftar, round = begin.task, self._config.ftar, begin.plan.round
        assert task.tap is not None
        shape = geometry(ftar.buckets, task.members, ftar.chunk_bytes, ftar.slots)
        window, total = self._config.catch_up.tap_chunks, shape.finished_total
        sink = TapSink(round, task.tap, self.me, self.position, total=total, window=window)
        share = self.shares[round] = Share(begin.plan, task, None, sink, None)
        out.append(Hold(begin.plan, task))
        sink.start(out)
        self._progress(share, out)

    # -- reduce and vote -----------------------------------------------------------------------

    def bucket_ready(self, round: Round, bucket: int, now: float, out: list[Effect]) -> None:
        """The local gradient of ``bucket`` is there."""
        share = self.shares.get(round)
        if share is None or share.ring is None:
            return
        share.ring.bucket_ready(bucket, now, out)
        self._progress(share, out)

    def _chunk(self, source: Address, message: m.Chunk, now: float, out: list[Effect]) -> None:
        self.chunk(source[0], message, now, out)

    def chunk(self, source: Replica, message: m.Chunk, now: float, out: list[Effect]) -> None:
        """The hot path: see ``Ring.chunk``."""
        share = self.shares.get(message.round)
        if share is None or share.ring is None:
            self.stale += 1
            return
        ring = share.ring
        left = ring.left
        if source != left.replica or message.incarnation != left.incarnation:
            self.stale += 1
            return
        ring.chunk(message.seq, message.push, now, out)
        if ring.consumed == ring.total or share.source is not None:
            self._progress(share, out)

    def _ack(self, source: Address, message: m.Ack, now: float, out: list[Effect]) -> None:
        share = self.shares.get(message.round)
        ring = share.ring if share is not None else None
        if ring is None or not ring.is_right(source[0], message.round, message.incarnation):
            self.stale += 1
            return
        ring.ack(message.count, now, out)
        assert share is not None
        if ring.consumed == ring.total:  # a slot that the ack freed may have let the last chunk be taken
            self._progress(share, out)

    def _ring(self, source: Address, message: m.Message, now: float, out: list[Effect]) -> None:
        """Join, Probe and Waiting: rare messages of the ring."""
        round = message.round  # type: ignore[attr-defined]
        share = self.shares.get(round)
        if share is None or share.ring is None:
            self._keep_early(source, message, round)
            return
        if not share.ring.handle(source[0], message, now, out):  # type: ignore[arg-type]
            self.stale += 1
        self._progress(share, out)

    def _keep_early(self, source: Address, message: m.Message, round: Round) -> None:
        """A neighbour may hear of a plan sooner than we do; of rounds that are over nothing is kept."""
        if round > self._begun and len(self._early) < MAX_EARLY:
            self._early += ((source, message),)
        else:
            self.stale += 1

    def _replay_early(self, now: float, out: list[Effect]) -> None:
        if self._early:
            early, self._early = self._early, ()
            for source, message in early:
                HEARD[type(message)](self, source, message, now, out)

    def _progress(self, share: Share, out: list[Effect]) -> None:
        """Do what the state of the ring or tap of ``share`` now allows or demands."""
        ring, round = share.ring, share.plan.round
        if share.source is not None and ring is not None and share.state < State.APPLIED:
            share.source.finished(ring.finished_count, out)
        if share.state is State.WORKING and share.has_everything:
            share.move(State.WHOLE)
            self._measure(share, out)
        self._say_yes(share, out)
        failure = self._failure(share)
        if failure is not None and not share.said_no and share.state in (State.WORKING, State.WHOLE):
            share.said_no = True
            self._cast_vote(self.position, round, False, (), failure, out)
        if share.state is State.APPLIED and (share.acknowledged or failure is not None):
            self._forget(round, out)

    def _measure(self, share: Share, out: list[Effect]) -> None:
        if self._config.scalars == 0:
            share.scalars = ()
        else:
            out.append(Measure(share.plan.round))

    def _say_yes(self, share: Share, out: list[Effect]) -> None:
        """Every bucket is here, measured, and the right neighbour has every chunk we sent (!)."""
        if share.state is State.WHOLE and share.scalars is not None and share.acknowledged:
            share.move(State.VOTED)
            if share.ring is not None:
                self._window = (share.ring.right, share.ring.window)
                self._retire_before(share, share.ring.right, out)
            self._cast_vote(self.position, share.plan.round, True, share.scalars, None, out)

    def _failure(self, share: Share) -> ErrorReport | None:
        if share.ring is not None:
            return share.ring.failure
        if share.sink is not None and share.sink.broken is not None:
            return ErrorReport(ErrorClass.TRANSIENT, share.sink.broken)
        return None

    def measured(self, round: Round, scalars: m.Scalars, out: list[Effect]) -> None:
        """The scalars of this rank's reduced shard are known. Said again, it changes nothing."""
        share = self.shares.get(round)
        if share is None:
            return
        if share.scalars is None:
            share.scalars = scalars
            if share.sealing:
                self._answer_seal(share, out)
        self._progress(share, out)

    def _seal(self, source: Address, message: m.Seal, now: float, out: list[Effect]) -> None:
        """First phase of giving up (!): from here on no chunk is accepted or acknowledged."""
        share = self.shares[message.round]
        share.sealing = True
        if share.ring is not None and not share.ring.seal():
            if share.state is State.WORKING:
                share.move(State.SEALED)
        self._answer_seal(share, out)

    def _answer_seal(self, share: Share, out: list[Effect]) -> None:
        round = share.plan.round
        if share.state is State.SEALED:
            self._cast_seal(self.position, round, False, (), out)
        elif share.scalars is not None:
            share.sealing = False
            self._cast_seal(self.position, round, True, share.scalars, out)

    def _roll_call(self, source: Address, message: m.RollCall, now: float, out: list[Effect]) -> None:
        self._done(message.order, out)

    # -- outcomes ------------------------------------------------------------------------------

    def _outcome(self, source: Address, message: m.Outcome, now: float, out: list[Effect]) -> None:
        share = self.shares.get(message.round)
        if share is not None and share.source is not None:
            share.source.end(out)
            share.source = None
        if message.verdict is m.Verdict.DROP:
            self._forget(message.round, out)
            self._done(message.order, out)
            return
        assert share is not None and share.has_everything, "only a whole round is applied (!)"
        assert share.plan.base.lineage == self.lineage, "an update is applied onto its own base (!)"
        plan = share.plan
        self._move(Phase.CHANGING)
        self._change = Change(message.order, plan.base.step + 1, plan.lineage_after, plan.round)
        out.append(Apply(plan, message.scalars, keep=not share.acknowledged))

    def applied(self, round: Round, out: list[Effect]) -> None:
        """The device holds the new state."""
        change = self._change
        assert change is not None and change.round == round, "an answer to no order"
        self.step, self.lineage = change.step, change.lineage
        self._change = self._launched = None
        self._move(Phase.IDLE)
        if round < 0:
            self._fetch, self._staged, self._restoring = None, False, None
        else:
            self._serve_on(self.shares[round], out)
        self._done(change.order, out)

    def _serve_on(self, share: Share, out: list[Effect]) -> None:
        """A rank serves a round's chunks until its neighbours have them, also after applying (!)."""
        round = share.plan.round
        if share.acknowledged:
            del self.shares[round]
            self._forget_ballots(round)
        else:
            share.move(State.APPLIED)

    def _finish(self, source: Address, message: m.Finish, now: float, out: list[Effect]) -> None:
        """The job is over, and those below this rank were told before it."""
        assert self.lineage == message.lineage, "a rank ends well with the last state alone (!)"
        self.over = True
        out.append(Finish(message.step, message.lineage))

    # -- taps ----------------------------------------------------------------------------------

    def _tap(self, source: Address, message: m.Tap, now: float, out: list[Effect]) -> None:
        share = self.shares.get(message.round)
        if share is None or share.sink is None:
            self.stale += 1
            return
        share.sink.chunk(source[0], message, out)
        if share.sink.complete or share.sink.broken is not None:
            self._progress(share, out)

    def _tap_end(self, source: Address, message: m.TapEnd, now: float, out: list[Effect]) -> None:
        share = self.shares.get(message.round)
        if share is not None and share.sink is not None:
            share.sink.end(source[0], message)
            self._progress(share, out)

    def _tap_ack(self, source: Address, message: m.TapAck, now: float, out: list[Effect]) -> None:
        share = self.shares.get(message.round)
        if share is not None and share.source is not None:
            share.source.ack(message, out)
        elif message.round > self._begun:
            self._keep_early(source, message, message.round)
        elif message.count == 0:
            out.append(Send(source, m.TapEnd(message.round, self.me.incarnation)))

    # -- links, time and faults --------------------------------------------------------------------

    def timer(self, name: str, tag: int, now: float, out: list[Effect]) -> None:
        """The clock of a ring or of a fetch."""
        if name == "range":
            if self._fetch is not None:
                self._fetch.timer(tag, now, out)
                self._fetch_progress(out)
            return
        assert name == "chunk", f"timer {name} belongs to no rank"
        share = self.shares.get(tag)
        if share is not None and share.ring is not None:
            share.ring.timer(now, out)
            self._progress(share, out)

    def awaits(self, name: str, tag: int) -> bool:
        """Whether the timer ``name`` with ``tag`` still means anything."""
        if name == "range":
            return self._fetch is not None and self._fetch.tag == tag and not self._fetch.complete
        share = self.shares.get(tag)
        return share is not None and share.ring is not None and share.ring.failure is None

    def each_ring(self, act: Callable[[Ring], object], round: Round | None, out: list[Effect]) -> None:
        """Let ``act`` loose on the rings of ``round`` (None: all), and see what follows."""
        for number in [round] if round is not None else list(self.shares):
            share = self.shares.get(number)
            if share is not None and share.ring is not None:
                act(share.ring)
                self._progress(share, out)

    def peer_lost(self, peer: Replica, incarnation: int, reason: str, now: float, out: list[Effect]) -> None:
        """The rank of this position in ``peer`` is gone: whatever we had with it ends.

        Without a connection to a rank of the own replica, what goes up and down the tree is lost: a
        replica that misses an order would wait for ever, so it leaves.
        """
        if peer == self.me.replica:
            if self.over:
                return
            self.local_error(ErrorReport(ErrorClass.LOCAL_FATAL, reason), out)
            return
        for share in list(self.shares.values()):
            if share.ring is not None:
                share.ring.peer_lost(peer, incarnation, reason, now, out)
            if share.source is not None:
                share.source.learner_lost(peer, incarnation)
            if share.sink is not None:
                share.sink.source_lost(peer, incarnation)
            self._progress(share, out)
        if self._fetch is not None:
            self._fetch.donor_lost(peer, incarnation, now, out)
            self._fetch_progress(out)

    def local_error(self, report: ErrorReport, out: list[Effect]) -> None:
        """Our own device or host failed: a rank that cannot go on dies, and its replica leaves."""
        restart = report.error_class is not ErrorClass.JOB_FATAL
        out.append(Exit(report.reason, restart))


Handler = Callable[..., None]
ORDERS: dict[type[m.Message], Handler] = {
    m.Enlist: Member._enlist,
    m.Begin: Member._begin,
    m.Outcome: Member._outcome,
    m.Seal: Member._seal,
    m.StartFetch: Member._start_fetch,
    m.StopFetch: Member._stop_fetch,
    m.Install: Member._install,
    m.WriteCheckpoint: Member._write_checkpoint,
    m.RollCall: Member._roll_call,
    m.Finish: Member._finish,
}
HEARD: dict[type[m.Message], Handler] = {  # what a rank does with a message from another rank
    **dict.fromkeys(ORDERS, Member.command),
    m.Chunk: Member._chunk,
    m.Ack: Member._ack,
    m.Vote: Member._child_vote,
    m.Sealed: Member._child_sealed,
    m.Done: Member._child_done,
    m.Fetched: Member._child_fetched,
    m.Prepared: Member._child_prepared,
    m.Join: Member._ring,
    m.Probe: Member._ring,
    m.Waiting: Member._ring,
    m.Tap: Member._tap,
    m.TapAck: Member._tap_ack,
    m.TapEnd: Member._tap_end,
    m.RangeRequest: Member._request,
    m.RangeData: Member._range,
    m.NotHere: Member._not_here,
}
