"""An embedded store in a process of its own, and members that talk to it over TCP."""

from __future__ import annotations

import itertools
import os
import select
import subprocess
import sys
from pathlib import Path

from ftruntime.stores import EmbeddedClient
from ftruntime.wire import Endpoint, Loop, Who
from tests.wire.pair import turn_until

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a token of the tests, long enough"


def start_store(folder, port=0, job="job", history=True):
    """A process that serves ``folder``, and where."""
    command = [sys.executable, "-m", "ftruntime.stores.serve", "--folder", str(folder), "--job", job]
    command += ["--port", str(port), *(["--history"] if history else [])]
    environment = {**os.environ, "FTHSDP_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True)
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0], "the store did not come up"
    word, host, number = process.stdout.readline().split()
    assert word == "serving"
    return process, Endpoint(host, int(number))


class Member:
    """A client on the place's loop. ``changes``: what its watch has brought, in order."""

    def __init__(self, place):
        self._place, self._answers, self.changes = place, {}, []
        self._calls = itertools.count(1)
        self.client = EmbeddedClient(
            place.loop, place.endpoint, TOKEN.encode(), Who("rank", "job"),
            self._answers.__setitem__, self.changes.append, lambda seats: None,
        )  # fmt: skip

    def send(self, request):
        call = next(self._calls)
        self.client.ask(call, request)
        return lambda: self._answers.get(call)

    def ask(self, request):
        answer = self.send(request)
        self.until(lambda: answer() is not None)
        return answer()

    def until(self, done):
        turn_until(self._place.loop, done, 60.0)

    def wait(self, seconds):
        over = []
        self._place.loop.after(seconds, lambda: over.append(True))
        self.until(lambda: over)


class Place:
    """One store in ``folder``, and its members."""

    def __init__(self, folder):
        self.folder, self.loop = folder, Loop()
        self.process, self.endpoint = start_store(folder)

    def member(self):
        member = Member(self)
        member.until(lambda: member.client.up)
        return member

    def ask_all(self, members, request):
        answers = [member.send(request) for member in members]
        members[0].until(lambda: all(answer() is not None for answer in answers))
        return [answer() for answer in answers]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def restart(self):
        """SIGKILL, and again at the same port."""
        self.kill()
        self.process, self.endpoint = start_store(self.folder, self.endpoint.port)
