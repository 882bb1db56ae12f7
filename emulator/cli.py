"""The command line: ``fthsdp COMMAND``. A command is imported when it is called, so that help is quick.

Exit status, for all commands: 0 all is well; 1 the run was carried out and something is wrong; 2 bad input,
told in one line on standard error; 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import click

OK, WRONG, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class Command(NamedTuple):
    """Where a command is, as "module:function", and the line about it in the list of commands."""

    target: str
    help: str


COMMANDS: dict[str, Command] = {
    "emulate": Command("emulator.emulate:emulate", "Run an emulated job, check it, and report."),
    "replay": Command("emulator.replay:replay", "Run an earlier emulation again and compare the trace."),
    "fuzz": Command("emulator.fuzz.command:fuzz", "Run random schedules of faults, and check every run."),
    "faults": Command(
        "emulator.faults_command:faults", "Kinds of faults, fault points, and models of failures."
    ),
    "explore": Command("emulator.explore_command:explore", "Try every order of the events of a small job."),
    "status": Command("ftruntime.observe.command:status", "How a job of real processes stands, live."),
    "mutants": Command("emulator.mutants.command:hunt_all", "Take safeguards out: does a campaign notice?"),
}


class UserError(click.ClickException):
    """Bad input: one line that names the value and the mend. Exit status 2."""

    exit_code = BAD_INPUT

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.ctx = click.get_current_context(silent=True)


class Commands(click.Group):
    """A group whose commands stand in a table, and whose errors are one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, function = COMMANDS[name].target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            raise UserError(f"no command {args[0]!r}; there are: {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """As click's, with errors in one line and no usage before them. Ends in SystemExit."""
        try:
            result = super().main(args, prog_name or "fthsdp", complete_var, standalone_mode=False, **extra)
            sys.exit(result if isinstance(result, int) else OK)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(BAD_INPUT)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "fthsdp"
            click.echo(f"{command}: {one_line(error.format_message())}", err=True)
            sys.exit(BAD_INPUT)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)


def one_line(text: str) -> str:
    """``text`` without line breaks, and without what could play tricks on a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))


def _version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .summary import release

        click.echo(f"fthsdp {release() or 'unknown: not installed'}")
        context.exit()


@click.command(
    "fthsdp", cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", is_flag=True, is_eager=True, callback=_version, expose_value=False, help="Show it."
)
def main() -> None:
    """Fault tolerant hybrid sharded data parallel training, emulated.

    \b
    Examples:
      fthsdp emulate                                  12 replicas x 64 ranks, 200 steps
      fthsdp emulate --faults table --mtbf-minutes 5  the same, with failures
      fthsdp replay runs/mine                         run it again: is the trace the same?
      fthsdp fuzz --minutes 10 --jobs 2               random schedules: does any break the job?
      fthsdp faults list                              where faults strike, and what was reached
      fthsdp explore --timers 0 --rounds 0            every order of the events of a small job
      fthsdp status runs/mine                         how a job of real processes stands
      fthsdp mutants --jobs 2                         is a safeguard missed when it is taken out?
      fthsdp COMMAND --help                           all about a command
    """
