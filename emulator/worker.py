"""One worker of a job that several machines run, started by torchrun:

    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        -m emulator.worker job.toml

torchrun tells each worker who it is. Worker 0 has the hub of the job, gathers the logs and reports, as
``fthsdp emulate`` does; every machine needs the same release and the same file of settings.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultinject import ScheduleError
from ftruntime.protocol.errors import ConfigError

from .cli import BAD_INPUT, INTERRUPTED, OK, UserError, one_line
from .emulate import RUN_DIR_HELP, report
from .settings import RunSettings
from .settings_file import make_settings

if TYPE_CHECKING:
    from .workers.wire import Meeting

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--run-dir", type=click.Path(path_type=Path), help=RUN_DIR_HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def worker(config: Path, run_dir: Path | None, as_json: bool, quiet: bool) -> int:
    """Be one worker of the job in CONFIG (TOML or JSON: as for "fthsdp emulate --config").

    torchrun starts it and says which worker it is. Worker 0 writes the run directory and reports; what it
    exits with is as of "fthsdp emulate". The trace is that of one process.

    \b
    Example, two machines, on each of them:
      torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
          -m emulator.worker job.toml --run-dir runs/two
    """
    try:
        settings, meeting = _settings(config)
        if meeting.rank == 0:
            return _first(settings, meeting, run_dir, as_json, quiet)
        return _another(settings, meeting)
    except (ConfigError, ScheduleError) as error:
        raise UserError(str(error)) from None


def _settings(config: Path) -> tuple[RunSettings, Meeting]:
    """Raises ConfigError."""
    from .workers.wire import Meeting

    missing = [name for name in NEEDED if not os.environ.get(name, "")]
    if missing:
        raise ConfigError(
            f"{missing[0]} is not set: start workers with torchrun -m emulator.worker CONFIG, "
            "or on one machine with fthsdp emulate --workers N"
        )
    rank, workers, port = (_number(name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    settings = make_settings({"workers": workers}, config)
    return settings, Meeting(os.environ["MASTER_ADDR"], port, rank, workers, settings.worker_timeout)


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ConfigError(
            f"{name} is {os.environ[name]!r}: it must be a number, as torchrun sets it"
        ) from None


def _first(settings: RunSettings, meeting: Meeting, run_dir: Path | None, as_json: bool, quiet: bool) -> int:
    from .execute import RunError, run
    from .progress import progress
    from .rundir import RunDir

    faults = settings.load_faults()
    folder = RunDir.create(run_dir, settings)
    try:
        with progress(settings.steps, quiet) as told:
            outcome = run(settings, faults, folder, told, meeting)
    except RunError as error:
        raise UserError(str(error)) from None
    return report(outcome, settings, folder.path, as_json)


def _another(settings: RunSettings, meeting: Meeting) -> int:
    from .workers.crew import work
    from .workers.errors import WorkersError

    with tempfile.TemporaryDirectory(prefix="fthsdp-worker-") as scratch:
        try:
            work(settings, None, meeting, Path(scratch) / f"events.{meeting.rank}.log", elsewhere=True)
        except WorkersError as error:
            raise UserError(str(error)) from None
    return OK


def main() -> None:
    """Errors in one line; exit status as for all commands."""
    try:
        sys.exit(worker.main(standalone_mode=False))
    except click.ClickException as error:
        click.echo(f"emulator.worker: {one_line(error.format_message())}", err=True)
        sys.exit(BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
