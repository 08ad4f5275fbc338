"""The machine code and the traffic of the ops' kernels: what ships passes, and each planted fault fails."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay import impl
from opassay.oracles.op.declaration import Op
from opassay.properties.catalog.loading import load_op, op_names
from workshop.commands.kernel_tables import code_table, traffic_table
from workshop.kernels import classes
from workshop.kernels.classes import CLASSES, first_of_each, select_classes
from workshop.kernels.compiler import ARCHITECTURES, MachineCode, accesses, unordered
from workshop.kernels.recorder import Recorder

pytestmark = pytest.mark.slow

FAULTY_MODULE = Path(__file__).parent / "planted_machine_code" / "compiled_kernels.py"
PROGRAM = ("-m", "workshop.kernels.program")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables" / "kernels.txt"


def _output(*words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _rows(**question: Any) -> list[dict[str, Any]]:
    pytest.importorskip("triton", reason="Triton is not installed, so nothing compiles or interprets kernels")
    whole = {"ops": [], "dtypes": ["float32"], "architectures": ["sm_90"], "once": True, **question}
    return [json.loads(line) for line in _output(*PROGRAM, json.dumps(whole)).splitlines()]


@functools.cache
def _shipped(table: str) -> list[dict[str, Any]]:
    return _rows(table=table)


@functools.cache
def _plant() -> dict[str, list[str]]:
    pytest.importorskip("triton", reason="Triton is not installed, so nothing compiles or interprets kernels")
    document: dict[str, list[str]] = json.loads(_output(str(FAULTY_MODULE)))
    return document


# ---------------------------------------------------------------------------------------------- what ships passes


def test_every_kernel_compiles_and_passes_the_gate() -> None:
    rows = _shipped("code")
    assert {row["kernel"] for row in rows if row["table"] == "code"} >= {"softmax_forward", "softmax_backward"}
    assert [row for row in rows if row["faults"]] == []


def test_no_op_moves_more_than_it_must() -> None:
    rows = _shipped("traffic")
    assert {row["op"] for row in rows if row["table"] == "traffic"} >= {"softmax", "log_softmax"}
    assert [row for row in rows if row["faults"]] == []


def test_the_page_has_the_machine_code_and_the_traffic_of_what_ships() -> None:
    """`python benchmarks/kernel_tables.py` writes them anew."""
    triton, page = pytest.importorskip("triton", reason="Triton is not installed"), PAGE.read_text(encoding="utf-8")
    text = (PAGE.parents[1] / "kernels.md").read_text(encoding="utf-8")
    (version,) = re.findall(r"as Triton (\S+) compiles it", text)
    if triton.__version__ != version:
        pytest.skip(f"the page has the machine code of Triton {version}, and this is {triton.__version__}")
    assert "\n".join(code_table(_shipped("code")).markdown()) in page
    rows = [line for line in traffic_table(_shipped("traffic")).markdown() if line.startswith("|")]
    assert [line for line in rows if f"{line}\n" not in page] == []


# --------------------------------------------------------------------------------------------- each fault fails


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("double_constant", "instructions in double precision"),
        ("approximate", "ex2.approx.f32: a GPU chooses the result"),
        ("spilling", "bytes of registers spilled"),
        ("strided", "100% of the bytes in accesses of fewer than 16 bytes"),
        ("unaligned", "100% of the bytes in accesses of fewer than 16 bytes"),
        ("shared", "262144 bytes of shared memory; a block has 232448 at most"),
        ("few_warps", "of the latency of memory covered"),
        ("traffic", "2.000 times the bytes that must move"),
        ("traffic", "kernels tell each other"),
    ],
)
def test_a_planted_fault_fails(name: str, message: str) -> None:
    assert message in "\n".join(_plant()[name])


def test_the_same_kernel_without_a_fault_passes() -> None:
    assert _plant()["sound"] == []


# -------------------------------------------------------------------------------------------------- the parts


def test_a_store_over_what_the_block_loaded_needs_a_barrier() -> None:
    lines = ["@%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];", "@%p2 st.global.b32 [ %rd1 + 0 ], { %r2 };"]
    assert unordered("\n".join(lines)) == {"%rd1"}
    assert unordered("\n".join([lines[0], "bar.sync \t0;", lines[1]])) == set()
    assert unordered("\n".join(reversed(lines))) == set()


def test_accesses_are_read_by_their_width() -> None:
    ptx = """
        @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
        ld.global.L1::evict_last.v2.b64 { %rd1, %rd2 }, [ %rd1 + 0 ];
        @!%p1 ld.global.b16 { %rs1 }, [ %rd1 + 0 ];
        @%p1 cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
        ld.shared.b32 %r72, [%r30];
        @%p1 st.global.v4.b32 [ %rd3 + 0 ], { %r9, %r10, %r11, %r12 };
    """
    assert accesses(ptx, "ld") == {2: 1, 16: 3}
    assert accesses(ptx, "st") == {16: 1}


@pytest.mark.parametrize(
    ("registers", "warps", "shared", "blocks"),
    [(32, 8, 0, 8), (33, 8, 0, 6), (255, 8, 0, 1), (255, 16, 0, 0), (16, 1, 0, 32), (16, 4, 100 << 10, 2)],
)
def test_resident_blocks_are_those_of_the_occupancy_calculator(
    registers: int, warps: int, shared: int, blocks: int
) -> None:
    assert (
        MachineCode(registers, 0, 0, shared, warps, {}, {}, frozenset(), 0, frozenset()).resident(
            ARCHITECTURES["sm_90"]
        )
        == blocks
    )


def test_a_launch_is_known_by_what_its_machine_code_depends_on() -> None:
    def key(x: torch.Tensor, number: int, **constants: int) -> str:
        recorder = Recorder()
        recorder.launch(_Kernel, (1,), (x, None, number), constants, 4)
        return recorder.launches[0].key()

    whole = torch.empty(64)
    assert key(whole, 32) == key(torch.empty(128), 160)
    assert key(whole, 32) == key(torch.empty(64, device="meta"), 32)
    others = [key(whole[1:], 32), key(whole, 33), key(whole, 1), key(whole, 1 << 35), key(whole, 32, BLOCK=2)]
    assert len({key(whole, 32), key(whole.half(), 32), *others}) == 7


class _Kernel:
    """Stands for a kernel, which is told by its name and module."""


def test_workspace_is_what_two_launches_take() -> None:
    recorder = Recorder()
    x = torch.empty(8)
    partial, result = (recorder.empty((n,), torch.float32, x.device) for n in (16, 4))
    recorder.launch(_Kernel, (1,), (x, partial), {}, 4)
    recorder.launch(_Kernel, (1,), (partial, result), {}, 4)
    assert recorder.workspace(0) == 64
    assert recorder.workspace(1) == 0


def test_classes_and_families_speak_of_the_same_ops() -> None:
    named = {op for ops in classes.FAMILIES.values() for op in ops}
    assert named == {kind.op for kind in CLASSES} == {kind.op for kind in first_of_each(CLASSES)}
    assert all(hasattr(impl, op) for op in named)
    assert tuple(ARCHITECTURES) == classes.ARCHITECTURES
    assert {kind.op for kind in select_classes(families=["norms"])} == set(classes.FAMILIES["norms"])


def _missing(ops: Iterable[Op]) -> list[str]:
    """What ops with kernels lack outside of their declaration, each as the line that is to be written."""
    with_classes = {kind.op for kind in CLASSES}
    lines = []
    for op in (op for op in ops if op.production.kernels):
        kernels = op.production.kernels
        if kernels not in with_classes:
            lines.append(f"{op.name}: a ShapeClass({kernels!r}, ...) in workshop/kernels/classes.py")
        if kernels == op.name and op.production.example is None:
            lines.append(f"{op.name}: example=lambda x: impl.{op.name}(x, ...) in its declaration, for CALLS")
    return lines


def test_an_op_with_kernels_has_classes_and_an_example_or_shares_those_of_one_that_has() -> None:
    assert _missing(map(load_op, op_names())) == []


def test_of_a_new_op_with_kernels_it_is_said_which_lines_are_missing() -> None:
    new = dataclasses.replace(load_op("trace"), name="new").changed(kernels="new", example=None)
    assert _missing([new]) == [
        "new: a ShapeClass('new', ...) in workshop/kernels/classes.py",
        "new: example=lambda x: impl.new(x, ...) in its declaration, for CALLS",
    ]
    assert _missing([dataclasses.replace(new, name="new_backward").changed(kernels="trace")]) == []


def test_why_is_said_where_a_class_is_held_to_less() -> None:
    assert [kind.name for kind in CLASSES if (not kind.dense or max(kind.limits) > 1.1) and not kind.why] == []


def test_more_rows_than_32_bits_count_are_all_rows() -> None:
    text = (
        "import torch\n"
        "from opassay import impl\n"
        "from opassay.impl.gpu import launching\n"
        "from workshop.kernels.recorder import Recorder\n"
        "from workshop.kernels import recording\n"
        "recording._serve_meta()\n"
        "recorder = Recorder()\n"
        "with launching.on(recorder):\n"
        "    impl.softmax(torch.empty((1 << 30, 2, 3), device='meta'), 1)\n"
        "print([operand for operand in recorder.launches[0].operands if isinstance(operand, int)][0])\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    # The operand is made on the host, because a product of two 32-bit operands would overflow in the kernel.
    assert int(done.stdout) == 3 << 30
