"""Named fault points: places in the protocol and its drivers at which a fault may strike, and be counted.

A point costs the protocol nothing. It is something that a driver sees anyway: an event on its way in, an
effect or a message on its way out, a call to the store, a timer that still means something. The emulator
knows them by a table (``emulator/points.py``), so the names hold for the compiled core as well.
"""

from __future__ import annotations

from typing import NamedTuple


class Point(NamedTuple):
    """``where``: "leader" (position 0 alone), "rank" (any), or "driver". ``what`` happens there."""

    name: str
    where: str
    what: str


_LEADER = {
    "store.read": "asks the store for its head and records",
    "store.put": "writes its record",
    "store.renew": "renews its lease",
    "store.found": "writes the first head of the job",
    "store.register": "enters a new life of its replica in the head",
    "store.commit": "asks to commit the open round",
    "store.close": "asks to close the open round",
    "store.recover": "asks for a recovering head: the first half of a rollback",
    "store.rollback": "asks to plan from what is left: the second half of a rollback",
    "store.checkpoint": "asks to put a checkpoint on record",
    "store.suspend": "stops a store that lost its head",
    "store.rebuild": "writes the newest head that anybody has seen into a store that lost its own",
    "store.taken": "hears that its head was taken",
    "store.beaten": "hears that another head was taken",
    "store.fenced": "hears that a later life has registered",
    "store.news": "hears by the watch that something changed",
    "leader.voted": "has a yes of all its ranks",
    "leader.sealing": "begins to give a round up",
    "leader.sealed": "knows what its ranks have of a round that was given up",
    "leader.refused": "refuses a plan whose base it does not hold",
    "leader.bereft": "finds that the store lost its head",
    "leader.not_yet": "cannot close or recover yet",
    "timer.store": "has had no answer from the store in time",
    "timer.close": "has waited for the open round for as long as one should",
    "timer.grace": "has waited long enough for promises",
    "timer.rest": "may close a step early again, which failed several times",
    "timer.round": "gives a round up that has not ended in time",
    "timer.late": "waits no more for what is missing of a settled round",
    "timer.silent": "has had no answer to a seal from one of its ranks",
    "timer.order": "has a rank that did not carry out an order",
    "timer.roll": "has a rank that did not answer the roll call",
    "operator.leave": "is told that its replica is to leave",
}
_RANK = {
    "tree.begin": "passes a plan on down the tree",
    "tree.enlist": "passes the news on that the replica is registered",
    "tree.apply": "passes on that a round is committed",
    "tree.drop": "passes on that a round is dropped",
    "tree.seal": "passes on that a round is to be sealed",
    "tree.fetch": "passes on what to fetch, and from whom",
    "tree.restore": "passes on which checkpoint to restore",
    "tree.stop_fetch": "passes on that what is staged is of no use",
    "tree.install": "passes on that what is staged becomes the state",
    "tree.checkpoint": "passes on that a checkpoint is to be written",
    "tree.roll_call": "passes the roll call on",
    "vote.yes": "says yes up the tree, for all below it",
    "vote.no": "says no up the tree",
    "seal.whole": "answers a seal: every bucket is there",
    "seal.lacking": "answers a seal: a bucket is missing",
    "order.done": "says up the tree that an order is carried out",
    "fetched.whole": "says up the tree that the shards are staged",
    "fetched.failed": "says up the tree that they cannot be had",
    "prepared": "says up the tree that it is warm",
    "start.connect": "connects to its future neighbours",
    "start.warm_up": "begins its throw-away step",
    "start.warm": "is warm",
    "compute.launch": "begins forward and backward",
    "compute.reuse": "takes gradients that it has kept",
    "compute.bucket": "has the gradient of a bucket",
    "ring.join": "joins the ring, or says again that it has",
    "ring.ack": "acknowledges chunks",
    "ring.probe": "asks a late neighbour whom it waits for",
    "ring.waiting": "answers whom it waits for",
    "ring.reconnect": "asks for a fresh connection",
    "round.reduced": "has every bucket of a round",
    "round.measured": "knows the scalars of its shard",
    "round.abort": "stops the transfers of a round",
    "round.drop": "throws the sums of a round away",
    "apply.begin": "begins the optimizer step",
    "apply.done": "holds the new state",
    "hold.begin": "gets ready to hold the sums of a round that others train",
    "tap.ask": "asks a contributor for its finished chunks",
    "tap.ack": "acknowledges finished chunks",
    "tap.post": "sends a finished chunk to a learner",
    "tap.store": "keeps a finished chunk",
    "tap.end": "tells a learner that the rest will not come",
    "donor.freeze": "copies its state for a catcher",
    "donor.release": "frees a frozen copy",
    "donor.send": "sends a range of its state",
    "fetch.ask": "asks a donor for a range",
    "fetch.refused": "tells a catcher that it has no such copy",
    "fetch.stage": "keeps a range that has arrived",
    "fetch.unstage": "throws away what was staged",
    "restore.begin": "reads its shard of a checkpoint, or the initial state",
    "restore.done": "has staged it",
    "restore.failed": "cannot read it",
    "install.begin": "makes what is staged its state",
    "checkpoint.save": "writes its shard of a checkpoint",
    "checkpoint.saved": "has written it",
    "checkpoint.failed": "cannot write it",
    "link.lost": "hears that a peer's process has ended",
    "link.refused": "hears that a peer it sent to is not there",
    "link.broken": "hears that the network gave up on its connection to a peer",
    "link.tree_reset": "hears that the network gave up on a connection inside its replica",
    "link.transient": "hears that a transfer failed",
    "link.spoilt": "hears that a chunk does not fit its checksum",
    "link.reconnected": "hears that a fresh connection is up",
    "device.failed": "hears that its own device or host failed",
    "timer.chunk": "looks whether its ring still moves",
    "timer.range": "looks for ranges that are late",
    "exit.restart": "ends itself, to be started again",
    "exit.for_good": "ends itself, not to be started again",
}
_DRIVER = {
    "launcher.start": "a launcher starts a life of its replica",
    "launcher.death": "a launcher sees that a process has died",
    "launcher.end": "a launcher ends what is left of its replica",
    "launcher.no_lease": "a launcher finds that its leader lives without a lease",
}

POINTS: dict[str, Point] = {
    name: Point(name, where, what)
    for where, table in (("leader", _LEADER), ("rank", _RANK), ("driver", _DRIVER))
    for name, what in table.items()
}
