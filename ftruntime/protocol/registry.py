"""How a job and its members come into being: genesis and ``register`` (design 3.2).

Pure functions over the head. A new incarnation fences the old one; the nonce makes a repeat
after a lost answer return the same incarnation: a member must not fence itself.
"""

from __future__ import annotations

from .config import JobConfig
from .errors import ConfigError
from .head import Commit, Head, Status, successor
from .ids import Incarnation, Replica, Step
from .plan import Base, Kind, Plan, lineage_root
from .planner import durations


def genesis(config: JobConfig, until: Step = 0) -> Head:
    """The first head of a job: round 0 is closed, and round 1 waits for enough holders of lineage(0).

    until: the step with which the job ends; 0: it has no end
    """
    root = lineage_root(config.job, config.initial_digest)
    base = Base(0, root, (0,) * config.stream_count)
    plan = Plan(
        round=1,
        kind=Kind.CATCH_UP,
        base=base,
        contributors=(),
        ranges=(),
        catchers=(),
        divisor=0,
        lr_factor=0.0,
        durations=durations(config, 0),
        reason="the job begins: waiting for replicas",
    )
    return Head(
        version=1,
        epoch=1,
        round=1,
        status=Status.RUNNING,
        plan=plan,
        chain=(Commit(0, root, 0, ()),),
        incarnations=((0, ""),) * config.replicas,
        job=config.digest(),
        trail=() if config.trail else None,
        until=until,
    )


def superseded(head: Head, replica: Replica, nonce: str, attempt: int) -> bool:
    """Whether a later process of ``replica`` than that of ``attempt`` has registered.

    The first process registers as incarnation 1 at least, the next as 2, so an incarnation beyond our turn
    is that of a later one: whoever was taken for dead, and comes late, must not fence its successor (!).
    """
    incarnation, registered = head.incarnations[replica]
    return incarnation > attempt and registered != nonce


def register(
    config: JobConfig, head: Head, replica: Replica, nonce: str, attempt: int = 0, until: Step = 0
) -> tuple[Head, Incarnation]:
    """Enter a new life of ``replica``. Returns the head to write and the incarnation.

    ``attempt``: how many processes of this replica there were before. The incarnation is above it too: in a
    store that came back older, the head's count alone would name two lives alike.
    until: the last step that this life was asked for. The job goes on to the largest that anybody brings: one
    that is over goes on when it is started again with a larger one, and with no other.
    The same nonce returns the same incarnation and the head unchanged (!). Raises ConfigError if
    the member was configured for another job: it must stop, both values are named.
    """
    if head.job != config.digest():
        raise ConfigError(
            f"replica {replica} is configured as {config.digest()} but the job runs as {head.job}: "
            "give every replica the same configuration"
        )
    incarnation, last_nonce = head.incarnations[replica]
    if last_nonce == nonce:
        return head, incarnation
    incarnation = max(incarnation, attempt) + 1
    lives = list(head.incarnations)
    lives[replica] = (incarnation, nonce)
    until = max(head.until, until)
    return successor(head, incarnations=tuple(lives), until=until, by=None), incarnation
