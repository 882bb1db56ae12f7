"""The event log: format, hash, bounds, and a disk that fails."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import msgspec
import pytest

from conformance.checker import LogReader
from ftruntime.log import eventlog
from ftruntime.log.eventlog import EventLog, LogError, combine

ENTRIES = [
    ["meta", 0.0, {"schema": 1, "job": "j"}],
    ["start", 0.0, 1, 1, "begin"],
    ["applied", 2.5, 1, 1, 7, 3, True, "ab", 2**64 - 1],
    ["applied", 2.5, 0, 1, 7, 3, True, "ab", 5],
    ["head", 2.6, 1, 1, 2, "running", None],
]


def _blocks(path):
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack_from("<I", data)
        found.append(msgspec.msgpack.decode(zlib.decompress(data[4 : 4 + length])))
        data = data[4 + length :]
    return found


def _log(entries, path=None, keep=0):
    log = EventLog(path, keep)
    for entry in entries:
        log(entry)
    log.close()
    return log


def test_what_is_written_is_what_was_logged(tmp_path):
    path = tmp_path / "events.log"
    log = _log(ENTRIES, path)
    assert _blocks(path) == [ENTRIES]
    assert (log.entries, log.bytes_written) == (len(ENTRIES), path.stat().st_size)


def test_blocks_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(eventlog, "BLOCK_ENTRIES", 2)
    path = tmp_path / "events.log"
    log = _log(ENTRIES, path)
    assert [len(block) for block in _blocks(path)] == [2, 2, 1]
    assert log.trace_hash == _log(ENTRIES).trace_hash, "blocks do not enter the hash"


def test_a_log_without_a_path_keeps_the_last_entries_only():
    log = _log(ENTRIES, keep=2)
    assert list(log.kept) == ENTRIES[-2:]
    assert log.bytes_written == 0 and log.entries == len(ENTRIES)


def test_the_hash_does_not_depend_on_order_or_workers():
    shuffled = random.Random(1).sample(ENTRIES, len(ENTRIES))
    assert _log(shuffled).trace_hash == _log(ENTRIES).trace_hash
    workers = [_log(ENTRIES[:2]).sums(), _log(ENTRIES[2:]).sums()]
    assert combine(workers) == combine(workers[::-1]) == _log(ENTRIES).trace_hash


@pytest.mark.parametrize("at", range(len(ENTRIES)))
def test_the_hash_depends_on_every_entry(at):
    whole = _log(ENTRIES).trace_hash
    later = [ENTRIES[at][0], ENTRIES[at][1] + 1e-9, *ENTRIES[at][2:]]
    others = ENTRIES[:at] + ENTRIES[at + 1 :]
    assert (
        len(
            {
                whole,
                _log(others).trace_hash,
                _log([*others, later]).trace_hash,
                _log([*ENTRIES, later]).trace_hash,
            }
        )
        == 4
    )


def test_sums_tell_which_replica_differs():
    changed = [*ENTRIES[:2], [*ENTRIES[2][:-1], 1], *ENTRIES[3:]]
    before, after = _log(ENTRIES).sums(), _log(changed).sums()
    assert [replica for replica in before if before[replica] != after[replica]] == [1]


def test_a_folder_that_is_not_there_is_one_line():
    with pytest.raises(LogError, match=r"cannot create the event log .*no/such.*another run directory"):
        EventLog(Path("no/such/folder/events.log"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_one_line(monkeypatch):
    monkeypatch.setattr(eventlog, "BLOCK_ENTRIES", 2)
    with pytest.raises(
        LogError, match=r"cannot write the event log /dev/full: No space left .*0 bytes"
    ) as caught:
        _log(ENTRIES, Path("/dev/full"))
    assert "\n" not in str(caught.value)


def test_what_was_flushed_is_read_though_the_writer_goes_on_and_is_killed_in_a_block(tmp_path):
    path = tmp_path / "events.log"
    log = EventLog(path)
    log(["meta", 0.0, {}])
    log.flush()
    whole = path.read_bytes()
    assert list(LogReader(path)) == [["meta", 0.0, {}]]
    log(["last_fault", 1.0])
    log.close()
    assert len(path.read_bytes()) > len(whole)
    for killed_after in (1, 4, 9):
        path.write_bytes(whole + path.read_bytes()[len(whole) :][:killed_after])
        eventlog.whole_blocks(path)
        assert path.read_bytes() == whole
    eventlog.whole_blocks(tmp_path / "never begun")
