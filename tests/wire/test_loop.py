"""The loop: what other threads hand over, timers, and sleep."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ftruntime.wire import Loop

ROOT = Path(__file__).resolve().parents[2]


def test_what_threads_hand_over_comes_in_each_threads_order():
    loop, heard = Loop(), []

    def hand_over(name):
        for number in range(1000):
            loop.call(lambda number=number: heard.append((name, number, threading.get_ident())))

    threads = [threading.Thread(target=hand_over, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    while len(heard) < 2000:
        loop.turn()
    assert {ident for _, _, ident in heard} == {threading.get_ident()}
    assert all([i for n, i, _ in heard if n == name] == list(range(1000)) for name in "ab")


def test_timers_fire_in_order_unless_cancelled():
    loop, fired = Loop(), []
    loop.after(0.03, lambda: fired.append("late"))
    loop.after(0.01, lambda: fired.append("cancelled")).cancel()
    loop.after(0.01, lambda: fired.append("early"))
    while len(fired) < 2:
        loop.turn()
    assert fired == ["early", "late"]


def test_a_loop_with_nothing_to_do_sleeps():
    loop = Loop()
    used = time.thread_time()
    loop.after(0.3, loop.stop)
    loop.run()
    assert time.thread_time() - used < 0.1


def test_a_stopped_loop_takes_no_offence():
    loop = Loop()
    loop.call(loop.stop)
    loop.run()
    loop.call(lambda: None)


PROGRAM = """
from ftruntime.wire import Loop
loop = Loop()
loop.on_pause = lambda: print("paused", loop.now() < due, flush=True)
due = loop.now() + 2.0
loop.after(0.5, lambda: print("runs", flush=True))
loop.after(2.0, lambda: (print("fired", loop.now() > due + 1.0, flush=True), loop.stop()))
loop.run()
"""


def test_timers_do_not_run_while_the_process_is_stopped():
    """Stopped beyond the time of its timer, it hears of the pause first, and waits for what was left."""
    child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout.readline() == "runs\n"
    child.send_signal(signal.SIGSTOP)
    time.sleep(3.5)
    child.send_signal(signal.SIGCONT)
    assert child.stdout.read() == "paused False\nfired True\n" and child.wait() == 0
