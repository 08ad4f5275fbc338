"""`opassay parity`: two implementations side by side, and why they differ."""

from __future__ import annotations

from typing import Any

import click

from ....properties.candidates.question_plan import DEVICES, ON, UNDER
from ..host import Host
from .judge import judge_command

#: Options of `judge` that say nothing of two candidates.
_OF_ONE = ("candidate", "beside", "domain", "demo", "watch", "timed")


def _parity(
    host: Host, /, first: str, second: str, spec: str | None, python: str | None, device_of_second: str | None,
    **options: Any,
) -> int:  # fmt: skip
    """Say why FIRST and SECOND differ, each a file, FILE:NAME or MODULE:NAME, and which of them is worse.

    The spec is what is right in plain PyTorch, by default FIRST. The answer begins with a word: equal, order, bias,
    precision, wrong or open (`opassay explain OA118`).
    Exit codes: 0 equal or order, 1 one is wrong, 4 precision, bias or open, 3 no verdict, 2 usage.
    \f

    Args:
        host: what surrounds the command. first, second: the candidates. spec: what is right.
        python, device_of_second: of the second, where it has others. options: of `judge`.
    """
    options["questions"] = options["questions"] or ("PARITY",)
    options |= {"candidate": first, "spec": spec or first, "beside": second}
    options["beside"] += f"{ON}{device_of_second}" * bool(device_of_second) + f"{UNDER}{python}" * bool(python)
    code: int = click.get_current_context().invoke(judge_command, **options)
    return code


parity_command = click.command("parity")(click.pass_obj(_parity))
parity_command.params += [
    click.Argument(["first"]), click.Argument(["second"]),
    click.Option(["--on", "device_of_second"], type=click.Choice(DEVICES),
                 help="Run SECOND on this device, whatever --device says of FIRST."),
    click.Option(["--python"], metavar="FILE", help="Run SECOND under this Python, of an environment with opassay."),
    *(param for param in judge_command.params if param.name not in _OF_ONE),
]  # fmt: skip
