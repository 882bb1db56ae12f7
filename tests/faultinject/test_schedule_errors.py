"""Whatever is wrong with a schedule is told in one line: the place, the value, the mend."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultinject import KINDS, JobShape, Schedule, ScheduleError, check, dump, dumps, load, loads, schedule
from faultinject.fields import FIELDS
from faultinject.schedule import MAX_FAULTS
from faultinject.vocabulary import Crash, Hang, StoreSlow

SHAPE = JobShape(replicas=12, ranks_per_replica=20)
PHASES = "plan, forward, backward, ftar, vote, commit, apply, fetch, join"
EITHER = 'give one of "at", "step" and "phase", or "point"'
PAIR = "write [replica, position], two integers, 0 or more, as [3, 17]"
SECONDS = "does not fit; write seconds, more than 0, as 30"

# What is written as the only fault, and the line that comes back.
FAULTS = [
    ("crash", 'faults[0]: "crash" is not a fault; write an object, as {"kind": "crash", ...}'),
    ({}, f"faults[0].kind: missing; choose one of {', '.join(KINDS)}"),
    ({"kind": "crsh"}, 'faults[0].kind: "crsh" is not a kind of fault; did you mean crash?'),
    ({"kind": "xyz"}, f'faults[0].kind: "xyz" is not a kind of fault; choose one of {", ".join(KINDS)}'),
    (
        {"kind": {"\x85": 1}},
        f'faults[0].kind: {{"\\x85": 1}} is not a kind of fault; choose one of {", ".join(KINDS)}',
    ),
    ({"kind": [1]}, f"faults[0].kind: [1] is not a kind of fault; choose one of {', '.join(KINDS)}"),
    (
        {"kind": "pause", "replica": 1, "at": 1, "durration": 2},
        'faults[0].durration: "durration" is not a field of pause; did you mean duration?',
    ),
    (
        {"kind": "store_empty", "at": 1, "q\n": 2},
        'faults[0]."q\\n": "q\\n" is not a field of store_empty; choose one of kind, at, step, phase, '
        "point, cause",
    ),
    (
        {"kind": "slow", "replica": 1, "at": 1, "duration": 2},
        "faults[0].factor: missing; slow needs it: write how many times slower, a number more than 1, as 2.5",
    ),
    (
        {"kind": "crash", "rank": [12, 0], "at": 1},
        "faults[0].rank: [12, 0] names replica 12, but the job has replicas 0 to 11; choose one of them",
    ),
    (
        {"kind": "crash", "rank": [11, 20], "at": 1},
        "faults[0].rank: [11, 20] names position 20, but a replica has positions 0 to 19; choose one of them",
    ),
    (
        {"kind": "crash", "host": [11, 3], "at": 1},
        "faults[0].host: [11, 3] names host 3, but a replica has hosts 0 to 2; choose one of them",
    ),
    (
        {"kind": "zombie", "replica": 12, "delay": 1, "at": 1},
        "faults[0].replica: 12 names replica 12, but the job has replicas 0 to 11; choose one of them",
    ),
    ({"kind": "hang", "rank": [0, -1], "at": 1}, f"faults[0].rank: [0, -1] does not fit; {PAIR}"),
    ({"kind": "hang", "rank": [0, 1, 2], "at": 1}, f"faults[0].rank: [0, 1, 2] does not fit; {PAIR}"),
    ({"kind": "hang", "rank": [0, "a"], "at": 1}, f'faults[0].rank: [0, "a"] does not fit; {PAIR}'),
    ({"kind": "hang", "rank": None, "at": 1}, f"faults[0].rank: null does not fit; {PAIR}"),
    (
        {"kind": "hang", "rank": [0, 1], "at": 1, "variant": "stalls"},
        'faults[0].variant: "stalls" does not fit; write never_joins or joins_and_stalls',
    ),
    (
        {"kind": "crash", "at": 1},
        "faults[0]: crash has no target; give exactly one of rank or host or rack or replica or building",
    ),
    (
        {"kind": "disk_full", "rank": [0, 0], "host": [0, 0], "at": 1, "duration": 1},
        "faults[0]: disk_full has rank and host; give exactly one of rank or host",
    ),
    (
        {"kind": "crash", "rack": [11, 2], "at": 1},
        "faults[0].rack: [11, 2] names rack 2, but a replica has racks 0 to 1; choose one of them",
    ),
    (
        {"kind": "crash", "building": 12, "at": 1},
        "faults[0].building: 12 names building 12, but the job has buildings 0 to 11; choose one of them",
    ),
    (
        {"kind": "checkpoint_damaged", "position": 20, "at": 1},
        "faults[0].position: 20 names position 20, but a replica has positions 0 to 19; choose one of them",
    ),
    (
        {"kind": "link_flap", "link": [[0, 1], [1, 2]], "at": 1, "duration": 1},
        "faults[0].link: [[0, 1], [1, 2]] is no link; write two ranks of one position, as [[3, 17], [4, 17]]",
    ),
    (
        {"kind": "link_flap", "link": [[0, 1], [12, 1]], "at": 1, "duration": 1},
        "faults[0].link: [12, 1] names replica 12, but the job has replicas 0 to 11; choose one of them",
    ),
    (
        {"kind": "message_loss", "groups": [[0], [1, "store"]], "share": 0.5, "at": 1, "duration": 1},
        'faults[0].groups: [[0], [1, "store"]] names "store"; message_loss is between replicas alone',
    ),
    (
        {"kind": "message_loss", "rank": [0, 1], "share": 1.5, "at": 1, "duration": 1},
        "faults[0].share: 1.5 does not fit; write a share of the messages, above 0 and at most 1, as 0.01",
    ),
    (
        {"kind": "clock_jump", "rank": [0, 1], "jump": 0, "at": 1},
        "faults[0].jump: 0.0 does not fit; write seconds, more or less than 0, as -30",
    ),
    (
        {"kind": "clock_skew", "rank": [0, 1], "rate": 11, "duration": 5, "at": 1},
        "faults[0].rate: 11.0 does not fit; write how fast clocks run, a number from 0.1 to 10, as 1.01",
    ),
    (
        {"kind": "checkpoint_damaged", "position": 1, "damage": "burnt", "at": 1},
        'faults[0].damage: "burnt" does not fit; write torn, truncated or missing',
    ),
    (
        {"kind": "store_empty", "at": -5},
        "faults[0].at: -5.0 does not fit; write seconds from the start of the job, 0 or more, as 12.5",
    ),
    (
        {"kind": "store_empty", "at": "soon"},
        'faults[0].at: "soon" does not fit; write seconds from the start of the job, 0 or more, as 12.5',
    ),
    ({"kind": "store_empty"}, f"faults[0]: store_empty has no onset; {EITHER}"),
    (
        {"kind": "store_empty", "at": 5, "step": 2, "phase": "vote"},
        f"faults[0].step: 2 stands beside at 5.0; {EITHER}",
    ),
    (
        {"kind": "store_empty", "at": 5, "phase": "vote"},
        f'faults[0].phase: "vote" stands beside at 5.0; {EITHER}',
    ),
    (
        {"kind": "store_empty", "step": 2},
        f"faults[0].phase: missing beside step 2; write one of {PHASES}",
    ),
    (
        {"kind": "store_empty", "phase": "vote"},
        'faults[0].step: missing beside phase "vote"; write a step number, an integer, 0 or more',
    ),
    (
        {"kind": "store_empty", "point": "vote.yess"},
        'faults[0].point: "vote.yess" is not a fault point; did you mean vote.yes?',
    ),
    (
        {"kind": "store_empty", "point": "vote.yes", "at": 5},
        f'faults[0].at: 5.0 stands beside point "vote.yes"; {EITHER}',
    ),
    (
        {"kind": "store_empty", "point": "vote.yes", "step": 2, "phase": "vote"},
        f'faults[0].phase: "vote" stands beside point "vote.yes"; {EITHER}',
    ),
    (
        {"kind": "store_empty", "step": 2, "phase": "vot"},
        f'faults[0].phase: "vot" does not fit; write one of {PHASES}',
    ),
    (
        {"kind": "store_empty", "step": 2.5, "phase": "vote"},
        "faults[0].step: 2.5 does not fit; write a step number, an integer, 0 or more",
    ),
    (
        {"kind": "store_empty", "step": -2, "phase": "vote"},
        "faults[0].step: -2 does not fit; write a step number, an integer, 0 or more",
    ),
    ({"kind": "store_away", "at": 1, "duration": 0}, f"faults[0].duration: 0.0 {SECONDS}"),
    ({"kind": "store_away", "at": 1, "duration": True}, f"faults[0].duration: true {SECONDS}"),
    ({"kind": "launcher_delay", "replica": 1, "at": 1, "seconds": -1}, f"faults[0].seconds: -1.0 {SECONDS}"),
    ({"kind": "zombie", "replica": 1, "at": 1, "delay": 0}, f"faults[0].delay: 0.0 {SECONDS}"),
    (
        {"kind": "store_slow", "at": 1, "duration": 1, "factor": 1},
        "faults[0].factor: 1.0 does not fit; write how many times slower, a number more than 1, as 2.5",
    ),
    (
        {"kind": "store_lost_answer", "at": 1, "count": 0},
        "faults[0].count: 0 does not fit; write an integer, 1 or more",
    ),
    (
        {"kind": "store_restored_old", "at": 1, "versions": 1.5},
        "faults[0].versions: 1.5 does not fit; write an integer, 1 or more",
    ),
]

GROUPS = [
    ([[0, 1]], False, "[[0, 1]] separates nothing; write two or more groups, none empty"),
    ([[0, 1], []], False, "[[0, 1], []] separates nothing; write two or more groups, none empty"),
    ([[0], [1], [2]], True, "[[0], [1], [2]] are 3 groups; one_way needs exactly 2"),
    ([[0], [1, 0]], False, "[[0], [1, 0]] names 0 twice; name each party once"),
    (
        [["store"], ["store"]],
        False,
        '[["store"], ["store"]] names "store" twice; name each party once',
    ),
    (
        [[0], ["shop"]],
        False,
        '[[0], ["shop"]] does not fit; write lists of replica numbers or "store", as [[0, 1], [2, "store"]]',
    ),
    (
        [[0], [-1]],
        False,
        '[[0], [-1]] does not fit; write lists of replica numbers or "store", as [[0, 1], [2, "store"]]',
    ),
    (
        [[0], [12]],
        False,
        "[[0], [12]] names replica 12, but the job has replicas 0 to 11; choose one of them",
    ),
]

TEXTS = [
    ("[1]", 'schedule: [1] is not a schedule; write an object, as {"schema": 1, "faults": [...]}'),
    ("{}", 'schema: missing; write "schema": 1'),
    ('{"schema": 2, "faults": []}', "schema: 2 is not known to this release; write 1"),
    ('{"schema": true, "faults": []}', "schema: true is not known to this release; write 1"),
    ('{"schema": 1}', 'faults: missing; write "faults": [...], which may be empty'),
    ('{"schema": 1, "faults": {}}', "faults: {} is not a list; write a list of faults"),
    (
        '{"schema": 1, "faults": [], "fault": 1}',
        'fault: "fault" is not a part of a schedule; did you mean faults?',
    ),
    (
        '{"schema": 1, "faults": [], "job": 3}',
        'job: 3 is not the shape of a job; write an object, as {"replicas": 12, "ranks_per_replica": 64}',
    ),
    (
        '{"schema": 1, "faults": [], "job": {"replicas": 3}}',
        'job.ranks_per_replica: missing; write an object, as {"replicas": 12, "ranks_per_replica": 64}',
    ),
    (
        '{"schema": 1, "faults": [], "job": {"replica": 3}}',
        'job.replica: "replica" is not a size of a job; did you mean replicas?',
    ),
    (
        '{"schema": 1, "faults": [], "job": {"replicas": 0, "ranks_per_replica": 1}}',
        "job.replicas: 0 does not fit; write an integer, 1 or more",
    ),
    (
        '{"schema": 1, "faults": [], "job": {"replicas": 2, "ranks_per_replica": 1, "min_replicas": 3}}',
        "job.min_replicas: 3 is more than the job's replicas, 2; write 1 to 2",
    ),
    ("", "not JSON: input data was truncated; mend the syntax"),
    ('{"schema": 1,\n "faults" []}', "not JSON: line 2, column 11, at '[]}'; mend the syntax there"),
    ('{"schema": 1e999}', "not JSON: number out of range; mend the syntax"),
    ('"\ud800"', "not JSON: invalid utf-8 encoded string; mend the syntax"),
    (b'"\xff"', "not JSON: invalid utf-8 encoded string; mend the syntax"),
    ("[" * 100_000, "not JSON: nested too deep; write a list of flat faults"),
]


def refusal(text: str | bytes, shape: JobShape | None = SHAPE) -> str:
    with pytest.raises(ScheduleError) as caught:
        loads(text, shape)
    return str(caught.value)


def schedule_of(*faults: object) -> str:
    return json.dumps({"schema": 1, "faults": faults})


@pytest.mark.parametrize(("fault", "line"), FAULTS)
def test_a_wrong_fault_is_told_in_one_line(fault, line):
    assert refusal(schedule_of(fault)) == line


@pytest.mark.parametrize(("groups", "one_way", "line"), GROUPS)
def test_wrong_groups_are_told_in_one_line(groups, one_way, line):
    fault = {"kind": "partition", "groups": groups, "one_way": one_way, "duration": 5, "at": 1}
    assert refusal(schedule_of(fault)) == f"faults[0].groups: {line}"


@pytest.mark.parametrize(("text", "line"), TEXTS)
def test_a_wrong_schedule_is_told_in_one_line(text, line):
    assert refusal(text) == line


def test_the_place_counts_from_zero():
    good = {"kind": "crash", "rank": [0, 0], "at": 1}
    assert refusal(schedule_of(good, good, {**good, "at": -1})).startswith("faults[2].at: -1.0 does not fit;")


def test_targets_are_judged_by_the_run_and_not_by_the_file():
    fault = {"kind": "crash", "rank": [5, 0], "at": 1}
    text = json.dumps({"schema": 1, "job": {"replicas": 2, "ranks_per_replica": 1}, "faults": [fault]})
    assert refusal(text, None).startswith(
        "faults[0].rank: [5, 0] names replica 5, but the job has replicas 0 to 1;"
    )
    assert loads(text, SHAPE).faults == (Crash(rank=(5, 0), at=1.0),)


def test_a_number_longer_than_any_float_is_refused():
    huge = "1" + "0" * 400
    text = f'{{"schema": 1, "faults": [{{"kind": "store_empty", "step": {huge}, "phase": "vote"}}]}}'
    assert loads(text).faults[0].step == 10**400
    assert refusal(text.replace('"step"', '"at"')).startswith("faults[0].at: 1000000000")


def test_too_many_faults_are_refused():
    text = schedule_of(*[{"kind": "store_empty", "at": 1}] * (MAX_FAULTS + 1))
    assert refusal(text) == "faults: 100001 are too many; write at most 100000"


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "broken.json").write_text("[")
    for name, why in (
        ("gone.json", "no such file; check the path"),
        ("", "is a directory; name a schedule file in it"),
        ("broken.json", "not JSON: input data was truncated; mend the syntax"),
        ("broken.json/inner", "cannot be read (Not a directory); check the path and its permissions"),
    ):
        path = tmp_path / name
        with pytest.raises(ScheduleError) as caught:
            load(path)
        assert str(caught.value) == f"{path}: {why}"


def test_a_file_beyond_the_bound_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "MAX_BYTES", 10)
    (tmp_path / "long.json").write_text(" " * 11)
    with pytest.raises(ScheduleError) as caught:
        load(tmp_path / "long.json")
    why = "more than 10 bytes are too many for a schedule; write fewer faults"
    assert str(caught.value) == f"{tmp_path / 'long.json'}: {why}"


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ScheduleError) as caught:
        dump(Schedule(), tmp_path / "no" / "such.json")
    why = "cannot be written (No such file or directory); choose another path"
    assert str(caught.value) == f"{tmp_path / 'no' / 'such.json'}: {why}"


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (Crash(rank=(0, 0), at=math.inf), "faults[0].at: inf does not fit; write seconds from"),
        (StoreSlow(factor=math.nan, duration=1.0, at=1.0), "faults[0].factor: nan does not fit; write how"),
        (Crash(rank="x", at=1.0), 'faults[0].rank: "x" does not fit; write [replica, position]'),
        (Hang(rank=(0, object), at=1.0), "faults[0].rank: [0, "),
    ],
)
def test_what_a_program_built_wrong_is_neither_checked_nor_dumped(fault, line):
    for refuse in (check, dumps):
        with pytest.raises(ScheduleError) as caught:
            refuse(Schedule(faults=(fault,)))
        assert str(caught.value).startswith(line)


def test_a_schema_of_another_release_is_not_dumped():
    with pytest.raises(ScheduleError, match="schema: 7 is not known to this release; write 1"):
        dumps(Schedule(schema=7))


def test_every_field_of_every_kind_is_explained():
    used = {name for cls in KINDS.values() for name in cls.__struct_fields__}
    assert used == set(FIELDS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    kind=st.sampled_from(sorted(KINDS)) | json_values,
    fields=st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(), json_values, max_size=5),
)
def test_any_json_is_a_schedule_or_one_line(kind, fields):
    try:
        built = loads(schedule_of({**fields, "kind": kind}), SHAPE)
    except ScheduleError as error:
        assert str(error).startswith("faults[0]")
        assert len(str(error).splitlines()) == 1
    else:
        assert loads(dumps(built), SHAPE) == built
