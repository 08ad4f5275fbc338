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
_PLAIN = "pred|[bus](16|32|64)|f32|f64"
_COMPARED = r"(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)(\.(and|or|xor))?"
_CACHED = r"(\.L[12]::[\w:]+)*"
_VECTOR = r"(v[24]\.)?([bus](8|16|32|64)|f(32|64))"
_STATE_SPACE = r"(global|shared(::cta|::cluster)?|local)"
_SCOPE = r"(cta|cluster|gpu|sys)"
_STRONG = rf"(weak|volatile|(relaxed|acquire|release)\.{_SCOPE})"
_PLACED = rf"({_STRONG}\.)?({_STATE_SPACE}(\.(ca|cg|cs|lu|cv|wb|wt))?{_CACHED}\.)?"
#: Triton writes the space before the order and the scope, the ISA behind them.
_ORDERED = rf"(({_STATE_SPACE}|relaxed|acquire|release|acq_rel|{_SCOPE})\.)*"
_CHANGED = (
    r"add\.([us]32|u64|f32|f64|v[24]\.f32|noftz\.((v[24]\.)?b?f16(x2)?|v8\.b?f16))|(min|max)\.[us](32|64)"
    r"|(and|or|xor)\.b(32|64)|(inc|dec)\.u32|(min|max)\.noftz\.(v[248]\.b?f16|v[24]\.b?f16x2)"
)
_COMBINED = (
    r"add\.([us]32|u64|f32|f64|noftz\.b?f16)|(min|max)\.([us](32|64)|b?f16)|(inc|dec)\.u32|(and|or|xor)\.b(32|64)"
)
#: CUTLASS writes the number before the shape, which ptxas takes, too.
_MATRIX = r"sync\.aligned\.(m8n8\.x[124](\.trans)?|x[124](\.trans)?\.m8n8)\.shared\.b16"
_TILE = r"m\d+n\d+k\d+"
_HALF = "(bf16|f16)"
_EXTREME = (
    rf"(ftz\.)?(NaN\.)?((xorsign\.)?abs\.)?f32|f64|{_INTEGER}|[us]16x2|relu\.s(32|16x2)"
    rf"|(ftz\.)?(NaN\.)?(xorsign\.abs\.)?f16(x2)?|(NaN\.)?(xorsign\.abs\.)?bf16(x2)?"
)
_PAIRS = r"(rn\.)?(ftz\.)?f32x2"
_LOW_BITS = "(e4m3|e5m2)x2"
_NARROWED = r"r[nzmp]\.(relu\.)?(satfinite\.)?"
_DIRECTED = rf"r[mpz]\.{_WITH_FTZ}"
_WITH_CARRY = "cc\\.[us](32|64)"
_OF_HALVES = rf"(rn\.)?(sat\.)?{_HALF}(x2)?|(rn\.)?(ftz\.)?sat\.f32"
_SUM_OF_HALVES = rf"{_SUM}|{_WITH_CARRY}|{_OF_HALVES}|rn\.f32\.{_HALF}|{_PAIRS}|{_DIRECTED}"

#: The space of a barrier in memory, and the order that comes with it.
_GATE = r"(\.shared(::cta|::cluster)?)?\.b64"
_MEETING = rf"(\.(acquire|release|relaxed))?(\.{_SCOPE})?"

#: The modifiers of an instruction, by its name.
_MODIFIERS = {
    "add": _SUM_OF_HALVES, "sub": _SUM_OF_HALVES,
    "fma": rf"{_ROUNDED}|{_DIRECTED}|rn\.(sat\.|relu\.)?{_HALF}(x2)?|{_PAIRS}"
           rf"|rn\.f32\.{_HALF}|rn\.(ftz\.)?sat\.f32",
    "mul": rf"{_ROUNDED}|{_WITH_FTZ}|f64|{_PAIRS}|{_DIRECTED}|{_OF_HALVES}|(lo|hi)\.{_INTEGER}"
           r"|wide\.[us](16|32)",
    "mad": rf"{_ROUNDED}|(lo|hi)\.{_INTEGER}|wide\.[us](16|32)|(lo|hi)\.{_WITH_CARRY}",
    "madc": r"(lo|hi)(\.cc)?\.[us](32|64)", **dict.fromkeys(("addc", "subc"), r"(cc\.)?[us](32|64)"),
    **dict.fromkeys(("popc", "clz", "brev", "bfi"), "b(32|64)"), "lop3": "b32", "shf": r"[lr]\.(wrap|clamp)\.b32",
    "copysign": "f(32|64)",
    "div": rf"{_ROUNDED}|(full|approx)\.{_WITH_FTZ}|{_INTEGER}", "rem": _INTEGER, "max": _EXTREME, "min": _EXTREME,
    "abs": rf"{_WITH_FTZ}|f64|s(16|32|64)|{_HALF}(x2)?", "neg": rf"{_WITH_FTZ}|f64|s(16|32|64)|{_HALF}(x2)?",
    "and": _LOGICAL, "or": _LOGICAL, "xor": _LOGICAL, "not": _LOGICAL, "shl": "b(16|32|64)", "shr": "[bus](16|32|64)",
    "bfe": "[us](32|64)", "bfind": r"(shiftamt\.)?[us](32|64)",
    "prmt": "b32", "sqrt": _ROUNDED_OR_APPROXIMATE, "rsqrt": rf"approx\.{_WITH_FTZ}",
    "rcp": rf"{_ROUNDED_OR_APPROXIMATE}|approx\.ftz\.f64", "tanh": r"approx\.f32",
    **dict.fromkeys(("ex2", "lg2", "sin", "cos"), rf"approx\.{_WITH_FTZ}"),
    "mov": _PLAIN, "selp": "[bus](16|32|64)|f32|f64",
    "setp": rf"{_COMPARED}(\.ftz)?\.f32|{_COMPARED}\.(f64|b?f16(x2)?|[bus](16|32|64))",
    "set": rf"{_COMPARED}(\.ftz)?\.([us]32|f32)\.f32|{_COMPARED}\.([us]32|f32)\.[us]32"
           rf"|{_COMPARED}\.(f16\.f16|bf16\.bf16|f16x2\.f16x2|bf16x2\.bf16x2|[us]32\.{_HALF}(x2)?)",
    "cvt": rf"(r[nzmp]i\.)?((ftz\.)?(sat\.)?f32\.f32|(sat\.)?f64\.f64)|rna\.tf32\.f32"
           rf"|{_NARROWED}{_HALF}(x2)?\.f32|f(32|64)\.{_HALF}|f64\.f32|rn\.(ftz\.)?f32\.f64"
           rf"|(rn\.)?bf16\.f16|rn\.f16\.bf16|r[nzmp]\.{_HALF}\.([us](8|16|32|64)|f64)"
           rf"|rn\.satfinite\.(relu\.)?{_LOW_BITS}\.(f32|f16x2)|rn\.(relu\.)?f16x2\.{_LOW_BITS}"
           rf"|r[nzmp]i\.(f16\.f16|bf16\.bf16)|rn\.f(32|64)\.[us](8|16|32|64)"
           rf"|r[nzmp]i\.(ftz\.)?[us](8|16|32|64)\.f32|r[nzmp]i\.[us](8|16|32|64)\.(f64|{_HALF})"
           rf"|[us](8|16|32|64)\.[us](8|16|32|64)",
    "createpolicy": r"(fractional|range)\.L2::\w+(\.L2::\w+)?\.b64|cvt\.L2\.b64",
    "cvta": r"(to\.)?(global|shared(::cta|::cluster)?|local|const|param)\.u64",
    "ld": rf"param\.{_VECTOR}|{_PLACED}{_VECTOR}"
          rf"|global\.nc{_CACHED}\.{_VECTOR}|const\.{_VECTOR}",
    "st": rf"{_PLACED}{_VECTOR}"
          r"|async(\.weak)?(\.shared::cluster)?\.mbarrier::complete_tx::bytes\.(v[24]\.)?[busf](32|64)",
    **dict.fromkeys(("mapa", "getctarank"), r"(shared::cluster\.)?u(32|64)"),
    "atom": rf"{_ORDERED}({_CHANGED}|exch\.b(32|64)|cas\.b(16|32|64))",
    "red": rf"{_ORDERED}({_CHANGED})", "membar": "cta|gl|sys", "fence": rf"(sc|acq_rel|acquire|release)\.{_SCOPE}"
                                                     r"|proxy\.(async(\.(global|shared::cta|shared::cluster))?|alias)"
             rf"|proxy\.tensormap::generic\.(acquire|release)\.{_SCOPE}|mbarrier_init\.release\.cluster",
    "mbarrier": rf"(init|inval){_GATE}|(arrive|arrive_drop)(\.expect_tx)?{_MEETING}{_GATE}"
                rf"|(expect_tx|complete_tx)(\.relaxed\.{_SCOPE})?{_GATE}|(try|test)_wait(\.parity)?{_MEETING}{_GATE}",
    "tensormap": r"replace\.tile\.(global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype"
                 r"|interleave_layout|swizzle_mode|fill_mode)(\.(shared::cta|global))?\.b1024\.b(32|64)"
                 rf"|cp_fenceproxy\.global\.shared::cta\.tensormap::generic\.release\.{_SCOPE}\.sync\.aligned",
    "nanosleep": "u32", "griddepcontrol": "wait|launch_dependents", "prefetchu": "L1",
    "prefetch": r"((global|local)\.)?L[12](::evict_(last|normal))?|((param|const)\.)?tensormap",
    "elect": "sync", "setmaxnreg": r"(inc|dec)\.sync\.aligned\.u32",
    "mma": rf"sync\.aligned\.(m16n8k(8|16)\.row\.col\.f32\.{_HALF}\.{_HALF}"
           r"|m16n8k(4|8)\.row\.col\.f32\.tf32\.tf32)\.f32"
           r"|sync\.aligned\.m16n8k(16|32)\.row\.col\.(satfinite\.)?s32\.[us]8\.[us]8\.s32"
           r"|sync\.aligned\.m16n8k(16|32)\.row\.col\.f32\.(e4m3|e5m2)\.(e4m3|e5m2)\.f32"
           r"|sync\.aligned\.m16n8k(8|16)\.row\.col\.f16\.f16\.f16\.f16"
           r"|sync\.aligned\.(m8n8k4|m16n8k(4|8|16))\.row\.col\.(rn\.)?f64\.f64\.f64\.f64",
    "wmma": rf"load\.[abc]\.sync\.aligned\.(row|col)\.{_TILE}(\.(global|shared)(::cta)?)?\.(b?f16|tf32|[us]8|f32|s32)"
            rf"|store\.d\.sync\.aligned\.(row|col)\.{_TILE}(\.(global|shared)(::cta)?)?\.(f16|f32|s32)"
            rf"|mma\.sync\.aligned\.(row|col)\.(row|col)\.{_TILE}\.(f(16|32)\.f(16|32)|f32\.bf16\.bf16\.f32"
            r"|f32\.tf32\.tf32\.f32|s32\.[us]8\.[us]8\.s32(\.satfinite)?)",
    "wgmma": r"(fence|commit_group|wait_group)\.sync\.aligned"
             r"|mma_async\.sync\.aligned\.m64n\d+k16\.(f32\.(f16\.f16|bf16\.bf16)|f16\.f16\.f16)"
             r"|mma_async\.sync\.aligned\.m64n\d+k8\.f32\.tf32\.tf32"
             r"|mma_async\.sync\.aligned\.m64n\d+k32\.((f32|f16)\.(e4m3|e5m2)\.(e4m3|e5m2)"
             r"|(satfinite\.)?s32\.[us]8\.[us]8)",
    "vote": r"sync\.((all|any|uni)\.pred|ballot\.b32)", "match": r"(any|all)\.sync\.b(32|64)", "activemask": "b32",
    "cp": rf"async\.c[ag]\.shared\.global{_CACHED}|async\.(commit_group|wait_group|wait_all)"
          rf"|async\.mbarrier\.arrive(\.noinc)?{_GATE}"
          r"|async\.bulk\.(commit_group|wait_group(\.read)?)|async\.bulk\.prefetch\.(tensor\.[1-5]d\.)?L2\.global(\.tile)?"
          rf"|async\.bulk\.(tensor\.[1-5]d\.)?shared::(cta|cluster)\.global(\.tile)?\.mbarrier::complete_tx::bytes(\.multicast::cluster)?"
          rf"{_CACHED}"
          rf"|async\.bulk\.(tensor\.[1-5]d\.)?global\.shared::cta(\.tile)?\.bulk_group{_CACHED}"
          rf"|reduce\.async\.bulk\.global\.shared::cta\.bulk_group{_CACHED}\.({_COMBINED})",
    "ldmatrix": _MATRIX, "stmatrix": _MATRIX, "bra": "(uni)?", "ret": "(uni)?", "exit": "",
    "call": "(uni)?", "trap": "",
    "bar": r"(cta\.)?(sync|arrive)|warp\.sync",
    "barrier": r"((cta\.)?(sync|arrive)|cluster\.(arrive(\.(release|relaxed))?|wait(\.acquire)?))(\.aligned)?",
    "shfl": r"sync\.(bfly|idx|up|down)\.b32", "redux": r"sync\.((max|min|add)\.[us]32|(and|or|xor)\.b32)",
}  # fmt: skip
_KNOWN = {name: re.compile(modifiers) for name, modifiers in _MODIFIERS.items()}


def require_known(instruction: Instruction) -> None:
    """Require an instruction all of whose modifiers have a meaning here.

    Raises:
        Unsupported: another one; the text has its opcode.
    """
    known, modifiers = _KNOWN.get(instruction.name), instruction.modifiers
    if instruction.name in ("atom", "red"):  # libcu++ writes what is done before the order, which ptxas takes as well
        modifiers = tuple(sorted(modifiers, key=lambda word: re.fullmatch(_ORDERED, f"{word}.") is None))
    if known is None or not known.fullmatch(".".join(modifiers)):
        raise unknown(instruction)


def unknown(instruction: Instruction, why: str = "it is not known") -> Unsupported:
    """The exception about an instruction that the machine cannot execute."""
    return Unsupported(Code.OPCODE, f"no meaning is built for the PTX of {instruction}: {why}")
