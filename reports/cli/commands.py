"""The commands by name; a module is imported only when its command is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from .lazy import Branch, LazyGroup, Table
from .project.settings import ProjectSettings, defaults, find_settings, read_settings

#: name of a command -> (its module, its line of help).
COMMANDS: Table = {
    "judge": (".judge.judge", "Judge a kernel by its plain PyTorch."),
    "parity": (".judge.parity", "Say why two kernels differ, and which is worse."),
    "watch": (".watch", "Watch a program: hold every call of torch by its bound."),
    "run": (".run", "Run cells and write the report."),
    "replay": (".replay", "Run a case file again."),
    "report": Branch("Read records of runs: pages, causes, comparisons.", "html", {
        "html": (".report.single", "Render a run record as one HTML file."),
        "causes": (".report.single", "Group the failures of a run into causes, a page about each."),
        "accuracy": (".report.single", "Print the measured accuracy of each op as a table."),
        "compare": (".report.compare", "Say what has changed from one run to another."),
        "history": (".report.history", "Show how each op has fared over the records of a folder."),
        "merge": (".report.mending", "Merge the records of several shards."),
        "recover": (".report.mending", "Make the record of a run that was killed."),
        "schema": (".report.single", "Print the JSON Schema of run.json, known.json or budget.json."),
    }),
    "gate": Branch("Hold a run against known failures and budgets.", "check", {
        "check": (".gate", "Compare a run with known failures and accuracy budgets."),
        "show": (".gate", "Show the budgets and the known failures."),
        "update": (".gate", "Lower budgets to what a run has reached."),
        "accept": (".gate", "Accept failures of a run until a day."),
        "prune": (".gate", "Remove entries that are not needed any more."),
    }),
    "init": (".project.init", "Write an example op, settings and a CI workflow."),
    "explain": (".project.explain", "Say what a code, a property or another word means."),
    "list": (".list", "Show the ops, and the cells of those that are named."),
    "doctor": (".doctor", "Show the environment and what it lacks."),
    "bound": (".judge.bound", "Say why the bound of a spec is what it is, by line."),
    "tolerances": (".judge.tolerances", "Print the least tolerances that miss no right kernel."),
    "audit-tests": (".judge.audit_tests", "Say which faults the comparisons of tests let pass."),
    "serve": (".serving.serve", "Judge what is asked over HTTP."),
}  # fmt: skip


@click.group(
    cls=LazyGroup, table=COMMANDS, package=__package__, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--settings", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE",
    help="Take settings from this TOML file, not from the nearest pyproject.toml.",
)  # fmt: skip
@click.option("--no-settings", is_flag=True, help="Take no settings from files.")
@click.version_option(package_name="opassay", prog_name="opassay")
@click.pass_context
def cli(ctx: click.Context, settings: Path | None, no_settings: bool) -> None:
    """Verify PyTorch ops against exact formulas.

    Exit codes: 0 verified, 1 a cell failed, 2 usage or configuration, 3 internal error,
    4 incomplete, 5 nothing selected, 130 interrupted.

    \b
    Examples:
      opassay judge mine.py:kernel --spec mine.py:reference
      opassay run softmax --profile brief
      opassay run --op mypackage.assay:OP --profile brief
      opassay gate opassay-report/run.json
      opassay explain brief
    """
    if settings is not None:
        project = read_settings(settings, COMMANDS)
    else:
        project = None if no_settings else find_settings(Path.cwd(), COMMANDS)
    invoked = ctx.invoked_subcommand
    if project is not None and invoked is not None and invoked in project.tables:
        _take(project, ctx, invoked)


def _take(settings: ProjectSettings, ctx: click.Context, name: str) -> None:
    """Makes the settings of a command its defaults, and says so: nobody should wonder where an option came from."""
    command = cli.get_command(ctx, name)
    if command is None:
        return
    ctx.default_map = {name: defaults(settings, name, command, ctx)}
    names = ", ".join(_names(settings.tables[name])) or "none"
    click.echo(f"settings of {name} from {settings.path}, unless an option says otherwise: {names}", err=True)


def _names(table: Mapping[str, Any]) -> Iterator[str]:
    """Names of options; of a command in a group as `accept.owner`."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in _names(value))
        else:
            yield name
