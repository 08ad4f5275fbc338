"""The limits that the machine code of a kernel must keep, each with its reason."""

from __future__ import annotations

from .compiler import Architecture, MachineCode
from .recorder import Launch

#: The share of the latency of memory that the accesses under way at once must cover, by the model of
#: `MachineCode.hidden`. The model assumes latencies, so the limit is low: only a kernel that is far off is refused.
LATENCY_COVER = 1 / 2
#: Instructions, by kernel, of which the PTX ISA gives a bound alone and a GPU chooses the result; the kernel's text
#: says what follows from the bound. All other instructions that kernels of single precision have round correctly.
_OF_RESPONSE_NORM = {"ex2.approx.ftz.f32", "rsqrt.approx.ftz.f32", "sqrt.approx.ftz.f32"}
APPROXIMATIONS = dict.fromkeys(("response_norm_forward", "response_norm_backward"), _OF_RESPONSE_NORM)


def faults(launch: Launch, code: MachineCode, on: Architecture, *, streams: int) -> list[str]:
    """The reasons for which a kernel fails; none where it passes.

    Args:
        launch: of the kernel. code: its machine code, compiled for `on`.
        streams: how many operands of data the launch moves at a dense shape class, so that its accesses can be wide,
            and must be; 0 where they need not.
    """
    reasons = []
    if code.stack:
        spilled = f", of them {code.spills} bytes of registers spilled" if code.spills else ""
        reasons.append(f"a thread has {code.stack} bytes of stack{spilled}; need 0")
    if code.doubles and not launch.double:
        reasons.append(f"{code.doubles} instructions in double precision, and no operand is; need 0")
    if code.unordered:
        reasons.append(f"{len(code.unordered)} addresses loaded and then stored to with no barrier between; need 0")
    approximations = code.approximations - APPROXIMATIONS.get(launch.name, set())
    if approximations:
        reasons.append(
            f"{', '.join(sorted(approximations))}: a GPU chooses the result within a bound, and no list says why"
        )
    if code.shared > on.shared_block:
        reasons.append(f"{code.shared} bytes of shared memory; a block has {on.shared_block} at most")
    elif not code.resident(on):
        reasons.append(f"{code.registers} registers in {code.warps} warps: no block fits on a multiprocessor")
    if not streams:
        return reasons
    narrow = narrow_allowed(streams)
    if code.narrow > narrow:
        reasons.append(f"{code.narrow:.0%} of the bytes in accesses of fewer than 16 bytes; need {narrow:.1%} at most")
    if code.latency_cover(on) < LATENCY_COVER:
        cover = f"{code.latency_cover(on):.0%} of the latency of memory covered; need {LATENCY_COVER:.0%}"
        reasons.append(f"{cover} ({code.registers} registers, {code.resident(on) * code.warps} of {on.warps} warps)")
    return reasons


def narrow_allowed(streams: int) -> float:
    """The share of the bytes that may go in accesses of fewer than 16 bytes, for a number of operands of data.

    Statistics and parameters, a number or two for each row, may be narrow; data may not. A kernel reads an operand
    twice at most and writes one once, so what it writes is at least one part in twice the number of operands, less one.
    """
    return 1 / (2 * streams - 1)
