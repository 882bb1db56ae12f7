"""``fthsdp emulate``: its options, and what it says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import click

from faultinject import ScheduleError
from ftruntime.protocol.errors import ConfigError

from .cli import INTERRUPTED, OK, WRONG, UserError, one_line
from .settings import RunSettings
from .settings_file import make_settings

F = TypeVar("F", bound=Callable[..., Any])


class Option(NamedTuple):
    """An option of the same name as a field of RunSettings, from which come its default and choices."""

    name: str
    type: Any
    help: str
    default: str = ""  # what to show for a default that is not a plain value


_HINTS = get_type_hints(RunSettings)
_DEFAULTS = RunSettings()


def _choice(name: str) -> click.Choice[str]:
    return click.Choice(get_args(_HINTS[name]))


JOB = (
    Option("replicas", int, "Replicas: FSDP groups, the unit of failure."),
    Option("ranks_per_replica", int, "Ranks (GPUs) of each replica."),
    Option("steps", int, "Steps to commit; then the run ends."),
    Option("seed", int, "Seed of all that is drawn. Equal seed, equal trace."),
    Option("faults", str, "none, table (drawn from the published table of causes), or a schedule's path."),
    Option("mtbf_minutes", float, "Virtual minutes between failures of --faults table.", "scaled"),
    Option("fidelity", _choice("fidelity"), "fingerprint: exact digests. tensor: small real tensors."),
    Option("catch_up", _choice("catch_up"), "How a catcher receives running gradients."),
    Option("gradient_retention", _choice("gradient_retention"), "Where gradients wait for a retry."),
    Option("min_replicas", int, "With fewer contributors nobody trains.", "half of --replicas"),
)  # fmt: skip
DETAILS = (
    Option("buckets", int, "Gradient buckets of a rank."),
    Option("bucket_mib", int, "MiB of a bucket."),
    Option("chunk_mib", int, "MiB of a chunk of FTAR."),
    Option("slots", int, "Chunks in flight to a neighbour at most."),
    Option("streams", int, "Streams of the data.", "8 x --replicas"),
    Option("samples_per_step", int, "Samples that a contributor trains in a step."),
    Option("checkpoint_every", int, "Steps between checkpoints.", "none"),
    Option("divisor", _choice("divisor"), "By what gradients are divided."),
    Option("lr_scaling", _choice("lr_scaling"), "Learning rate when replicas are missing."),
    Option("step_seconds", float, "Virtual seconds of forward and backward."),
    Option("jitter", float, "Share by which a replica's step varies."),
    Option("fan_out", int, "Children of a rank in the tree of its replica."),
    Option("agreed_end", bool, "Have replicas agree on the end: each hands its state on, and ends."),
    Option("fold", bool, "Run positions that behave alike once, and count them (fingerprint only)."),
    Option("workers", int, "Processes that run the job together; the trace is the same."),
    Option(
        "clock", _choice("clock"), "wall: real time; each worker is a host, and may be killed or stopped."
    ),
    Option("speed", float, "Virtual seconds in a second, for --clock wall."),
    Option("port", int, "Where workers meet on this machine.", "one that is free"),
    Option("worker_timeout", float, "Seconds that workers wait for each other at most."),
    Option("hbm_gib", float, "GiB of memory of a mock GPU."),
    Option("buildings", int, "Buildings that replicas lie in, each whole in one of them."),
    Option("max_virtual_hours", float, "Safety stop.", "far beyond what --steps need"),
    Option("corpus", str, "Text file to train on; may be given again.", "documents made by faker"),
    Option("locales", str, "A locale of faker's documents; may be given again.", "several"),
)
CONFIG_HELP = """TOML or JSON file with any setting of the job, timeouts.* too. Options given here win."""
RUN_DIR_HELP = """Folder for what the run leaves behind; an earlier run in it is replaced.
[default: a new one in ./runs]"""
MANY = ("corpus", "locales")


def _options(function: F) -> F:
    for option in reversed(JOB + DETAILS):
        default = option.default or str(getattr(_DEFAULTS, option.name))
        many = option.name in MANY
        if option.type is bool:
            function = click.option(
                f"--{option.name.replace('_', '-')}",
                option.name,
                is_flag=True,
                default=None,
                help=option.help,
            )(function)
            continue
        function = click.option(
            f"--{option.name.replace('_', '-')}" if option.name != "locales" else "--locale",
            option.name,
            type=option.type,
            multiple=many,
            default=() if many else None,
            help=f"{option.help}  [default: {default}]",
        )(function)
    return function


@click.command()
@_options
@click.option("--config", type=click.Path(path_type=Path), help=CONFIG_HELP)
@click.option("--run-dir", type=click.Path(path_type=Path), help=RUN_DIR_HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def emulate(config: Path | None, run_dir: Path | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Run an emulated job in virtual time, hold it against the invariants, and report.

    In the run directory: summary.json, events.log, schedule.json (every fault that happened: give it to
    --faults, or the directory to "fthsdp replay"), and trace.perfetto.json, for ui.perfetto.dev.

    Exit status: 0 every invariant held; 1 one was violated, or never checked though the run should have
    exercised it; 2 bad input; 130 interrupted with Ctrl-C (what there is by then is written).

    \b
    Examples:
      fthsdp emulate
      fthsdp emulate --faults table --steps 2000 --mtbf-minutes 5
      fthsdp emulate --faults my-schedule.json --gradient-retention none
      fthsdp emulate --replicas 12 --ranks-per-replica 8192 --steps 3 --json
      fthsdp emulate --replicas 12 --ranks-per-replica 8192 --steps 3 --workers 2
      fthsdp emulate --replicas 12 --ranks-per-replica 8192 --steps 4320 --faults table --fold
      fthsdp emulate --clock wall --speed 20 --replicas 6 --workers 3 --steps 60
      fthsdp emulate --config job.toml --run-dir runs/mine

    \b
    job.toml could be:
      replicas = 24
      faults = "table"
      [timeouts]
      round = 40
      lease = 60
    """
    options["corpus"] = tuple(str(Path(path).absolute()) for path in options["corpus"])  # for a replay
    given = {name: value for name, value in options.items() if value not in (None, ())}
    try:
        settings = make_settings(given, config)
        if "mtbf_minutes" in given and settings.faults != "table":
            raise ConfigError(f"--mtbf-minutes {settings.mtbf_minutes:g} does nothing without --faults table")
        return _run(settings, run_dir, as_json, quiet)
    except (ConfigError, ScheduleError) as error:
        raise UserError(str(error)) from None


def _run(settings: RunSettings, run_dir: Path | None, as_json: bool, quiet: bool) -> int:
    from .execute import RunError, run
    from .progress import progress
    from .rundir import RunDir

    faults = settings.load_faults()  # before the folder is emptied, where the file may lie
    folder = RunDir.create(run_dir, settings)
    try:
        with progress(settings.steps, quiet) as told:
            outcome = run(settings, faults, folder, told)
    except RunError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(
            f"cannot write to {folder.path}: {error.strerror or error}; choose another --run-dir"
        ) from None
    return report(outcome, settings, folder.path, as_json)


def report(outcome: Any, settings: RunSettings, path: Path, as_json: bool) -> int:
    """Tell what came of a run: the result on standard output, what is wrong on standard error."""
    if as_json:
        click.echo(json.dumps({**outcome.summary, "run_dir": str(path)}))
    else:
        _show(outcome, path)
    _complain(outcome, settings, path)
    if outcome.interrupted:
        return INTERRUPTED
    return WRONG if outcome.failures or outcome.error else OK


def _show(outcome: Any, path: Path) -> None:
    from rich.console import Console

    from .summary import show

    sys.stderr.flush()
    show(outcome.summary, outcome.expected, Console(file=sys.stdout, highlight=False))
    click.echo(f"run directory: {path}")


def _complain(outcome: Any, settings: RunSettings, path: Path) -> None:
    found = outcome.summary
    if outcome.interrupted:
        click.echo(f"interrupted at step {found['steps_committed']}: what there is lies in {path}", err=True)
    elif outcome.error:
        click.echo(
            f"the emulation failed: {one_line(outcome.error)} (traceback: {path / 'error.txt'})", err=True
        )
    else:
        for line in _hints(found, settings):
            click.echo(line, err=True)
    for line in outcome.failures:
        click.echo(line, err=True)
        for event in outcome.offending.get(line.split(":")[0], []):
            click.echo(f"  {event}", err=True)


def _hints(found: dict[str, Any], settings: RunSettings) -> Iterator[str]:
    """What is not wrong, and yet may not be what was wanted."""
    virtual = found["virtual_seconds"]
    if not found["complete"]:
        at = f"step {found['steps_committed']} of {settings.steps}"
        line = f"stopped at {at} after {virtual:,.0f} virtual seconds"
        stopped = virtual >= 0.999 * settings.stop_seconds
        yield line + (
            f"; raise --max-virtual-hours (now {settings.stop_seconds / 3600:g})" if stopped else ""
        )
    if settings.faults == "table" and not found["faults_injected"]:
        rare = f"one comes in {settings.mtbf_seconds() / 60:,.0f} minutes on average"
        yield f"no fault fell into this run: {rare}; lower --mtbf-minutes"
