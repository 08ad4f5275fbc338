"""Reason codes, what each means, what usually causes it, and what to look at. Standard library only."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Code(enum.StrEnum):
    """Reason codes; `opassay explain CODE` tells what each means and what to look at."""

    HELD = "OA100"
    VALUE = "OA101"  # an element outside its accept set
    SPECIAL = "OA102"  # NaN, infinity or overflow where the exact reading has another value
    ATTRIBUTE = "OA103"  # dtype, shape, device, number of outputs
    BITS = "OA104"  # bits differ where they must be equal
    RAISED = "OA105"  # the subject raised on valid input
    NOT_RAISED = "OA106"  # the subject accepted documented invalid input, or raised another error
    MUTATED = "OA107"  # an input, a version counter, memory around a view, or a global changed
    ALIASED = "OA108"  # an output shares memory that the op did not declare
    ADJOINT = "OA109"  # <y, Jv> and <J^T y, v> differ by more than both bounds
    MEMORY = "OA110"  # more saved for backward than declared
    BIAS = "OA111"  # a systematic error far below one bound width
    OUT_OF_BOUNDS = "OA112"  # a kernel touched memory that is no operand's
    RACE = "OA113"  # programs or threads of a kernel touched one address, and no order is decided
    MISALIGNED = "OA114"  # a kernel touched an address that is no multiple of the bytes it touches there
    UNDEFINED = "OA115"  # a result of a kernel depends on memory to which nothing was written
    DIVERGENT = "OA116"  # threads of a warp do not come together to a barrier or a shuffle
    SPREAD = "OA117"  # a NaN or an infinity of an operand reaches more elements than in the spec, or fewer
    PARITY = "OA118"  # two candidates differ: why, and which of them is worse
    FEW_SAMPLES = "OA201"
    MOSTLY_NOT_JUDGED = "OA202"
    REGIME_NOT_JUDGED = "OA203"  # a regime of inputs was drawn, and no element of it could be judged
    VALUE_NOT_MET = "OA204"  # a declared value was in no sample, or nothing of the samples with it could be judged
    NOT_DIFFERENTIABLE = "OA301"
    DTYPE_OUTSIDE = "OA302"
    NO_SUBJECT = "OA303"
    NOT_APPLICABLE = "OA304"
    REFUSED = "OA305"  # the subject documents that it does not take this, and raised a clear error
    OPCODE = "OA306"  # an instruction of a compiled kernel that no meaning is built for
    NO_DEVICE = "OA401"
    INTERRUPTED = "OA402"
    DESELECTED = "OA403"
    NOT_BUILT = "OA404"
    RETIRED = "OA405"  # the op ended its process too often; its other cells were not asked
    CRASHED = "OA501"
    TIMED_OUT = "OA502"
    HARNESS = "OA503"
    READING = "OA504"  # two readings of one formula contradict each other
    DECLARATION = "OA505"  # the declaration of the op is wrong: it does not say what it has to


@dataclass(frozen=True)
class Explanation:
    """A code in words: what it is called, what it means, and what usually causes it and is to be looked at."""

    title: str
    meaning: str
    look_at: str


# Reports look a code up without a default, so every code needs an entry; `tests/reports/test_text.py` compares the two.
EXPLANATIONS: dict[Code, Explanation] = {
    Code.HELD: Explanation(
        "the promise held",
        "Every judged element lay in its accept set, with enough samples. Tested, not proved: it speaks of the"
        " inputs that were drawn, on this device, with these versions.",
        "Detectability: an error smaller than the half-width of the accept set could not have been seen.",
    ),
    Code.VALUE: Explanation(
        "an element outside its accept set",
        "The error of at least one element is larger than any sensible evaluation of the formula in this format"
        " can make. The bound is derived from the formula and the input; it is not a chosen tolerance. For values and"
        " first derivatives it is proven for the declared algorithms; from second derivatives on it takes a heuristic"
        " number of roundings per operation.",
        "The worst element: its index, both values, and whether the error is a factor (a wrong term), a power of"
        " two (a wrong scale) or grows with the reduction length (an accumulation in too narrow a format).",
    ),
    Code.SPECIAL: Explanation(
        "a special value in the wrong place",
        "The result is NaN, infinite or overflowed where the exact result is not, or the reverse.",
        "Intermediate overflow (a square, an exponential), 0 * inf, inf - inf, and max or where with NaN operands;"
        " in a derivative, a `where` that hides the value but not its gradient.",
    ),
    Code.ATTRIBUTE: Explanation(
        "another dtype, shape, device or number of outputs",
        "The values were not compared, because an output does not have the attributes that the op documents.",
        "Type promotion, a statistic returned in the accumulation format, a dimension dropped under vmap.",
    ),
    Code.BITS: Explanation(
        "bits differ where they must be equal",
        "Two results that are equal by construction are not the same bits: a primal with and without a tangent,"
        " two runs, an exact-data input, a permutation.",
        "A second code path: another kernel for the transformed op, another reduction order, atomics.",
    ),
    Code.RAISED: Explanation(
        "an exception on valid input",
        "The subject raised although the input is inside the op's documented domain and the transform is supported.",
        "The last frame of the trace: a missing batching or forward-mode rule, a check that is too strict, an"
        " assumption about strides.",
    ),
    Code.NOT_RAISED: Explanation(
        "invalid input accepted, or refused in another way",
        "A documented invalid input gave a result, or an exception of another type or text.",
        "Argument checks that only one of several entry points makes; checks that vanish under a transform.",
    ),
    Code.MUTATED: Explanation(
        "something changed that the op does not own",
        "An input, its version counter, the memory around a view, or a global such as a default dtype or a"
        " generator state is different after the call.",
        "In-place operations on an argument or on its view; a buffer reused between calls.",
    ),
    Code.ALIASED: Explanation(
        "an undeclared alias",
        "An output shares memory with an input or with another output, and the op does not declare it.",
        "Shortcuts that return the input itself: identity, empty reductions, `contiguous`, `to` of the same dtype.",
    ),
    Code.ADJOINT: Explanation(
        "forward and reverse mode disagree",
        "The inner products <y, J v> and <J^T y, v> differ by more than the sum of both bounds, so one of the two"
        " derivatives is not the derivative of the same function.",
        "The verdicts of VJP and JVP of the same op and dtype; the one that fails is the wrong one.",
    ),
    Code.MEMORY: Explanation(
        "more memory kept than declared",
        "More bytes are saved for the backward pass than the op's budget allows.",
        "Intermediate results saved where they could be computed again, and copies in a wider format.",
    ),
    Code.BIAS: Explanation(
        "a systematic error below the bound",
        "Every single element is inside its accept set, but the errors do not average out: their mean is far"
        " from zero for their number, and farther than the rounding of a constant can take all of them alike.",
        "A truncated constant, a one-sided rounding, a statistic divided by n where n - 1 is meant.",
    ),
    Code.OUT_OF_BOUNDS: Explanation(
        "a kernel touched memory that is no operand's",
        "An address that a program of the kernel reads or writes lies in none of its operands, or memory around one was"
        " written. On a GPU this reads another tensor, or destroys one.",
        "The mask of that load or store, the tail of the last block, and the strides. `opassay replay` repeats it.",
    ),
    Code.RACE: Explanation(
        "programs or threads of a kernel touch one address in no decided order",
        "Two programs write one address, or one writes what another reads, or threads of one program read what others"
        " wrote with no barrier between; or a sum is made by atomic additions. On a GPU the result depends on timing.",
        "Which program owns which output; whether a second launch should read what the first one wrote; within a"
        " program, the barrier before what other threads wrote is read.",
    ),
    Code.MISALIGNED: Explanation(
        "a kernel touches an address that is no multiple of the bytes it touches",
        "A load or a store of several bytes begins at an address that is not aligned to them, where a GPU traps.",
        "What the kernel was told of the alignment of its operands: views, strides, `tl.multiple_of`.",
    ),
    Code.UNDEFINED: Explanation(
        "a result depends on memory to which nothing was written",
        "A compiled kernel read a register, or shared memory, before anything was written there, and gives other"
        " results if other bytes stand there.",
        "A load whose mask hides more than is masked later, and what a block writes into shared memory.",
    ),
    Code.DIVERGENT: Explanation(
        "threads of a warp do not come together to a barrier or a shuffle",
        "Some threads of a warp execute a barrier, a shuffle or a reduction of the warp while others, which it waits"
        " for, are elsewhere or have ended. A GPU hangs there, or reads what nobody gave.",
        "The branch around the instruction, which must be the same for all threads of a warp.",
    ),
    Code.SPREAD: Explanation(
        "a NaN or an infinity of an operand reaches other elements than in the spec",
        "The candidate is right for all numbers. Where an operand is NaN or infinite, elements that do not depend on it"
        " are NaN, or have the number or the limit that the spec's own order of operations turns into a NaN. It is said"
        " and not counted.",
        "Masks that are added, products with zeros. `--contract torch+spread` allows it. If NaNs must not pass from one"
        " sequence to another, select elements in place of multiplying them by 0.",
    ),
    Code.PARITY: Explanation(
        "two implementations of one spec give other values",
        "The first word says why: `equal`, no bit differs; `order`, the order of sums explains it; `bias`, one lies to"
        " one side in nearly all of many independent calls; `precision`, one rounds where the other does not; `wrong`,"
        " one is outside of its contract; `open`, the bounds cannot tell.",
        "Of `precision` the line `likely`, which names the operation. Two kernels that differ by `order` alone have the"
        " same bits only if both take sums in one order.",
    ),
    Code.FEW_SAMPLES: Explanation(
        "too few samples",
        "The promise held, but fewer inputs were judged than the profile asks for.",
        "The discarded count: a strategy that rejects most of what it draws; a small --max-examples.",
    ),
    Code.MOSTLY_NOT_JUDGED: Explanation(
        "most elements could not be judged",
        "The promise held for the judged elements, but more than half lay outside the domain of the bound.",
        "Regimes of the strategy near overflow or cancellation, where the accept set is everything.",
    ),
    Code.REGIME_NOT_JUDGED: Explanation(
        "a regime of inputs was drawn, and none of its elements could be judged",
        "Everything that was judged held, but at least one kind of input that the op is asked about (the reason names"
        " it) gave no element with a finite bound, so this cell says nothing about that kind.",
        "The counts per regime in the report: whether the formula overflows there in every evaluation, or whether the"
        " samples of the regime were too few.",
    ),
    Code.VALUE_NOT_MET: Explanation(
        "a declared value was in no sample, or nothing of the samples with it could be judged",
        "Everything that was judged held, but at least one value that the op's samples are declared to have (an option,"
        " a dtype, an argument that is None; the reason names it) was not among what was judged, so this cell says"
        " nothing about it.",
        "The op's samples: whether they can have the value at all, and what the formula gives there.",
    ),
    Code.NOT_DIFFERENTIABLE: Explanation(
        "not differentiable",
        "The op has no derivative of this order or in this direction, by its contract.",
        "The declaration of the op: what it is differentiable in.",
    ),
    Code.DTYPE_OUTSIDE: Explanation(
        "dtype outside the contract",
        "The op does not document this dtype, or does not document it on this device.",
        "The dtypes in the op's declaration.",
    ),
    Code.NO_SUBJECT: Explanation(
        "no such implementation",
        "The op has no implementation by this subject, for example no counterpart in torch.",
        "The subjects in the op's declaration.",
    ),
    Code.NOT_APPLICABLE: Explanation(
        "the question does not apply",
        "The property asks for something that this op does not have, and the reason says what.",
        "The reason of the cell.",
    ),
    Code.REFUSED: Explanation(
        "refused, as documented",
        "The subject documents that it does not offer this, and raised a clear error, so nothing wrong was computed."
        " It is neither a failure nor verified: of what was refused nothing is known.",
        "The reason of the cell: what was refused, where that is documented, and the error.",
    ),
    Code.OPCODE: Explanation(
        "an instruction that no meaning is built for",
        "The PTX of a kernel has an opcode or a modifier that the machine does not know, so the kernel was not"
        " executed. The reason names it.",
        "`oracles/machine/ptx/grammar.py`, which lists what is known.",
    ),
    Code.NO_DEVICE: Explanation(
        "no such device here",
        "The plan asks for a device that this machine does not have; nothing was learnt about the cell.",
        "`opassay doctor`; run the cells on a machine with the device and merge the records.",
    ),
    Code.INTERRUPTED: Explanation(
        "the run ended first",
        "The run stopped before this cell: Ctrl-C, --maxfail, too many dead workers, or a missing shard.",
        "The exit reasons of the run.",
    ),
    Code.DESELECTED: Explanation(
        "deselected",
        "The cell is in the plan but was left out by -k, -m, or because it belongs to another shard.",
        "The command in the environment section.",
    ),
    Code.NOT_BUILT: Explanation(
        "no check exists yet",
        "The plan has this property but there is no code that asks it of this op.",
        "The properties package; the cell counts as a gap, never as a success.",
    ),
    Code.RETIRED: Explanation(
        "not asked, because the op ended its process too often",
        "Two cells of a property of this op and subject ended in a crash or ran out of time, so that its other cells of"
        " that property were not asked; where cells of two properties did, no other cell of the op was. One bad op"
        " costs the run no more than three processes.",
        "The cells of this op that are `crash` or `timeout`: their cards have the stacks. Run one of them alone.",
    ),
    Code.CRASHED: Explanation(
        "the process died",
        "The worker process ended while this cell ran: a segmentation fault, an abort, out of memory, a signal.",
        "The stacks on the failure card, the kernel log, and the cell alone with -n 1.",
    ),
    Code.TIMED_OUT: Explanation(
        "stopped after its time limit",
        "The cell took longer than --timeout seconds and its process was ended.",
        "The stacks on the failure card: where it waited; a lock, a collective, a compilation.",
    ),
    Code.HARNESS: Explanation(
        "the framework raised",
        "The check itself broke, so nothing is known about the op. A fault of opassay or of a declaration.",
        "The exception in the reason; it deserves a report.",
    ),
    Code.READING: Explanation(
        "two readings of the formula contradict each other",
        "The exact value lies outside the ball that the rounding reading puts around it, so the reference cannot be"
        " trusted for this input.",
        "The formula and the rounding rule of the operations it uses; nothing is known about the op.",
    ),
    Code.DECLARATION: Explanation(
        "the declaration of the op is wrong",
        "What the op's author declared contradicts itself: the samples are not of the kind that was asked for, the"
        " formula calls a function that has no reading, or what was declared raises. Nothing is known about the op.",
        "The reason names the field of the declaration, its line, what it gave, and what to write instead.",
    ),
}
