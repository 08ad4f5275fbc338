"""Which instructions the machine knows: every one of their modifiers has a meaning here, and no other is passed over.

Source: the syntax of each instruction in NVIDIA, PTX ISA 9.1, chapter 9; of it what Triton's compiler writes.
"""

from __future__ import annotations

import re

from ...verdicts.verdict import Code
from ...verdicts.violation import Unsupported
from .listing import Instruction

_INTEGER = "[us](16|32|64)"
_WITH_FTZ = r"(ftz\.)?f32"
_ROUNDED = rf"rn\.{_WITH_FTZ}|rn\.f64"
_SUM = rf"{_ROUNDED}|{_WITH_FTZ}|f64|{_INTEGER}"
_ROUNDED_OR_APPROXIMATE = rf"{_ROUNDED}|approx\.{_WITH_FTZ}"
_LOGICAL = "pred|b(16|32|64)"
_EXTREME = rf"(ftz\.)?(NaN\.)?f32|f64|{_INTEGER}|relu\.s32"
_PLAIN = "pred|[bus](16|32|64)|f32|f64"
_COMPARED = r"(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)(\.(and|or|xor))?"
_CACHED = r"(\.L[12]::[\w:]+)*"
_VECTOR = r"(\.v[24])?\.b(8|16|32|64)"
_ACCESS = rf"(global{_CACHED}|shared){_VECTOR}"
_MATRIX = r"sync\.aligned\.m8n8\.x[124](\.trans)?\.shared\.b16"
_HALF = "(bf16|f16)"
_PAIRS = r"rn\.(ftz\.)?f32x2"
_SUM_OF_HALVES = rf"{_SUM}|(rn\.)?{_HALF}(x2)?|rn\.f32\.{_HALF}|{_PAIRS}"

#: The modifiers of an instruction, by its name.
_MODIFIERS = {
    "add": _SUM_OF_HALVES, "sub": _SUM_OF_HALVES, "fma": rf"{_ROUNDED}|rn\.bf16(x2)?|{_PAIRS}",
    "mul": rf"{_ROUNDED}|{_WITH_FTZ}|f64|{_PAIRS}|lo\.{_INTEGER}|wide\.[us](16|32)",
    "mad": rf"{_ROUNDED}|lo\.{_INTEGER}|wide\.[us](16|32)",
    "div": rf"{_ROUNDED}|(full|approx)\.{_WITH_FTZ}|{_INTEGER}", "rem": _INTEGER, "max": _EXTREME, "min": _EXTREME,
    "abs": rf"{_WITH_FTZ}|f64|s(16|32|64)|{_HALF}(x2)?", "neg": rf"{_WITH_FTZ}|f64|s(16|32|64)",
    "and": _LOGICAL, "or": _LOGICAL, "xor": _LOGICAL, "not": _LOGICAL, "shl": "b(16|32|64)", "shr": "[bus](16|32|64)",
    "bfe": "[us](32|64)", "prmt": "b32", "sqrt": _ROUNDED_OR_APPROXIMATE, "rsqrt": rf"approx\.{_WITH_FTZ}",
    "rcp": rf"{_ROUNDED_OR_APPROXIMATE}|approx\.ftz\.f64", "tanh": r"approx\.f32",
    **dict.fromkeys(("ex2", "lg2", "sin", "cos"), rf"approx\.{_WITH_FTZ}"),
    "mov": _PLAIN, "selp": "[bus](16|32|64)|f32|f64",
    "setp": rf"{_COMPARED}(\.ftz)?\.f32|{_COMPARED}\.(f64|f16|bf16|[bus](16|32|64))",
    "cvt": rf"rn\.{_HALF}x2\.f32|rn\.{_HALF}\.f32|f32\.{_HALF}|f64\.f32|rn\.(ftz\.)?f32\.f64|r[nzmp]i\.(ftz\.)?f32\.f32"
           rf"|r[nzmp]i\.f64\.f64|rn\.f(32|64)\.[us](8|16|32|64)|r[nzmp]i\.(ftz\.)?[us](16|32|64)\.f32"
           rf"|r[nzmp]i\.[us](16|32|64)\.f64|[us](8|16|32|64)\.[us](8|16|32|64)",
    "cvta": r"(to\.)?(global|shared)\.u64",
    "ld": rf"param\.[bus](8|16|32|64)|param\.f(32|64)|{_ACCESS}", "st": _ACCESS,
    "cp": rf"async\.c[ag]\.shared\.global{_CACHED}|async\.(commit_group|wait_group|wait_all)",
    "ldmatrix": _MATRIX, "stmatrix": _MATRIX, "bra": "(uni)?", "ret": "(uni)?", "exit": "", "bar": r"sync|warp\.sync",
    "shfl": r"sync\.(bfly|idx|up|down)\.b32", "redux": r"sync\.((max|min|add)\.[us]32|(and|or|xor)\.b32)",
}  # fmt: skip
_KNOWN = {name: re.compile(modifiers) for name, modifiers in _MODIFIERS.items()}


def require_known(instruction: Instruction) -> None:
    """Require an instruction all of whose modifiers have a meaning here.

    Raises:
        Unsupported: another one; the text has its opcode.
    """
    modifiers = _KNOWN.get(instruction.name)
    if modifiers is None or not modifiers.fullmatch(".".join(instruction.modifiers)):
        raise unknown(instruction)


def unknown(instruction: Instruction, why: str = "it is not known") -> Unsupported:
    """The exception about an instruction that the machine cannot execute."""
    return Unsupported(Code.OPCODE, f"no meaning is built for the PTX of {instruction}: {why}")
