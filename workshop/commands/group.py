"""The commands of the workshop by name; a module is imported only when its command is used."""

from __future__ import annotations

import click

from opassay.reports.cli.lazy import LazyGroup

COMMANDS = {
    "mutate": (".mutate", "Plant mistakes in the ops, and see which are refused."),
    "ptx-mutants": (".ptx_mutants", "Plant mistakes in the compiled kernels, and see which are refused."),
    "sweep": (".sweep", "Measure elementary functions on every argument."),
    "attack": (".attack", "Hold the bounds against random evaluations that the contract allows."),
    "second-opinion": (".second_opinion", "Hold the exact reading against a second one."),
    "upstream": (".upstream", "Write findings in the form that a library's maintainers act on."),
    "probe": (".probe", "Name the tree along which a function adds up, for a contract."),
    "wheels": (".wheels", "Build the wheels that are published."),
    "kernels": (".kernels", "Judge the CUDA kernels without a GPU."),
}


@click.group(
    cls=LazyGroup, table=COMMANDS, package=__package__, context_settings={"help_option_names": ["-h", "--help"]}
)
def cli() -> None:
    """Check opassay itself: its ops by mutants, its bound by attacks, its truth by a second reading, its contracts by
    sweeps, its kernels; and file what was found with other libraries.

    Exit codes are those of opassay.
    """
