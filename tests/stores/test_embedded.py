"""The embedded store: what every store must do, and what only this one can get wrong."""

from __future__ import annotations

import pytest

from ftruntime.protocol import store as s
from ftruntime.protocol.ids import MemberId
from ftruntime.stores import DamagedLog, DurableRegister, Seat, history_of
from ftruntime.stores import durable as durable_file
from ftruntime.stores.serve import main
from ftruntime.wire import Endpoint

from .served import TOKEN, Place
from .suite import TTL, StoreSuite, cas, heads, record


@pytest.fixture
def place(tmp_path):
    served = Place(tmp_path)
    yield served
    served.kill()


class TestEmbedded(StoreSuite):
    pass


def test_a_member_comes_back_to_a_store_that_was_killed(place):
    member, (first, second) = place.member(), heads(2)
    assert member.ask(cas(None, first)).taken
    place.restart()
    member.until(lambda: not member.client.up)
    member.until(lambda: member.client.up)
    assert member.ask(cas(first, second)).taken


def test_what_was_asked_of_a_store_that_is_away_stays_unanswered(place):
    member = place.member()
    place.kill()
    member.until(lambda: not member.client.up)
    answer = member.send(s.Read(True))
    place.restart()
    member.until(lambda: member.client.up)
    assert member.ask(s.Read(True)) == s.View(None, (), ())
    assert answer() is None


# -- the log -------------------------------------------------------------------------------------


def _written(folder, **options):
    """A register with three heads, a record, a lease, and a seat."""
    kept, before = DurableRegister(folder, **options), None
    for head in heads(3):
        kept.execute(cas(before, head), 1.0)
        before = head
        kept.commit()
    kept.execute(s.Put(record(0, 1)), 2.0)
    kept.execute(s.Renew(MemberId(0, 1), TTL), 3.0)
    kept.sit(Seat(0, 1, 0, Endpoint("::1", 5)))
    kept.commit()
    kept.close()
    return kept


def _same(one, other):
    assert one.register.view() == other.register.view()
    assert one.seats == other.seats


def test_the_register_comes_back_from_its_log(tmp_path):
    _same(_written(tmp_path), DurableRegister(tmp_path))


def test_a_torn_record_is_cut_off_wherever_it_is_torn(tmp_path):
    written = _written(tmp_path / "whole")
    content = (tmp_path / "whole" / "store.wal").read_bytes()
    last = DurableRegister(tmp_path / "whole")
    last.execute(s.Put(record(0, 1, 9)), 4.0)
    last.commit()
    longer = (tmp_path / "whole" / "store.wal").read_bytes()
    for end in range(len(content), len(longer)):
        folder = tmp_path / str(end)
        folder.mkdir()
        (folder / "store.wal").write_bytes(longer[:end])
        _same(written, DurableRegister(folder))
        assert (folder / "store.wal").read_bytes() == content


def test_damage_in_the_middle_is_refused(tmp_path, monkeypatch, capsys):
    _written(tmp_path)
    path = tmp_path / "store.wal"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedLog, match="is damaged at byte 8"):
        DurableRegister(tmp_path)
    monkeypatch.setenv("FTHSDP_TOKEN", TOKEN)
    assert main(["--folder", str(tmp_path), "--port", "0"]) == 1
    assert "damaged at byte 8" in capsys.readouterr().err


def test_a_file_that_is_no_log_is_refused(tmp_path):
    (tmp_path / "store.wal").write_bytes(b"something else")
    with pytest.raises(DamagedLog, match="not a log of a store"):
        DurableRegister(tmp_path)


def test_a_log_that_grew_begins_anew_with_what_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(durable_file, "COMPACT", 2000)
    written = _written(tmp_path)
    assert (tmp_path / "store.wal").stat().st_size < 4000
    _same(written, DurableRegister(tmp_path))


def test_history_is_all_that_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(durable_file, "COMPACT", 2000)
    _written(tmp_path, history=True)
    kinds = [type(carried.request) for carried in history_of(tmp_path)]
    assert kinds == [s.Cas, s.Cas, s.Cas, s.Put, s.Renew]


def test_a_renewal_that_changes_nothing_is_not_written(tmp_path):
    kept = DurableRegister(tmp_path)
    kept.execute(s.Renew(MemberId(0, 1), TTL), 1.0)
    kept.commit()
    size = (tmp_path / "store.wal").stat().st_size
    kept.execute(s.Renew(MemberId(0, 1), TTL), 2.0)
    kept.commit()
    assert (tmp_path / "store.wal").stat().st_size == size


def test_a_later_life_of_a_rank_takes_its_seat(tmp_path):
    kept, endpoint = DurableRegister(tmp_path), Endpoint("127.0.0.1", 1)
    assert kept.sit(Seat(0, 0, 1, endpoint))
    assert not kept.sit(Seat(0, 0, 1, endpoint))
    assert not kept.sit(Seat(0, 0, 0, Endpoint("127.0.0.1", 2)))
    assert kept.sit(Seat(0, 0, 2, Endpoint("127.0.0.1", 3)))


def test_a_store_without_a_token_does_not_serve(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("FTHSDP_TOKEN", raising=False)
    assert main(["--folder", str(tmp_path)]) == 1
    assert "token has 0 characters" in capsys.readouterr().err
