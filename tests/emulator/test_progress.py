"""What is told while a run goes on."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from emulator.progress import LINE_SECONDS, Lines, Live, Progress, one_line, progress, states


class Terminal(io.StringIO):
    def isatty(self):
        return True


def _run(**values):
    known = {
        "now": 3_725.0,
        "steps_committed": 50,
        "rounds": 55,
        "messages": 9,
        "faults_injected": [1, 2],
        "replica_states": ["up", "up", "catching up", "restarting", "down"],
        "effective_training_time": 0.8125,
    }
    return SimpleNamespace(**{**known, **values})


def test_a_line_has_everything():
    line = one_line(_run(), 200, 30.0)
    assert line == (
        "step 50 of 200 (about 0:01:30 left) | virtual time 1:02:05 | "
        "replicas 2 up, 1 catching up, 1 restarting, 1 down | faults so far 2 | effective training time 81.2%"
    )


@pytest.mark.parametrize("done", [0, 200])
def test_no_guess_without_a_pace_or_a_rest(done):
    assert "left" not in one_line(_run(steps_committed=done), 200, 30.0)


def test_states_tell_up_always_and_others_when_there_are_any():
    assert states(["up"] * 12) == "12 up"
    assert states(["down"]) == "0 up, 1 down"
    assert states(["up", "zombie"]) == "1 up, 1 zombie"


def test_lines_come_now_and_then_and_not_each_time():
    now, out = [0.0], io.StringIO()
    lines = Lines(200, out, clock=lambda: now[0])
    for _ in range(40):
        lines.update(_run())
        now[0] += 0.25 * LINE_SECONDS
    assert len(out.getvalue().splitlines()) == 9
    lines.checking(1, 4)
    assert out.getvalue().splitlines()[-1] == "checking the event log: 25% of 4 entries"


def test_building_is_told_at_once():
    out = io.StringIO()
    Lines(200, out).building(98_304)
    assert out.getvalue() == "building 98,304 ranks\n"


def test_a_terminal_sees_a_live_view_with_all_the_numbers():
    out = Terminal()
    with progress(200, stream=out) as told:
        assert isinstance(told, Live)
        told.building(768)
        told.update(_run())
        told.checking(1, 2)
    text = out.getvalue()
    for words in ("768 ranks", "50 of 200", "1:02:05", "2 up, 1 catching up", "81.2%", "50% of 2 entries"):
        assert words in text, words


def test_what_fits_the_stream_is_chosen():
    assert isinstance(progress(1, stream=io.StringIO()), Lines)
    quiet = progress(1, quiet=True, stream=Terminal())
    assert type(quiet) is Progress
    with quiet as told:
        told.building(1)
        told.update(_run())
        told.checking(0, 0)


def test_nothing_is_told_on_standard_output(capsys):
    with progress(200) as told:
        told.building(1)
    captured = capsys.readouterr()
    assert captured.out == "" and "building 1 ranks" in captured.err
