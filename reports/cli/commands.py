"""The commands by name; a module is imported only when its command is used."""

from __future__ import annotations

from pathlib import Path

import click

from .lazy import LazyGroup
from .project.settings import Settings, defaults, find_settings, read_settings

#: command -> (module with it, what it does).
COMMANDS: dict[str, tuple[str, str]] = {
    "init": (".project.init", "Write an example op, settings and a CI workflow."),
    "list": (".files", "Show the plan: which cells there are."),
    "run": (".run", "Run cells and write the report."),
    "campaign": (".campaign.campaign", "Spread cells, draws and sweeps over a cluster."),
    "verify-function": (".function", "Judge a custom autograd function of yours."),
    "report": (".files", "Render a run record as one HTML file."),
    "findings": (".findings", "Group the failures of a run into causes, and write a page about each."),
    "accuracy": (".files", "Print the measured accuracy of each op as a table."),
    "compare": (".over_time.compare", "Say what has changed from one run to another."),
    "history": (".over_time.history", "Show how each op has fared over the records of a folder."),
    "merge": (".files", "Merge the records of several shards."),
    "certificate": (".certificate.certificate", "Write what is claimed of each op, and check that it still holds."),
    "gate": (".gate", "Compare a run with known failures and accuracy budgets."),
    "baseline": (".gate", "Show, update, accept or prune budgets and known failures."),
    "recover": (".recover", "Make the record of a run that was killed."),
    "replay": (".replay", "Run a case file again."),
    "judge": (".judge.judge", "Judge a kernel by its plain PyTorch."),
    "audit-task": (".judge.audit_task", "Say which trivial programs a check would let through."),
    "sweep": (".sweeps.sweep", "Measure elementary functions on every argument."),
    "explain": (".project.explain", "Say what a code, property, profile, outcome or subject means."),
    "doctor": (".tools", "Show the environment and what it lacks."),
    "plugins": (".tools", "List installed plugins without loading them."),
    "schema": (".files", "Print the JSON Schema of run.json, known.json or budget.json."),
}


#: Commands of the workshop, which is not installed: the line that does the work.
MOVED = {name: f"python -m workshop {name}" for name in ("kernels", "second-opinion", "attack", "mutate")}


@click.group(
    cls=LazyGroup, table=COMMANDS, package=__package__, moved=MOVED,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
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
    names = tuple(COMMANDS)
    if settings is not None:
        found = read_settings(settings, names)
    else:
        found = None if no_settings else find_settings(Path.cwd(), names)
    invoked = ctx.invoked_subcommand
    if found is not None and invoked is not None and invoked in found.tables:
        _take(found, ctx, invoked)


def _take(settings: Settings, ctx: click.Context, name: str) -> None:
    """Makes the settings of a command its defaults, and says so: nobody should wonder where an option came from."""
    command = cli.get_command(ctx, name)
    if command is None:
        return
    ctx.default_map = {name: defaults(settings, name, command, ctx)}
    told = ", ".join(settings.tables[name]) or "none"
    click.echo(f"settings of {name} from {settings.path}, unless an option says otherwise: {told}", err=True)
