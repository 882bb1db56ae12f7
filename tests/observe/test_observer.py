"""What is derived from events and effects, and where it goes; no process, no clock."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from emulator.stalls import attribute
from ftruntime.observe import Board, Failure, Observe, Observer, Report, StallClock, observed
from ftruntime.observe.command import status as status_command
from ftruntime.observe.log import Log
from ftruntime.observe.report import MOST_BYTES
from ftruntime.observe.status import status
from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import store as s
from ftruntime.protocol.errors import ConfigError, ErrorClass, ErrorReport
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.record import Stance
from tests.protocol.builders import everyone, head_at, job, word

CONFIG = job()


class Watched:
    """An observer with a clock of its own, and all that it told."""

    def __init__(self, *sinks):
        self.time, self.told = 0.0, []
        self.observer = Observer(
            0, 0, lambda: MemberId(0, 1), 4, [self.told.append, *sinks], lambda: self.time, lambda: self.time
        )

    def head(self, step):
        self.observer.event(e.Watched(s.HeadChanged(head_at(CONFIG, step))))

    def events(self):
        return [happening.event for happening in self.told]


def test_commits_failures_and_fetches_are_told():
    seen = Watched()
    for step in (1, 2, 3):
        seen.time = float(step)
        seen.head(step)
    seen.observer.event(e.PeerLost(2, 1, "connection refused"))
    seen.observer.event(e.PeerLost(2, 1, "connection refused"))
    seen.observer.effects([f.Stage("a" * 32, 1), f.Stage("a" * 32, 3)])
    assert seen.events().count("commit") == 2
    assert seen.events().count("peer-lost") == 1, "the two lanes to one process are one failure"
    report = seen.observer.report()
    assert (report.step, report.staged, report.ranges, report.step_seconds) == (3, 2, 4, 1.0)
    assert report.failures[0].culprit == 2 and "refused" in report.failures[0].cause
    seen.observer.effects([f.InstallStaged(3, "a" * 32)])
    assert (seen.observer.report().phase, seen.observer.report().ranges) == ("install", 0)


def test_a_round_that_is_given_up_names_culprit_and_cause():
    seen = Watched()
    seen.head(2)
    seen.observer.effects([f.Note("sealing", 3, "replica 2 made no progress for 2 s")])
    record = word(CONFIG, MemberId(0, 1), 2, 3, stance=Stance.NO, accuses=(2,))
    seen.observer.event(e.Watched(s.RecordChanged(record)))
    assert [(x.culprit, x.cause) for x in seen.observer.report().failures] == [
        (2, "replica 2 made no progress for 2 s")
    ]
    other = word(CONFIG, MemberId(1, 1), 2, 3, stance=Stance.NO, accuses=(2,))
    seen.observer.event(e.Watched(s.RecordChanged(other)))
    assert len(seen.observer.report().failures) == 1 and seen.events()[-1] == "accused"


def test_an_old_head_is_not_news():
    seen = Watched()
    seen.head(3)
    seen.head(2)
    assert seen.observer.report().step == 3 and "commit" not in seen.events()


# (seconds, what, round): what happened to a job; c: commit, f: fault, x: close, w: work
STORIES = {
    "quiet": [(1, "c", 1), (2, "c", 2), (3, "c", 3)],
    "killed": [(1, "c", 1), (2, "c", 2), (3, "c", 3), (3.5, "f", 4), (5, "x", 4), (5.5, "w", 5), (7, "c", 5)],
    "late effect": [
        (1, "c", 1),
        (2, "c", 2),
        (2.9, "f", 3),
        (3, "c", 3),
        (6, "x", 4),
        (6.2, "w", 5),
        (8, "c", 5),
    ],
    "slow": [(1, "c", 1), (2, "c", 2), (3, "c", 3), (9, "c", 4)],
}


@pytest.mark.parametrize("name", STORIES)
def test_lost_time_is_what_the_event_log_says(name):
    """The live clock and the emulator's account of a whole log agree."""
    clock, entries = StallClock(), [["meta", 0.0, {"replicas": 2}], _head(0.0, 1, None)]
    clock.commit(0.0, everyone(CONFIG))
    entries += [_head(0.0, 1, None), _head(0.0, 2, (0, "committed"))]
    for time, what, round in STORIES[name]:
        if what == "c":
            clock.commit(time, everyone(CONFIG))
            entries.append(_head(time, round + 2, (round, "committed")))
        elif what == "f":
            clock.fault(time)
            entries.append(["fault", time, {}])
        elif what == "x":
            clock.close(time, round)
            entries.append(_head(time, round + 2, (round, "closed")))
        else:
            clock.work(time, round)
            entries.append(["computed", time, 0, 1, 0, round + 1])
    found = attribute(entries, STORIES[name][-1][2])
    assert clock.lost == pytest.approx(found.lost)
    assert (sum(clock.lost.values()) > 1) is (name != "quiet")
    assert clock.expected == pytest.approx(found.expected)


def _head(time, opened, closed):
    plan = {"contributors": [[0, 1], [1, 1]], "catchers": []}
    outcome = (
        None if closed is None else {"round": closed[0] + 1, "outcome": closed[1], "step_after": closed[0]}
    )
    return ["head", time, 0, 0, opened, 0, 0, outcome, plan, None]


@pytest.mark.parametrize("form", ["json", "human"])
def test_the_log_has_a_line_for_each_happening(tmp_path, form):
    path = tmp_path / "log"
    log = Log(str(path), form)
    seen = Watched(log)
    seen.head(1)
    seen.observer.event(e.LocalError(_report("no space left on device")))
    log.close()
    lines = path.read_text().splitlines()
    assert len(lines) == len(seen.told)
    if form == "json":
        last = json.loads(lines[-1])
        assert (last["event"], last["culprit"], last["cause"]) == ("own-fault", 0, "no space left on device")
    else:
        assert "own-fault" in lines[-1] and "no space left" in lines[-1]


def _report(reason):
    return ErrorReport(ErrorClass.LOCAL_FATAL, reason)


def test_spans_nest_phases_in_rounds():
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    from ftruntime.observe.spans import Spans

    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    spans = Spans(provider)
    seen = Watched(spans)
    seen.head(1)
    seen.observer.effects([f.Note("begin", 2), f.Note("voted", 2)])
    seen.observer.event(e.PeerLost(1, 1, "refused"))
    seen.head(2)
    names = [span.name for span in exporter.get_finished_spans()]
    assert names == ["fthsdp.begin", "fthsdp.voted", "fthsdp.round"]
    begun, _, whole = exporter.get_finished_spans()
    assert begun.parent.span_id == whole.context.span_id
    assert whole.attributes["fthsdp.outcome"] == "committed"
    assert [event.name for event in whole.events] == ["peer-lost"]


def test_a_board_is_bounded():
    board = Board()
    report = Report("leader", 1, 1, 0.0, "compute")
    assert board.put(report) and board.put(report) and len(board.all()) == 1
    large = Report("leader", 2, 1, 0.0, "x" * MOST_BYTES)
    assert not board.put(large) and len(board.all()) == 1


def test_status_merges_what_several_saw():
    head = head_at(CONFIG, 2)
    members = everyone(CONFIG)
    view = s.View(head, (), tuple(members[:-1]))
    gone = members[-1].replica
    failure = Failure(5.0, 3, gone, "was ended by SIGKILL")
    reports = [
        Report("launcher", gone, 1, 5.0, "resting", failures=(failure,)),
        Report("leader", 0, 1, 5.0, "compute", step=2, failures=(failure,)),
    ]
    found = status(view, reports)
    assert [r["state"] for r in found["replicas"]] == ["up"] * (len(members) - 1) + ["down"]
    assert found["replicas"][gone]["cause"] == "was ended by SIGKILL"
    assert [f["seen_by"] for f in found["failures"]] == [["launcher", "replica 0"]]
    assert status(s.View(None, (), ()), [])["status"] == "empty"


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"FTHSDP_METRICS_PORT": "many"}, "FTHSDP_METRICS_PORT"),
        ({"FTHSDP_METRICS_PORT": "65536"}, "FTHSDP_METRICS_PORT"),
        ({"FTHSDP_LOG_FORM": "xml"}, "FTHSDP_LOG_FORM"),
        ({"FTHSDP_STATUS_SECONDS": "-1"}, "FTHSDP_STATUS_SECONDS"),
    ],
)
def test_bad_settings_are_refused_by_name(variables, word):
    with pytest.raises(ConfigError, match=word):
        observed(variables)


def test_settings_are_off_by_default_and_ports_differ_by_process():
    assert observed({}) == Observe() and not Observe().metrics_port and not Observe().log
    assert observed({"FTHSDP_METRICS_PORT": "9000"}, 5).metrics_port == 9005


@pytest.mark.parametrize(
    ("where", "code", "word"),
    [("nowhere", 2, "neither HOST:PORT"), (".", 2, "connect.json"), ("127.0.0.1:1", 1, "does not answer")],
)
def test_status_says_in_one_line_what_is_wrong(where, code, word, monkeypatch, tmp_path):
    monkeypatch.setenv("FTHSDP_TOKEN", "a token of the tests, long enough")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(status_command, [where])
    assert (done.exit_code, "Traceback" in done.output) == (code, False)
    assert word in done.output
