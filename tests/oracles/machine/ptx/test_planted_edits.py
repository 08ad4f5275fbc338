"""Faults in the text of a kernel, each of which the machine or the values must show; and the kernel without them."""

from __future__ import annotations

import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.verdicts.violation import Unsupported, Violation
from tests.oracles.machine.ptx import planted
from tests.oracles.machine.ptx.planted import EDITS, VALUES, Edit
from tests.oracles.machine.ptx.running import run

_SMALL = 2.0**-133


def _catch(text: str, scale: float, on: hardware.Hardware = hardware.NEAREST) -> str:
    """What catches a fault in the text, a code or `VALUES`; "" where nothing does."""
    x, w, y = planted.operands(scale)
    try:
        run(text, [x, w, y], blocks=planted.ROWS, warps=2, on=on)
    except (Violation, Unsupported) as error:
        return error.code.value
    return "" if torch.equal(y, planted.expected(x, w, scale == 1.0)) else VALUES


@pytest.mark.parametrize("scale", [1.0, _SMALL])
@pytest.mark.parametrize("machine", [hardware.NEAREST, *hardware.ENDS, hardware.APART], ids=str)
def test_the_kernel_is_right_on_every_hardware(machine: hardware.Hardware, scale: float) -> None:
    assert _catch(planted.kernel(scale == 1.0), scale, machine) == ""


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("machine", [hardware.NEAREST, hardware.APART], ids=str)
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_a_fault_is_caught_in_every_order(edit: Edit, machine: hardware.Hardware) -> None:
    text = planted.kernel(edit.scale == 1.0)
    assert _catch(edit.apply(text), edit.scale, machine) == getattr(edit.code, "value", edit.code)
