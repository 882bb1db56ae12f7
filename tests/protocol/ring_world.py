"""A ring of N ranks at one position with FIFO links and a data plane that adds real integers.

Everything that can happen next is in ``moves``; a seeded choice takes one at a time, so each seed is one
order of delivery. The data plane checks what hardware would not: that a slot is never overwritten while it
is in use.
"""

from __future__ import annotations

import random
from collections import deque

from ftruntime.protocol.congestion import Tier, fresh_window
from ftruntime.protocol.effects import Post, Reconnect, Send, SetTimer
from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.messages import Chunk
from ftruntime.protocol.ring import Ring

ROUND, POSITION, TIMEOUT = 7, 5, 60.0


def replica_of(index):
    return 3 * index + 1


class World:
    """``step`` until nothing moves; ``hung`` ranks get nothing delivered and do nothing."""

    def __init__(
        self,
        buckets,
        members,
        chunk_bytes,
        slots,
        *,
        seed=0,
        zeros=0,
        tier=Tier.RACK,
        max_retries=50,
        jitter=0,
    ):
        self.chance = random.Random(seed)
        self.geometry = geometry(tuple(buckets), members, chunk_bytes, slots)
        self.members, self.zeros, self.jitter = members, zeros, jitter
        self.now = 0.0
        self.hung, self.unready = set(), set()
        self.links = {}  # (from, to) -> deque of (message, data)
        self.timers = []  # (time, member)
        self.local = [[self._gradient(i, size) for size in buckets] for i in range(members)]
        self.output = [[[None] * size for size in buckets] for _ in range(members)]
        self.send_slots = [{} for _ in range(members)]  # slot -> (number, data, arrived)
        self.receive_slots = [{} for _ in range(members)]  # slot -> (number, data)
        self.reconnects, self.completions, self.transients = [], [], []
        self.finished_chunks = [0] * members
        self.ignored = 0
        self.pace = [self.chance.choice((1, 1, 1, 10, 100)) for _ in range(members)]
        self.ids = [MemberId(replica_of(i), i + 2) for i in range(members)]
        self.rings = [self._ring(i, slots, tier, max_retries) for i in range(members)]
        self.unstarted = set(range(members))
        self.unbucketed = [list(range(len(buckets))) for _ in range(members)]

    def _gradient(self, i, size):
        contributing = i < self.members - self.zeros
        return [self.chance.randrange(1, 1 << 40) if contributing else 0 for _ in range(size)]

    def _ring(self, i, slots, tier, max_retries):
        left, right = self.ids[i - 1], self.ids[(i + 1) % self.members]
        return Ring(
            self.geometry,
            self.ids[i],
            left,
            right,
            position=POSITION,
            round=ROUND,
            window=fresh_window(tier, slots),
            contributing=i < self.members - self.zeros,
            chunk_timeout=TIMEOUT,
            max_retries=max_retries,
        )

    # -- what can happen next ----------------------------------------------------------------

    def moves(self):
        found = [(self._start, i, ()) for i in sorted(self.unstarted)]
        found += [
            (self._deliver, to, (source,))
            for (source, to), queue in sorted(self.links.items())
            if queue and to not in self.unstarted
        ]
        found += [
            (self._bucket, i, ())
            for i in range(self.members)
            if self.unbucketed[i] and i not in self.unstarted and i not in self.unready
        ]
        found += [(self._complete, i, (count,)) for i, count in self.completions[:1]]
        found += [(self._reconnected, i, (peer,)) for i, peer in self.reconnects]
        found += [(self._transient, i, (peer,)) for i, peer in self.transients if i not in self.unstarted]
        return [move for move in found if move[1] not in self.hung]

    def step(self):
        """One move. False if there is none."""
        moves = self.moves()
        if not moves:
            return False
        weights = [self.pace[i] for _, i, _ in moves]
        move, i, arguments = self.chance.choices(moves, weights)[0]
        self.now += self.chance.random() * self.jitter
        out = []
        move(i, *arguments, out)
        self.carry(i, out)
        self.check(i)
        return True

    def run(self, timers=False):
        """Until nothing moves; with ``timers`` also fire them, as long as someone is undecided."""
        while self.step() or (timers and self._undecided() and self.fire()):
            pass

    def _undecided(self):
        silent = self.hung | self.unready
        return any(not (r.finished or r.failure) for i, r in enumerate(self.rings) if i not in silent)

    def fire(self):
        """The next timer. False if there is none."""
        live = [t for t in self.timers if t[1] not in self.hung]
        if not live:
            return False
        at, i = min(live)
        self.timers.remove((at, i))
        self.now = max(self.now, at)
        out = []
        self.rings[i].timer(self.now, out)
        self.carry(i, out)
        return True

    def _start(self, i, out):
        self.unstarted.discard(i)
        self.rings[i].start(self.now, out)

    def _bucket(self, i, out):
        self.rings[i].bucket_ready(self.unbucketed[i].pop(0), self.now, out)

    def _complete(self, i, count, out):
        self.completions.remove((i, count))
        self.rings[i].sent(count, self.now, out)

    def _reconnected(self, i, peer, out):
        self.reconnects.remove((i, peer))
        assert self.rings[i].reconnected(peer, self.now, out)

    def _transient(self, i, peer, out):
        self.transients.remove((i, peer))
        self.rings[i].transient(peer, "link flap", self.now, out)

    def _deliver(self, to, source, out):
        message, data = self.links[source, to].popleft()
        if isinstance(message, Chunk):
            self._arrive(source, to, message.seq, data)
        if not self.rings[to].handle(self.ids[source].replica, message, self.now, out):
            self.ignored += 1

    # -- the data plane ----------------------------------------------------------------------

    def _arrive(self, source, to, seq, data):
        slot = seq % self.geometry.slots
        before = self.receive_slots[to].get(slot)
        if before is not None and before[0] >= self.rings[to].consumed:
            assert before == (seq, data), "a chunk was overwritten before it was consumed"
        self.receive_slots[to][slot] = (seq, data)
        if self.geometry.needs_completions:
            number, held, _ = self.send_slots[source][slot]
            self.send_slots[source][slot] = (number, held, True)
            self.completions.append((source, seq + 1))

    def carry(self, i, effects):
        for effect in effects:
            if isinstance(effect, Send):
                replica, position = effect.to
                assert position == POSITION
                self.push(i, (replica - 1) // 3, effect.message, None)
            elif isinstance(effect, Post):
                self._post(i, effect)
            elif isinstance(effect, Reconnect):
                self.reconnects.append((i, effect.peer))
            else:
                assert isinstance(effect, SetTimer) and (effect.name, effect.tag) == ("chunk", ROUND)
                self.timers.append((self.now + effect.after, i))

    def push(self, source, to, message, data):
        self.links.setdefault((source, to), deque()).append((message, data))

    def _post(self, i, post):
        assert post.round == ROUND
        slot = post.give % self.geometry.slots
        if post.filled:
            assert post.take == -1 and self.send_slots[i][slot][0] == post.give
        else:
            data = self._take(i, post.take) if post.take >= 0 else self._own(i, post.give)
            if post.give >= 0:
                self._fill(i, slot, post.give, data)
        if post.send:
            message = Chunk(ROUND, self.ids[i].incarnation, post.give, post.push)
            self.push(i, (i + 1) % self.members, message, self.send_slots[i][slot][1])

    def _fill(self, i, slot, give, data):
        before = self.send_slots[i].get(slot)
        if before is not None:
            number, _, arrived = before
            consumed = self.rings[(i + 1) % self.members].consumed
            assert number == give - self.geometry.slots
            assert arrived or consumed > number, "a send slot was filled while its chunk was needed"
        self.send_slots[i][slot] = (give, data, False)

    def _own(self, i, give):
        place = self.geometry.locate(give)
        assert place.step == 0
        return self._local(i, place, self.geometry.sent_partition(i, 0))

    def _local(self, i, place, partition):
        start, end = self.geometry.byte_range(place.bucket, partition, place.chunk)
        return tuple(self.local[i][place.bucket][start:end])

    def _take(self, i, take):
        number, data = self.receive_slots[i][take % self.geometry.slots]
        assert number == take
        place = self.geometry.locate(take)
        partition = self.geometry.received_partition(i, place.step)
        if place.step < self.members - 1:
            data = tuple(a + b for a, b in zip(data, self._local(i, place, partition), strict=True))
        if place.step >= self.members - 2:
            assert self.geometry.locate_finished(self.finished_chunks[i]) == place
            self.finished_chunks[i] += 1
            start, end = self.geometry.byte_range(place.bucket, partition, place.chunk)
            self.output[i][place.bucket][start:end] = data
        return data

    # -- faults and checks -------------------------------------------------------------------

    def lose(self, i, told):
        """Everything on its way between i and its right neighbour is gone; ``told`` of them hear of it."""
        j = (i + 1) % self.members
        for pair in ((i, j), (j, i)):
            self.links.get(pair, deque()).clear()
        for end, peer in told(((i, self.ids[j].replica), (j, self.ids[i].replica))):
            self.transients.append((end, peer))

    def sums(self, bucket):
        return [sum(column) for column in zip(*(local[bucket] for local in self.local), strict=True)]

    def check(self, i):
        """Truths that hold at rank i after each move."""
        ring, g = self.rings[i], self.geometry
        assert 0 <= ring.in_flight <= g.slots
        assert ring.posted <= ring.filled <= ring.posted + g.slots
        if g.members == 1:
            return
        assert ring.finished_count == self.finished_chunks[i]
        for bucket in range(ring.buckets_complete):
            assert ring.finished_count >= g.finished_end[bucket]
        contributors = self.rings[: self.members - self.zeros]
        if ring.finished and ring.contributing and len(contributors) > 1:
            others = [r for r in contributors if r is not ring]
            assert any(r.complete for r in others), "a yes although no other contributor has every chunk"

    def check_sums(self):
        for bucket in range(len(self.geometry.buckets)):
            expected = self.sums(bucket)
            for i in range(self.members):
                assert self.output[i][bucket] == expected, (i, bucket)
