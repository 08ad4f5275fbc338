"""Which instructions the machine knows: every one of their modifiers has a meaning here, and no other is passed over.

Source: the syntax of each instruction in NVIDIA, PTX ISA 9.1, chapter 9; of it what Triton's compiler writes.
"""

from __future__ import annotations

import re

from ...verdicts.violation import Code, Unsupported
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
_VECTOR = r"(v[24]\.)?([bus](8|16|32|64)|f(32|64))"
_STATE_SPACE = r"(global|shared(::cta)?|local)"
_SCOPE = r"(cta|cluster|gpu|sys)"
_STRONG = rf"(weak|volatile|(relaxed|acquire|release)\.{_SCOPE})"
_PLACED = rf"({_STRONG}\.)?({_STATE_SPACE}(\.(ca|cg|cs|lu|cv|wb|wt))?{_CACHED}\.)?"
#: Triton writes the space before the order and the scope, the ISA behind them.
_ORDERED = rf"(({_STATE_SPACE}|relaxed|acquire|release|acq_rel|{_SCOPE})\.)*"
_CHANGED = (
    r"add\.([us]32|u64|f32|f64|noftz\.(f16|bf16)(x2)?|v[24]\.f32)|(min|max)\.[us](32|64)"
    r"|(and|or|xor)\.b(32|64)|(inc|dec)\.u32"
)
_MATRIX = r"sync\.aligned\.m8n8\.x[124](\.trans)?\.shared\.b16"
_HALF = "(bf16|f16)"
_PAIRS = r"rn\.(ftz\.)?f32x2"
_DIRECTED = rf"r[mpz]\.{_WITH_FTZ}"
_WITH_CARRY = "cc\\.[us](32|64)"
_SUM_OF_HALVES = rf"{_SUM}|{_WITH_CARRY}|(rn\.)?{_HALF}(x2)?|rn\.f32\.{_HALF}|{_PAIRS}|{_DIRECTED}"

#: The modifiers of an instruction, by its name.
_MODIFIERS = {
    "add": _SUM_OF_HALVES, "sub": _SUM_OF_HALVES, "fma": rf"{_ROUNDED}|{_DIRECTED}|rn\.{_HALF}(x2)?|{_PAIRS}",
    "mul": rf"{_ROUNDED}|{_WITH_FTZ}|f64|{_PAIRS}|{_DIRECTED}|(rn\.)?{_HALF}(x2)?|(lo|hi)\.{_INTEGER}"
           r"|wide\.[us](16|32)",
    "mad": rf"{_ROUNDED}|(lo|hi)\.{_INTEGER}|wide\.[us](16|32)|(lo|hi)\.{_WITH_CARRY}",
    "madc": r"(lo|hi)(\.cc)?\.[us](32|64)", **dict.fromkeys(("addc", "subc"), r"(cc\.)?[us](32|64)"),
    **dict.fromkeys(("popc", "clz", "brev", "bfi"), "b(32|64)"), "lop3": "b32", "shf": r"[lr]\.(wrap|clamp)\.b32",
    "copysign": "f(32|64)",
    "div": rf"{_ROUNDED}|(full|approx)\.{_WITH_FTZ}|{_INTEGER}", "rem": _INTEGER, "max": _EXTREME, "min": _EXTREME,
    "abs": rf"{_WITH_FTZ}|f64|s(16|32|64)|{_HALF}(x2)?", "neg": rf"{_WITH_FTZ}|f64|s(16|32|64)",
    "and": _LOGICAL, "or": _LOGICAL, "xor": _LOGICAL, "not": _LOGICAL, "shl": "b(16|32|64)", "shr": "[bus](16|32|64)",
    "bfe": "[us](32|64)", "prmt": "b32", "sqrt": _ROUNDED_OR_APPROXIMATE, "rsqrt": rf"approx\.{_WITH_FTZ}",
    "rcp": rf"{_ROUNDED_OR_APPROXIMATE}|approx\.ftz\.f64", "tanh": r"approx\.f32",
    **dict.fromkeys(("ex2", "lg2", "sin", "cos"), rf"approx\.{_WITH_FTZ}"),
    "mov": _PLAIN, "selp": "[bus](16|32|64)|f32|f64",
    "setp": rf"{_COMPARED}(\.ftz)?\.f32|{_COMPARED}\.(f64|b?f16(x2)?|[bus](16|32|64))",
    "cvt": rf"sat\.f32\.f32|rna\.tf32\.f32|r[nz]\.{_HALF}(x2\.f32|\.f32)|f32\.{_HALF}|f64\.f32|rn\.(ftz\.)?f32\.f64"
           rf"|r[nzmp]i\.(ftz\.)?f32\.f32"
           rf"|r[nzmp]i\.f64\.f64|rn\.f(32|64)\.[us](8|16|32|64)|r[nzmp]i\.(ftz\.)?[us](16|32|64)\.f32"
           rf"|r[nzmp]i\.[us](16|32|64)\.f64|[us](8|16|32|64)\.[us](8|16|32|64)",
    "cvta": r"(to\.)?(global|shared|local|const)\.u64",
    "ld": rf"param\.[bus](8|16|32|64)|param\.f(32|64)|{_PLACED}{_VECTOR}"
          rf"|global\.nc{_CACHED}\.{_VECTOR}|const\.{_VECTOR}",
    "st": rf"{_PLACED}{_VECTOR}", "atom": rf"{_ORDERED}({_CHANGED}|exch\.b(32|64)|cas\.b(16|32|64))",
    "red": rf"{_ORDERED}({_CHANGED})", "membar": "cta|gl|sys", "fence": rf"(sc|acq_rel)\.{_SCOPE}",
    "mma": rf"sync\.aligned\.(m16n8k(8|16)\.row\.col\.f32\.{_HALF}\.{_HALF}"
           r"|m16n8k(4|8)\.row\.col\.f32\.tf32\.tf32)\.f32"
           r"|sync\.aligned\.m16n8k(16|32)\.row\.col\.s32\.[us]8\.[us]8\.s32",
    "vote": r"sync\.((all|any|uni)\.pred|ballot\.b32)", "match": r"(any|all)\.sync\.b(32|64)", "activemask": "b32",
    "cp": rf"async\.c[ag]\.shared\.global{_CACHED}|async\.(commit_group|wait_group|wait_all)",
    "ldmatrix": _MATRIX, "stmatrix": _MATRIX, "bra": "(uni)?", "ret": "(uni)?", "exit": "",
    "bar": r"sync|warp\.sync", "barrier": r"sync(\.aligned)?",
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
