"""`python -m workshop wheels`: what is published."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop

from ..distributions import build


@click.command("wheels")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--no-isolation", is_flag=True, help="Build with the setuptools of this environment.")
def wheels_command(folder: Path, no_isolation: bool) -> int:
    """Build a wheel of each distribution of this checkout into FOLDER: opassay, which judges, and what its extras
    bring."""
    try:
        paths = build(Path.cwd(), folder, *["--no-build-isolation"] * no_isolation)
    except (OSError, subprocess.CalledProcessError) as err:
        raise Stop(exit_codes.USAGE, f"need a checkout of opassay as the working folder, and pip: {err}") from err
    click.echo("\n".join(map(str, paths)))
    return exit_codes.OK
