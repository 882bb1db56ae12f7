"""Run a whole job on this machine: ``python -m ftruntime.launch --replicas 3 --ranks 2 -- train.py``.

Starts the embedded store and all replicas, and starts what dies anew, until every replica has trained to the
end. On several machines each replica has a torchrun of its own instead, and one machine serves the store.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

from ftruntime.driver.journal import Journal
from ftruntime.observe.look import Connect
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ids import Position, Replica
from ftruntime.wire import Endpoint, Loop, checked_token

from .launcher import Launcher, State

EXAMPLES = """examples:
  python -m ftruntime.launch --replicas 3 --ranks 2 -- examples/train_lm.py --steps 200
  python -m ftruntime.launch --replicas 2 --folder run --store-port 29600 -- train.py
"""


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "ftruntime.launch",
        description="Run all replicas of a job on this machine, and start anew what dies.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1, help="ranks of each replica")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="store, journals, checkpoints")
    parser.add_argument("--job", default="job", help="name of the job; the script must use the same")
    parser.add_argument("--store-port", type=int, default=0, help="0: any free port")
    parser.add_argument("--rest", type=float, default=1.0, help="seconds before a replica is started again")
    parser.add_argument("command", nargs="+", help="script and its arguments, after --")
    return parser.parse_args(given)


class Job:
    """The store, its keeper, and the launcher of all replicas. Raises OSError, ConfigError."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments, self._folder = arguments, arguments.folder
        self._token = os.environ.get("FTHSDP_TOKEN") or secrets.token_hex(16)
        self._loop = Loop()
        for name in ("journals", "checkpoints"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        self._port = arguments.store_port or _free_port()
        self._store = self._serve()
        self._ports: dict[tuple[Replica, int], int] = {}
        self._launcher = Launcher(
            self._loop, list(range(arguments.replicas)), arguments.ranks, self._spawn,
            Endpoint("127.0.0.1", self._port), checked_token(self._token), arguments.job,
            self._folder / "lives", rest_s=arguments.rest,
            journal=Journal(self._folder / "journals" / "launcher.log"), changed=self._changed,
        )  # fmt: skip
        Connect(f"127.0.0.1:{self._port}", arguments.job, self._token).write(self._folder)
        self._loop.after(0.2, self._keep_store)

    def _serve(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ftruntime.stores.serve", "--folder", str(self._folder / "store")]
        command += ["--job", self._arguments.job, "--port", str(self._port), "--history"]
        environment = {**os.environ, "FTHSDP_TOKEN": self._token}
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

    def _keep_store(self) -> None:
        """A store that died comes back with all that it had told anybody."""
        if self._store.poll() is not None:
            print("the store ended; it is started again", file=sys.stderr)
            self._store = self._serve()
        self._loop.after(0.2, self._keep_store)

    def _spawn(self, replica: Replica, position: Position, life: int) -> subprocess.Popen[bytes]:
        port = self._ports.setdefault((replica, life), _free_port())
        environment = {
            **os.environ,
            "FTHSDP_REPLICA": str(replica),
            "FTHSDP_REPLICAS": str(self._arguments.replicas),
            "FTHSDP_LIFE": str(life),
            "FTHSDP_STORE": f"127.0.0.1:{self._port}",
            "FTHSDP_TOKEN": self._token,
            "FTHSDP_INTERFACE": "127.0.0.1",
            "FTHSDP_JOURNALS": str(self._folder / "journals"),
            "FTHSDP_CHECKPOINTS": str(self._folder / "checkpoints"),
            "RANK": str(position),
            "LOCAL_RANK": str(position),
            "WORLD_SIZE": str(self._arguments.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        return subprocess.Popen([sys.executable, *self._arguments.command], env=environment)

    def _changed(self, replica: Replica) -> None:
        """Say so; when no replica is left to wait for, the job is over."""
        state, life = self._launcher.state(replica), self._launcher.life(replica)
        print(f"replica {replica}, life {life}: {state.value}", file=sys.stderr, flush=True)
        states = {self._launcher.state(r) for r in range(self._arguments.replicas)}
        if not states & {State.RUNNING, State.RESTING}:
            self._loop.stop()

    def run(self) -> bool:
        """Until it is over or is interrupted; whether every replica trained to the end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._loop.call(self._loop.stop))
        try:
            self._loop.run()
        finally:
            self._launcher.close()
            self._store.kill()
            self._store.wait()
        return all(self._launcher.state(r) is State.DONE for r in range(self._arguments.replicas))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def main(given: list[str] | None = None) -> int:
    try:
        return 0 if Job(_arguments(sys.argv[1:] if given is None else given)).run() else 1
    except (ConfigError, OSError) as error:
        print(f"the job does not start: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
