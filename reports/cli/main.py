"""The command line. `main` alone decides exit codes: a fault of the tool must not look like a wrong op.

This module needs the standard library alone, so that a missing package is a sentence and not a traceback.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence

from ...oracles.verdicts.verdict import shorten, without_requests
from ...reference.distributions import AbsentError
from .. import exit_codes
from ..steady import steady_output
from ..text import clean, one_line
from ..warm.command import BEGIN, Warmth
from .host import EXTRA, Host, Stop, not_installed

#: The variable by which a shell asks click for completions; its name follows from that of the program.
_COMPLETION = "_OPASSAY_COMPLETE"
#: The address of the group of commands.
COMMANDS = "opassay.reports.cli.commands:cli"


def main(
    argv: Sequence[str] | None = None,
    *,
    worker: Sequence[str] = (),
    commands: str = COMMANDS,
    program: str = "opassay",
    alone: bool | None = None,
) -> int:
    """Runs the command line and returns its exit code: always one of `exit_codes.PRIORITY`, or 0.

    Args:
        argv: arguments without the program's name; by default those of the process.
        worker: the program of a process that judges, and its arguments; by default opassay's own.
        commands: the address of the group of commands. program: what the user calls them by.
        alone: whether this process does nothing else; by default, whether it has not loaded torch.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None and arguments[:1] == [BEGIN] and len(arguments) == 3:
        from .warm_copies import serve_copies

        serve_copies(arguments[1], arguments[2], functools.partial(main, alone=True))
        return exit_codes.OK
    warmth = Warmth(arguments) if argv is None else None
    try:
        if warmth is not None and (status := warmth.carry_out()) is not None:
            return status
    except KeyboardInterrupt as err:
        return _report_error(err)
    host = Host(tuple(worker), "torch" not in sys.modules if alone is None else alone)
    with steady_output() as streams:
        try:
            code = contextvars.copy_context().run(_run_click, arguments, host, commands, program)
        except BaseException as err:
            code = _report_error(err)
        fault = streams.fault()
        if fault is not None:
            _complain(f"the output could not be written: {fault.strerror}")
            # A code other than 0 stays: that a cell failed says more than that its line could not be written.
            code = code or exit_codes.INTERNAL
    if warmth is not None and code != exit_codes.USAGE:
        warmth.begin()
    if argv is None and host.ends_at_once:
        os._exit(code)
    return code


def _run_click(arguments: list[str], host: Host, commands: str, program: str) -> int:
    # Here and not above, so that a missing click reaches `_report_error` as an exception and becomes a sentence.
    import click

    module, _, name = commands.partition(":")
    cli: click.Group = getattr(importlib.import_module(module), name)

    if os.environ.get(_COMPLETION):
        return _complete(cli.main)
    try:
        # By itself click would print errors and end the program with codes of its own, such as 1 for an interrupt.
        status = cli.main(arguments, prog_name=program, standalone_mode=False, obj=host)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.ClickException as err:
        err.show()
        status = exit_codes.USAGE
    code = status if isinstance(status, int) else exit_codes.OK
    if code not in (exit_codes.OK, *exit_codes.PRIORITY):
        raise RuntimeError(f"a command ended with code={code}, which the table of exit codes does not have")
    return code


def _complete(complete: Callable[..., object]) -> int:
    """What a shell asks for while a user types: click answers it, runs no command, and ends the program by itself."""
    try:
        complete(args=[], prog_name="opassay", standalone_mode=False)
    except SystemExit as end:
        return exit_codes.USAGE if end.code else exit_codes.OK
    raise RuntimeError(f"{_COMPLETION} is set and asked for nothing")


def _report_error(err: BaseException) -> int:
    """The exit code of a command that raised; says why, and never raises itself."""
    if isinstance(err, Stop):
        if str(err):
            _complain(str(err))
        return err.code
    if isinstance(err, KeyboardInterrupt):
        _complain("interrupted")
        return exit_codes.INTERRUPT
    if isinstance(err, AbsentError):
        _complain(str(err))
        return exit_codes.USAGE
    if isinstance(err, ModuleNotFoundError) and err.name is not None:
        name = err.name.partition(".")[0]
        if name in EXTRA or name in ("torch", "numpy"):
            _complain(not_installed(name))
            return exit_codes.USAGE
    if isinstance(err, SystemExit):
        # Code that a declaration imports may call `sys.exit(0)`. A run that ended so has checked
        # nothing and must not look well.
        call = f"sys.exit({one_line(repr(err.code), 80)})"
        _complain(
            f"imported code ended the program by {call}; declarations, plugins and what they import must not do so"
        )
        return exit_codes.USAGE
    return _internal(err)


def _complain(text: str) -> None:
    lines = shorten(text)
    with contextlib.suppress(Exception):
        print("\n".join(["opassay: " + lines[0], *lines[1:]] if lines else ["opassay"]), file=sys.stderr)


def _internal(err: BaseException) -> int:
    # The text of a foreign exception is made by foreign code, which may raise in turn, so
    # each step is guarded by itself.
    trace = "no traceback"
    with contextlib.suppress(BaseException):
        trace = clean("".join(traceback.format_exception(err)))
    text = f"internal error, {type(err).__name__}"
    with contextlib.suppress(BaseException):
        text += f": {one_line(without_requests(str(err)))}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="opassay-error-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(trace)
        _complain(f"{text}\n  traceback in {file.name}")
    except BaseException as fault:
        _complain(f"{text}\n  its traceback could not be written to a file ({type(fault).__name__}):")
        with contextlib.suppress(Exception):
            # The end of a traceback is what names the fault.
            print(trace[-8000:], file=sys.stderr)
    return exit_codes.INTERNAL
