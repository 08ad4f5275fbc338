"""The command line. `main` alone decides exit codes: a fault of the tool must not look like a wrong op."""

from __future__ import annotations

import importlib
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import click

from . import exit_codes
from .text import clean, one_line

#: command -> (module with it, what it does); a module is imported only when its command is used.
COMMANDS: dict[str, tuple[str, str]] = {
    "list": (".cli_files", "Show the plan: which cells there are."),
    "run": (".cli_run", "Run cells and write the report."),
    "verify-function": (".cli_function", "Judge a custom autograd function of yours."),
    "report": (".cli_files", "Render a run record as one HTML file."),
    "accuracy": (".cli_files", "Print the measured accuracy of each op as a table."),
    "merge": (".cli_files", "Merge the records of several shards."),
    "gate": (".cli_gate", "Compare a run with known failures and accuracy budgets."),
    "baseline": (".cli_gate", "Show, update or prune the budget file."),
    "recover": (".cli_recover", "Make the record of a run that was killed."),
    "replay": (".cli_replay", "Run a case file again."),
    "explain": (".cli_tools", "Say what a reason code means."),
    "doctor": (".cli_tools", "Show the environment and what it lacks."),
    "plugins": (".cli_tools", "List installed plugins without loading them."),
    "schema": (".cli_files", "Print the JSON Schema of the run record."),
}


class Stop(Exception):
    """Ends a command with an exit code and a sentence; no traceback."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Host:
    """What surrounds a command: the program of the processes that judge."""

    worker: tuple[str, ...] = ()


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0], __package__)
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="opassay", prog_name="opassay")
def cli() -> None:
    """Verify PyTorch ops against exact formulas.

    Exit codes: 0 verified, 1 a cell failed, 2 usage or configuration, 3 internal error,
    4 incomplete, 5 nothing selected, 130 interrupted.
    """


def main(argv: Sequence[str] | None = None, *, worker: Sequence[str] = ()) -> int:
    """Runs the command line and returns its exit code.

    Args:
        argv: arguments without the program's name; by default those of the process.
        worker: the program of a process that judges, and its arguments; by default opassay's own.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        host = Host(tuple(worker))
        found = cli.main(arguments, prog_name="opassay", standalone_mode=False, obj=host)
        return found if isinstance(found, int) else exit_codes.OK
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return exit_codes.INTERRUPT
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as err:
        err.show()
        return exit_codes.USAGE
    except Stop as stop:
        if str(stop):
            _say(str(stop))
        return stop.code
    except BrokenPipeError:
        return exit_codes.OK
    except Exception as err:
        return _internal(err)


def _say(text: str) -> None:
    print(f"opassay: {clean(text)}", file=sys.stderr)


def _internal(err: Exception) -> int:
    with tempfile.NamedTemporaryFile(
        "w", prefix="opassay-error-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
    ) as file:
        file.write("".join(traceback.format_exception(err)))
    _say(f"internal error, {type(err).__name__}: {one_line(str(err))}\n  traceback in {file.name}")
    return exit_codes.INTERNAL
