"""Serve the embedded store: ``python -m ftruntime.stores.serve --folder store --job name``.

The job's token is read from the environment, FTHSDP_TOKEN, so that no list of processes shows it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from ftruntime.protocol.errors import ConfigError
from ftruntime.wire import Endpoint, Loop, checked_token, local_address

from .embedded import EmbeddedStore
from .wal import DamagedLog

EXAMPLE = """examples:
  FTHSDP_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(16))') \\
      python -m ftruntime.stores.serve --folder store --job llama --interface eth0 --port 29600
"""


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "ftruntime.stores.serve",
        description="Serve the embedded consensus store of a job.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the write-ahead log is kept")
    parser.add_argument("--job", default="job", help="name of the job; members of another are refused")
    parser.add_argument("--interface", default="lo", help="interface, network or address to serve at")
    parser.add_argument("--port", type=int, default=29600, help="0: any free port")
    parser.add_argument("--history", action="store_true", help="never shorten the log, so it can be audited")
    return parser.parse_args(given)


def serve(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM. Prints ``serving HOST PORT`` once it can be reached.

    Raises ConfigError, DamagedLog, OSError."""
    token = checked_token(os.environ.get("FTHSDP_TOKEN", ""))
    loop = Loop()
    host = local_address(arguments.interface)
    embedded = EmbeddedStore(
        loop, arguments.folder, token, arguments.job, host, arguments.port, arguments.history
    )
    signal.signal(signal.SIGTERM, lambda *_: loop.call(loop.stop))
    signal.signal(signal.SIGINT, lambda *_: loop.call(loop.stop))
    _say(embedded.endpoint)
    try:
        loop.run()
    finally:
        embedded.close()


def _say(endpoint: Endpoint) -> None:
    print(f"serving {endpoint.host} {endpoint.port}", flush=True)


def main(given: list[str] | None = None) -> int:
    try:
        serve(_arguments(sys.argv[1:] if given is None else given))
    except (ConfigError, DamagedLog, OSError) as error:
        print(f"the store stops: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
