"""The entries of an event log: their kinds, their fields, and one clear error for anything else.

The checker works on raw entries (lists) where it must be fast; this file says what each number in
one of them means, and turns an entry into a typed view for messages and for validation. An entry
is ``[kind, t, ...fields]`` with ``t`` in seconds. Source: the event log's schema, version 1.
"""

from __future__ import annotations

from typing import Any

import msgspec

Entry = list[Any]
Member = tuple[int, int]  # (replica, incarnation)
Range = tuple[int, int, int]  # (stream, start, count)
Gradient = int | list[float]  # one bucket: a digest, or a small tensor logged whole


class BadEntry(ValueError):
    """An entry that is not of the schema. The message names the entry's number, kind and mistake."""


class Config(msgspec.Struct, frozen=True):
    """What the run was asked to do, as its first entry says. Times in seconds.

    positions, counts: of a run that folds: the positions that are run, and how many each stands for
    """

    replicas: int
    ranks_per_replica: int
    buckets: int
    min_replicas: int
    streams: int
    samples_per_step: int
    seed: int
    fidelity: str
    lineage_root: str
    convergence_bound_s: float
    progress_bound_s: float
    stall_bound_s: float
    divisor: str
    lr_scaling: str
    schema: int = 1
    job: str = ""
    max_stream_lag: int = 0
    catch_up: str = "tap"
    consensus_faults: bool = False
    store_epoch: int = 0
    positions: list[int] | None = None
    counts: list[int] | None = None


class Closed(msgspec.Struct, frozen=True):
    """What became of the round that was open: ``outcome`` is "committed" or "closed"."""

    round: int
    outcome: str
    step_after: int | None = None
    lineage_after: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """The plan of the round that a head opens; ``ranges[i]`` belongs to ``contributors[i]``.

    ``catchers``: (replica, incarnation, fetch_step or -1, donor replicas).
    """

    kind: str
    base_step: int
    base_lineage: str
    base_ledger: list[int]
    contributors: list[Member]
    ranges: list[list[Range]]
    catchers: list[tuple[int, int, int, list[Any]]]
    divisor: int
    lr_factor: float
    reason: str = ""


class Rollback(msgspec.Struct, frozen=True):
    """A cut of the chain. ``live``: (replica, incarnation, step, lineage) of the records used."""

    to_step: int
    to_lineage: str
    lost_steps: int | list[int]
    from_step: int
    live: list[tuple[int, int, int, str]]
    source: str = "live"


class _Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    t: float


class Meta(_Entry, frozen=True, array_like=True, tag="meta", forbid_unknown_fields=True):
    config: Config


class Start(_Entry, frozen=True, array_like=True, tag="start", forbid_unknown_fields=True):
    replica: int
    incarnation: int
    reason: str


class Crash(_Entry, frozen=True, array_like=True, tag="crash", forbid_unknown_fields=True):
    replica: int
    incarnation: int
    position: int
    cause: str


class Exit(_Entry, frozen=True, array_like=True, tag="exit", forbid_unknown_fields=True):
    replica: int
    incarnation: int
    reason: str
    restart: bool


class Fault(_Entry, frozen=True, array_like=True, tag="fault", forbid_unknown_fields=True):
    fault: dict[str, Any]


class Heal(_Entry, frozen=True, array_like=True, tag="heal", forbid_unknown_fields=True):
    fault: dict[str, Any]


class Head(_Entry, frozen=True, array_like=True, tag="head", forbid_unknown_fields=True):
    """The store has taken a head that changes the round or the chain."""

    version: int
    epoch: int
    round: int
    status: str
    by: Member | None
    closed: Closed | None
    plan: Plan | None
    rollback: Rollback | None


class Register(_Entry, frozen=True, array_like=True, tag="register", forbid_unknown_fields=True):
    replica: int
    incarnation: int


class Fenced(_Entry, frozen=True, array_like=True, tag="fenced", forbid_unknown_fields=True):
    replica: int
    incarnation: int


class Computed(_Entry, frozen=True, array_like=True, tag="computed", forbid_unknown_fields=True):
    """A device has really computed: on which state, on which samples, with which gradients."""

    replica: int
    incarnation: int
    position: int
    round: int
    base_lineage: str
    state_digest: int
    ranges: list[Range]
    corpus_digest: int
    grads: list[Gradient]


class Reused(_Entry, frozen=True, array_like=True, tag="reused", forbid_unknown_fields=True):
    replica: int
    incarnation: int
    position: int
    round: int
    ranges: list[Range]
    grads: list[Gradient]


class Applied(_Entry, frozen=True, array_like=True, tag="applied", forbid_unknown_fields=True):
    """A rank has made the update of a round: from which state, by which sum, to which state."""

    replica: int
    incarnation: int
    position: int
    round: int
    contributing: bool
    base_lineage: str
    base_digest: int
    reduced: list[Gradient]
    scalars: list[float]
    divisor: int
    lr_factor: float
    step_after: int
    lineage_after: str
    state_digest: int


class Dropped(_Entry, frozen=True, array_like=True, tag="dropped", forbid_unknown_fields=True):
    replica: int
    incarnation: int
    position: int
    round: int


class Installed(_Entry, frozen=True, array_like=True, tag="installed", forbid_unknown_fields=True):
    replica: int
    incarnation: int
    position: int
    step: int
    lineage: str
    state_digest: int
    source: str


class Initial(_Entry, frozen=True, array_like=True, tag="initial", forbid_unknown_fields=True):
    replica: int
    incarnation: int
    position: int
    step: int
    lineage: str
    state_digest: int


class Shard(_Entry, frozen=True, array_like=True, tag="shard", forbid_unknown_fields=True):
    """A rank writes its shard of checkpoint ``name``."""

    replica: int
    incarnation: int
    position: int
    name: str
    step: int
    lineage: str
    state_digest: int


class Checkpoint(_Entry, frozen=True, array_like=True, tag="checkpoint", forbid_unknown_fields=True):
    name: str
    step: int
    lineage: str


class Resources(_Entry, frozen=True, array_like=True, tag="resources", forbid_unknown_fields=True):
    """What a rank uses with the state of ``step``, times ``weight``: for how many ranks it stands."""

    replica: int
    incarnation: int
    position: int
    step: int
    weight: int
    counters: dict[str, int]


class End(_Entry, frozen=True, array_like=True, tag="end", forbid_unknown_fields=True):
    states: list[tuple[int, int, int, str, bool]]
    reason: str


class Refold(_Entry, frozen=True, array_like=True, tag="refold", forbid_unknown_fields=True):
    """From here on other positions are run. ``states`` has a row for each replica that runs: (replica,
    incarnation, step, lineage, [(position, digest) of each position that was not run before])."""

    positions: list[int]
    counts: list[int]
    states: list[tuple[int, int, int, str, list[tuple[int, int]]]]


class Final(_Entry, frozen=True, array_like=True, tag="final", forbid_unknown_fields=True):
    """The head that was just taken ends the job with this state."""

    step: int
    lineage: str


class GoesOn(_Entry, frozen=True, array_like=True, tag="goes_on", forbid_unknown_fields=True):
    """A job that was over is asked to go on to step ``until``."""

    until: int


class Over(_Entry, frozen=True, array_like=True, tag="over", forbid_unknown_fields=True):
    """A rank ends well, as the job is over, with this state."""

    replica: int
    incarnation: int
    position: int
    step: int
    lineage: str


class LastFault(_Entry, frozen=True, array_like=True, tag="last_fault", forbid_unknown_fields=True):
    pass


AnyEntry = (
    Meta | Start | Crash | Exit | Fault | Heal | Head | Register | Fenced | Computed | Reused | Applied
    | Dropped | Installed | Initial | Shard | Checkpoint | Resources | Refold | Final | GoesOn | Over | End
    | LastFault
)  # fmt: skip

TYPES: dict[str, type[_Entry]] = {str(t.__struct_config__.tag): t for t in AnyEntry.__args__}
ARITY: dict[str, int] = {kind: 1 + len(t.__struct_fields__) for kind, t in TYPES.items()}


def typed(entry: Entry, number: int = 0) -> Any:
    """The typed view of ``entry``. Raises BadEntry with one clear line; ``number`` counts from 1."""
    if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
        raise BadEntry(f"entry {number}: not [kind, t, ...] but {str(entry)[:80]}")
    kind = entry[0]
    if kind not in TYPES:
        raise BadEntry(f"entry {number}: unknown kind {kind!r}; known: {', '.join(TYPES)}")
    if len(entry) != ARITY[kind]:
        raise BadEntry(f"entry {number}: a {kind!r} has {ARITY[kind]} fields, this one {len(entry)}")
    try:
        return msgspec.convert(entry, TYPES[kind])
    except msgspec.ValidationError as error:
        raise BadEntry(f"entry {number}: bad {kind!r}: {error}; it is {str(entry)[:120]}") from None
