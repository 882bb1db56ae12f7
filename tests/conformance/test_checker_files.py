"""Reading logs from disk: whole, cut off, damaged; and entries that are not of the schema."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from conformance.checker import BadEntry, CorruptLog, LogReader, check, check_file, narrate
from conformance.checker.entries import ARITY, TYPES
from conformance.checker.fingerprint import after, all_gradients, gradients, initial, mix
from conformance.checker.fingerprint import pack as pack_numbers
from conformance.checker.reader import write

from .log_builder import G, M, good_log
from .log_builder import mix as other_mix
from .planting import pick


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "events.log"
    write(file, good_log(), block=100)
    return file


def test_a_log_comes_back_from_disk_as_it_was(path):
    reader = LogReader(path)
    assert list(reader) == good_log()
    assert reader.truncated == ""
    assert check_file(path).ok


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_a_log_that_was_cut_off_is_said_to_be(path, cut):
    path.write_bytes(path.read_bytes()[:-cut])
    result = check_file(path)
    assert "cut off" in result.truncated and not result.ok
    assert result.steps_committed > 10


def test_a_cut_in_the_length_itself(path):
    path.write_bytes(path.read_bytes() + b"\1\0")
    assert "cut off" in check_file(path).truncated


def test_a_log_without_its_end_is_not_a_pass():
    result = check(good_log()[:-2])
    assert not result.ok and "no 'end'" in " ".join(result.failures)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xff\xff\xff" + b"x" * 50, "claims"),
        (b"\4\0\0\0abcd", "does not inflate"),
        ((10).to_bytes(4, "little") + zlib.compress(b"\x01\x02", 1), "not an array"),
        (b"\0\0\0\0", "claims 0"),
    ],
)
def test_a_damaged_log_is_one_clear_line(tmp_path, content, message):
    file = tmp_path / "events.log"
    file.write_bytes(content)
    with pytest.raises(CorruptLog, match=message) as raised:
        check_file(file)
    assert "block 1 at byte 0" in str(raised.value) and "\n" not in str(raised.value)


def test_a_bit_flip_is_not_read_over(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 16
    path.write_bytes(raw)
    with pytest.raises((CorruptLog, BadEntry)):
        check_file(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda log: log.insert(9, ["dance", 1.0]), "unknown kind 'dance'"),
        (lambda log: log.insert(9, []), "not \\[kind"),
        (lambda log: pick(log, "computed").pop(), "has 11 fields, this one 10"),
        (lambda log: pick(log, "applied").append(1), "has 16 fields, this one 17"),
        (lambda log: pick(log, "head").pop(), "has 10 fields"),
        (lambda log: pick(log, "computed").__setitem__(4, 7), "position 7 is not below 2"),
        (lambda log: pick(log, "computed").__setitem__(4, -1), "position -1"),
        (lambda log: pick(log, "computed").__setitem__(2, 9), "replica 9 is not below 3"),
        (lambda log: pick(log, "register").__setitem__(2, 9), "replica 9 is not below 3"),
        (lambda log: pick(log, "computed").__setitem__(10, "x"), "bad 'computed'"),
        (lambda log: pick(log, "head")[8].pop("divisor"), "bad 'head'.*divisor"),
        (lambda log: pick(log, "head")[8]["contributors"].append([9, 1]), "replica 9 is not below 3"),
        (lambda log: log[0][2].pop("streams"), "entry 1: bad 'meta'.*streams"),
        (lambda log: log[0][2].__setitem__("schema", 2), "schema 2"),
        (lambda log: log.pop(0), "begins with 'meta'"),
        (lambda log: log.clear(), "empty"),
    ],
)
def test_an_entry_out_of_schema_is_one_clear_line(change, message):
    log = good_log()
    change(log)
    with pytest.raises(BadEntry, match=message) as raised:
        check(log)
    assert "\n" not in str(raised.value)


def test_every_kind_has_its_number_of_fields():
    assert set(ARITY) == set(TYPES) and ARITY["computed"] == 11 and ARITY["end"] == 4
    assert ARITY["last_fault"] == 2 and ARITY["head"] == 10 and ARITY["dropped"] == 6


def test_the_arithmetic_is_the_schemas():
    assert [mix(x) for x in (0, 1, M, M + 2)] == [other_mix(x) for x in (0, 1, M, M + 2)]
    assert initial(7, 3) == other_mix(7 * G + 4)
    seed = 12345 + 2 * G + 1
    assert gradients(99, 12345, 2, 2)[0] == other_mix(99 ^ other_mix(seed))
    assert gradients(99, 12345, 2, 2)[1] == other_mix(99 ^ other_mix(seed + 0xD1B54A32D192ED03))
    assert after(5, [1, 2], 3, 0.0, []) == other_mix(5 ^ other_mix(1 + 2 * 3 + 3 * G))


@pytest.mark.parametrize("bucket", [0, 1, 7])
def test_many_gradients_at_once_are_the_same_as_one_by_one(bucket):
    numbers = [0, 1, M, M - 1, 1 << 63, *(other_mix(n) for n in range(40))]
    positions = list(range(len(numbers)))
    together = all_gradients(numbers, numbers[::-1], positions, bucket)
    singly = [
        gradients(s, c, p, 8)[bucket] for s, c, p in zip(numbers, numbers[::-1], positions, strict=True)
    ]
    assert together == pack_numbers(singly)


@pytest.mark.parametrize("wrong", [-1, M + 1, "x", None, 1.5])
def test_what_is_no_number_of_64_bits_is_not_packed(wrong):
    assert pack_numbers([1, wrong]) is None and all_gradients([1, wrong], [1, 1], [0, 1], 0) is None


def test_entries_survive_msgpack(path):
    first = next(iter(LogReader(path)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(first)) == first


def test_a_story_is_short_and_names_the_culprit():
    log = good_log()
    pick(log, "applied", lambda e: e[2:5] == [2, 1, 1], 9)[9][0] ^= 1
    violation = check(log).invariants["gradient"].violations[0]
    story = narrate(log, violation)
    assert 3 < len(story) <= 40
    assert "2.1" in story[-1] and "gradient" in story[-1]
    assert any("head" in line for line in story)


def test_a_story_is_cut_to_the_lines_asked_for():
    log = good_log()
    log[-1][1] += 100.0
    violation = check(log).invariants["progress"].violations[0]
    story = narrate(log, violation, lines=10)
    assert len(story) <= 10 and story[-1].startswith("=> progress")
