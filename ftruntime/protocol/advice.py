"""When to close an unfinished round, or to look for a way out of ``recovering``.

Only advice: safety never depends on when a round is closed, nor on who closes it (design 3.2).
"""

from __future__ import annotations

from .advance import Next, advance
from .blame import accusations, blamed
from .config import JobConfig
from .head import Fate, Head, Status
from .ids import MemberId
from .plan import Kind
from .planner import Members
from .record import Stance

FREE_RETRIES = 4  # consecutive closes of a step before retries slow down
RESTS = 6  # doublings until a retry rests for a whole chunk time-out


def rest(config: JobConfig, head: Head) -> float:
    """Seconds that a round must have been open before it is closed for the no of one who could go on.

    While a link fails at once, round after round, nothing else would keep a step from being tried
    hundreds of times a second.
    """
    if head.plan.kind is not Kind.TRAIN or head.closes < FREE_RETRIES:
        return 0.0
    doublings = min(head.closes - FREE_RETRIES, RESTS)
    return config.timeouts.chunk / float(1 << (RESTS - doublings))


def should_close(
    config: JobConfig, head: Head, me: MemberId, members: Members, waited: bool, rested: bool = True
) -> bool:
    """Whether the open round should be closed now.

    waited: its time to close has passed
    rested: its time to be closed early (``rest``) has passed
    """
    if head.status is not Status.RUNNING:
        return False
    if head.finished:  # only for the sake of who still needs the state
        return (waited and bool(head.plan.catchers)) or _better_plan(config, head, me, members)
    if waited:
        return True
    if head.plan.kind is Kind.TRAIN:
        return rested and _nobody_can_finish(head, members)
    return _better_plan(config, head, me, members)


def _nobody_can_finish(head: Head, members: Members) -> bool:
    """Someone said no or is gone, and the rest have said yes, no, or are gone too. Who hangs, leader and all,
    says nothing while its lease lasts: it is enough that the others hold it responsible (!)."""
    trouble = False
    contributors = [r for r in members.live_records(head) if r.member in head.plan.contributors]
    hang = blamed(accusations(contributors, head.round))
    for member in head.plan.contributors:
        if not members.live(head, member) or members.said_no(member, head.round):
            trouble = True
        elif not _said_yes(member, head, members) and member.replica not in hang:
            return False
    return trouble


def _said_yes(member: MemberId, head: Head, members: Members) -> bool:
    record = members.record(member)
    return record is not None and record.round == head.round and record.stance is Stance.YES


def _better_plan(config: JobConfig, head: Head, me: MemberId, members: Members) -> bool:
    """A catch-up-only round closes when closing it would change what anyone does."""
    if head.round == 1 and sum(r.ready for r in members.live_records(head)) < config.replicas:
        return False  # the job begins: ``waited`` says when to go on without the missing
    result = advance(config, head, head.round, Fate.CLOSED, me, members)
    if not isinstance(result, Next):
        return False
    if result.head.status is Status.RECOVERING:
        return True
    return result.head.plan.gist() != head.plan.gist()
