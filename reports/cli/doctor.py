"""`opassay doctor`: the environment, and what it lacks."""

from __future__ import annotations

import json
import shutil

import click

from ...properties.catalog import CATALOG
from ...properties.catalog.loading import load_op
from ...properties.engine import environment as surroundings
from ...properties.names import ON_KERNELS
from ...reference.distributions import has_part
from .. import exit_codes
from ..text import one_line
from .host import EXTRA, is_installed


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON: environment, notes, ready.")
def doctor_command(as_json: bool) -> int:
    """Show the environment that decides verdicts, and what it lacks."""
    missing = ""
    try:
        environment = surroundings.environment()
    except (ImportError, OSError) as err:  # not installed, or a shared library that it needs is missing
        missing = f"{type(err).__name__}: {one_line(str(err))}"
        environment = surroundings.versions()
    isolation, unguarded = _isolation()
    environment = {**environment, "isolation": isolation}
    notes = [*surroundings.untested(environment), *_lacks(environment, missing), *_kernels(environment, missing)]
    notes += unguarded
    ready = not missing and all(map(is_installed, EXTRA))
    if as_json:
        click.echo(json.dumps({"environment": environment, "notes": notes, "ready": ready}))
    else:
        width = max(map(len, environment))
        click.echo("\n".join(f"{name:<{width}}  {one_line(value)}" for name, value in environment.items()))
        click.echo("\n".join(f"note: {note}" for note in notes))
        devices = "device cpu" if _without_gpu(environment) else "devices cpu and cuda"
        click.echo(f"ready: cells of {devices} can run" if ready else "not ready: no cell can run")
    return exit_codes.USAGE if missing else exit_codes.OK


def _isolation() -> tuple[str, list[str]]:
    """By what the process of a candidate is isolated here, and sentences on what it may reach all the same."""
    if not is_installed("msgspec"):
        return "not known without msgspec", []
    from ...properties.candidates.host.isolation import offer

    isolation = offer()
    lacks, notes = ", ".join(isolation.lacks), []
    if lacks:
        notes.append(f"candidates may reach {lacks}, and `judge --isolation required` ends with 2")
    if not isolation.has_namespace:
        notes.append("candidates have no pid namespace: they see other processes, and what they leave is looked for")
    return isolation.by, notes


def _without_gpu(environment: dict[str, str]) -> bool:
    return environment.get("cuda", "not available") == "not available"


def _lacks(environment: dict[str, str], no_torch: str) -> list[str]:
    absent = [name for name in sorted(EXTRA) if not is_installed(name)]
    lines = [f'{", ".join(absent)}: not installed; pip install "opassay[verify]"'] if absent else []
    if no_torch:
        return [*lines, f"torch cannot be imported ({no_torch}): no cell can run; pip install torch"]
    # Inductor writes C++ for the CPU and calls a compiler, so cells that use it cannot run without one.
    if shutil.which("c++") is None and shutil.which("g++") is None and shutil.which("clang++") is None:
        lines.append("no C++ compiler: torch.compile cells on the CPU cannot run")
    if _without_gpu(environment):
        lines.append(
            "no CUDA device: cells of device cuda are not run; kernels of Triton run as PTX, or interpreted: those of a"
            " candidate by `judge --compiled`, `--device rehearsal` or `--interpret`, ours by `run --subject triton`"
        )
    if "gmpy2" not in environment:
        lines.append("no gmpy2: the exact reading is several times slower")
    return lines


def _kernels(environment: dict[str, str], no_torch: str) -> list[str]:
    """Which ops have Triton kernels for CUDA; the others are compositions of torch's ops there."""
    if no_torch:
        return []
    if not has_part("ops"):
        return ['no library of ops: `opassay run` has no ops; pip install "opassay[ops]"']
    if "triton" not in environment:
        return ['no Triton: CUDA tensors are served by compositions of torch\'s ops; pip install "opassay[triton]"']
    served = ", ".join(name for name in CATALOG if load_op(name).production.kernels)
    on_cpu = f"judged on the CPU as {' and '.join(f'subject {name}' for name in ON_KERNELS)}"
    return [f"Triton {environment['triton']} serves on CUDA, {on_cpu}: {served}"]
