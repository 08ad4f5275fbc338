"""A kernel in PTX that has everything that can go wrong in one, and faults that a compiler could have put into it.

Every block has a row of 50 numbers, for 64 threads. y = round((x w + the sum of the row) / 2), by way of shuffles
within a warp, shared memory between the two warps, and a second round in which shared memory is written anew. The
numbers are such that every sum is exact, so that any order of it has the same bits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import torch

from opassay.oracles.verdicts.verdict import Code
from tests.oracles.machine.ptx.running import entry

ROWS, LENGTH = 3, 50
VALUES = "values"

_REGISTERS = ".reg .b32 %x;\n.reg .b32 %w;\n.reg .b32 %s<16>;\n.reg .b32 %shm;\n.reg .b32 %lane;\n.reg .b32 %a, %b, %y;"
_SHUFFLES = "\n".join(
    f"shfl.sync.bfly.b32 %s{2 * number + 1}, %s{2 * number}, {distance}, 31, -1;\n"
    f"add.rn.f32 %s{2 * number + 2}, %s{2 * number}, %s{2 * number + 1};"
    for number, distance in enumerate((16, 8, 4, 2, 1))
)
_BODY = f"""
setp.lt.s32 %p1, %t, {LENGTH};
mad.lo.s32 %r1, %c, {LENGTH}, %t;
mad.wide.s32 %rd10, %r1, 4, %rd0;
mul.wide.s32 %rd11, %t, 4;
add.s64 %rd11, %rd1, %rd11;
mad.wide.s32 %rd12, %r1, 4, %rd2;
mov.b32 %x, 0;
@%p1 ld.global.b32 %x, [%rd10];
mov.b32 %w, 0;
@%p1 ld.global.b32 %w, [%rd11];
mov.b32 %s0, %x;
{_SHUFFLES}
and.b32 %lane, %t, 31;
setp.eq.b32 %p2, %lane, 0;
shr.u32 %r2, %t, 5;
mov.u32 %shm, partial;
mad.lo.s32 %shm, %r2, 4, %shm;
@%p2 st.shared.b32 [%shm], %s10;
bar.sync 0;
ld.shared.v2.b32 {{%a, %b}}, [partial];
add.rn.f32 %s11, %a, %b;
bar.sync 0;
neg.f32 %s12, %s10;
@%p2 st.shared.b32 [%shm], %s12;
bar.sync 0;
ld.shared.b32 %a, [partial];
ld.shared.b32 %b, [partial+4];
add.rn.f32 %s13, %a, %b;
sub.rn.f32 %s14, %s11, %s13;
mul.rn.f32 %s14, %s14, 0f3F000000;
fma.rn.f32 %y, %x, %w, %s14;
mul.rn.f32 %y, %y, 0f3F000000;
ROUND
@%p1 st.global.b32 [%rd12], %y;
"""
_SHARED = ".shared .align 16 .b8 partial[8];\n"


def kernel(rounding: bool = True) -> str:
    """The text; without `rounding`, y is not rounded to an integer."""
    body = _BODY.replace("ROUND", "cvt.rni.f32.f32 %y, %y;" if rounding else "")
    return entry(body, 3, _REGISTERS, _SHARED)


def operands(scale: float = 1.0) -> list[torch.Tensor]:
    """x, w, and a y that nothing was written to; x of small integers times `scale`."""
    rng = np.random.default_rng(50)
    x = torch.from_numpy(rng.integers(-8, 9, (ROWS, LENGTH)).astype(np.float64) * scale).float()
    w = torch.from_numpy(rng.integers(2, 9, LENGTH).astype(np.float32))
    return [x, w, torch.full((ROWS, LENGTH), float("nan"))]


def expected(x: torch.Tensor, w: torch.Tensor, rounding: bool = True) -> torch.Tensor:
    """What y must be, bit for bit."""
    y = (x.double() * w + x.double().sum(1, keepdim=True)) / 2
    return (y.round() if rounding else y).float()


@dataclass(frozen=True)
class Edit:
    """A fault in the text.

    Attributes:
        name: in words. pattern, replacement: of `re`. code: what must catch it, or `VALUES`.
        number: which of the places that the pattern fits. scale: of the operands that show it.
    """

    name: str
    pattern: str
    replacement: str
    code: Code | str
    number: int = 0
    scale: float = 1.0

    def apply(self, text: str) -> str:
        """The text with the fault."""
        match = list(re.finditer(self.pattern, text, re.MULTILINE))[self.number]
        return text[: match.start()] + match.expand(self.replacement) + text[match.end() :]


_BARRIER = r"bar\.sync 0;"
EDITS = (
    Edit("first barrier removed", _BARRIER, "", Code.RACE),
    Edit("barrier before memory is written anew removed", _BARRIER, "", Code.RACE, 1),
    Edit("last barrier removed", _BARRIER, "", Code.RACE, 2),
    Edit("barrier for some threads", _BARRIER, "@%p1 bar.sync 0;", Code.DIVERGENT),
    Edit("predicate of the store dropped", r"@%p1 st\.global", "st.global", Code.OUT_OF_BOUNDS),
    Edit("predicate of the store negated", r"@%p1 st\.global", "@!%p1 st.global", Code.OUT_OF_BOUNDS),
    Edit("predicate of a load dropped", r"@%p1 (ld\.global\.b32 %x)", r"\1", Code.OUT_OF_BOUNDS),
    Edit("lt to le", r"setp\.lt", "setp.le", Code.OUT_OF_BOUNDS),
    Edit("lt to gt", r"setp\.lt", "setp.gt", Code.OUT_OF_BOUNDS),
    Edit("a constant lower", rf"setp\.lt\.s32 %p1, %t, {LENGTH}", f"setp.lt.s32 %p1, %t, {LENGTH - 1}", VALUES),
    Edit("operands of fma swapped", r"fma\.rn\.f32 %y, %x, %w, %s14", "fma.rn.f32 %y, %x, %s14, %w", VALUES),
    Edit("product of fma dropped", r"fma\.rn\.f32 %y, %x, %w, %s14", "add.rn.f32 %y, %x, %s14", VALUES),
    Edit("distance of a shuffle", r"%s0, 16, 31", "%s0, 8, 31", VALUES),
    Edit("segment of a shuffle", r"16, 31, -1", "16, 15, -1", VALUES),
    Edit("members of a shuffle", r"16, 31, -1", "16, 31, 0xffff", Code.DIVERGENT),
    Edit("a shuffle for some threads", r"shfl\.sync", "@%p1 shfl.sync", Code.DIVERGENT),
    Edit("address of another row, read", r"(mad\.wide\.s32 %rd10, )%r1", r"\1%t", VALUES),
    Edit("address of another row, written", r"(mad\.wide\.s32 %rd12, )%r1", r"\1%t", Code.RACE),
    Edit("rows that overlap", rf"%c, {LENGTH}, %t", f"%c, {LENGTH - 1}, %t", Code.RACE),
    Edit("an address between two elements", r"\[%rd10\]", "[%rd10+2]", Code.MISALIGNED),
    Edit("a wider load", r"@%p1 ld\.global\.b32 %x, \[%rd10\];", "@%p1 ld.global.v2.b32 {%x, %y}, [%rd10];",
         Code.MISALIGNED),
    Edit("an offset of shared memory", r"\[partial\+4\]", "[partial+8]", Code.UNDEFINED),
    Edit("beyond shared memory", r"\[partial\+4\]", "[partial+64]", Code.OUT_OF_BOUNDS),
    Edit("a register that nothing was written to", r"mov\.b32 %x, 0;", "", Code.UNDEFINED),
    Edit("one warp alone writes", r"setp\.eq\.b32 %p2, %lane", "setp.eq.b32 %p2, %t", Code.UNDEFINED),
    Edit("a store left out", r"@%p1 st\.global.*", "", VALUES),
    Edit("add to sub", r"add\.rn\.f32 %s11", "sub.rn.f32 %s11", VALUES),
    Edit("to another integer", r"cvt\.rni", "cvt.rmi", VALUES),
    Edit("signed to unsigned", r"cvt\.rni\.f32\.f32 %y", "abs.f32 %y", VALUES),
    Edit("subnormal numbers flushed by a product", r"mul\.rn\.f32 %y", "mul.rn.ftz.f32 %y", VALUES, scale=2.0**-133),
    Edit("subnormal numbers flushed by a sum", r"add\.rn\.f32 %s2,", "add.rn.ftz.f32 %s2,", VALUES, scale=2.0**-133),
    Edit("an unknown rounding", r"add\.rn\.f32 %s11", "add.rna.f32 %s11", Code.OPCODE),
    Edit("saturated", r"fma\.rn\.f32", "fma.rn.sat.f32", VALUES),
    Edit("another barrier", _BARRIER, "bar.sync 16;", Code.OPCODE),
    Edit("an unknown instruction", r"neg\.f32 %s12, %s10", "testp.finite.f32 %s12, %s10", Code.OPCODE),
)  # fmt: skip
