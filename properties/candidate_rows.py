"""What is asked of a candidate besides the properties of an op, in words; `candidates.asking` has a function for each.

LIKELY is a statistical verdict beside the worst case: how many standard deviations of rounding an output is off, and to
which side. It ends in "suspect", and is never mixed with what is proven.
"""

from __future__ import annotations

from .property import Property

# fmt: off
#: In the order in which they are asked; a candidate is asked AUTOCAST of the other table before the last two.
ROWS = (
    Property("PROCESS", "torch and the process untouched while the candidate is made",
        "The process is compared before and after the candidate's file is imported: torch's defaults and "
        "functions, Python's modules, the generators of random numbers."),
    Property("GIVEN", "values on the given inputs",
        "The candidate is called with the given inputs, in the memory layout that they have, and every element is "
        "held against its accept set."),
    Property("UNTOUCHED", "inputs untouched",
        "The inputs of a call have the same bits after it, but for those that the spec writes."),
    Property("FRESH", "outputs in memory of their own",
        "No output shares memory with an input or with another output, but for those of the spec that do."),
    Property("SAME", "the same tensors with other data",
        "The same tensor objects get other values, and the candidate is called again: a result that was "
        "remembered by the object is wrong then."),
    Property("KEPT", "earlier outputs as they were after a later call",
        "The outputs of a call have the same bits after another call with other values."),
    Property("REBORN", "other tensors in the same memory",
        "New tensors in the memory of earlier ones are given: a result that was remembered by the address is "
        "wrong then."),
    Property("AGAIN", "every later call as the first",
        "Many calls are made in a row. One whose bits differ from the first is held against the spec, too, "
        "and the process is compared afterwards."),
    Property("SEEDS", "values: other seeds",
        "The inputs are drawn anew, between the values that the given ones have."),
    Property("SIGNS", "values: both signs",
        "The inputs have both signs: random numbers of one sign alone hide a missing absolute value."),
    Property("OFFSET", "values: around 100",
        "The inputs lie around 100, where exponentials overflow and sums cancel."),
    Property("NEARONE", "values: around 1",
        "The inputs lie within a few hundredths of 1, where differences cancel."),
    Property("WIDE", "values: exponents of 24 bits",
        "The inputs are normal numbers, each times a power of two between 2^-16 and 2^8."),
    Property("SMALL", "values: around 2^-20",
        "The inputs are normal numbers times 2^-20, where a constant such as eps decides."),
    Property("ZEROS", "values: zeros",
        "All inputs are zero."),
    Property("INTEGERS", "values: small integers, exact in every order",
        "The inputs are integers from -4 to 4, so that sums and products are exact in every order; what is exact "
        "must be returned exactly."),
    Property("BITS", "values: integers of 12 bits, which reduced precision rounds",
        "One input in its turn holds integers of twelve bits and all others -1, 0 or 1, so that float32 is exact: "
        "a candidate that rounds its operands to bfloat16 or TF32 is wrong then."),
    Property("PARAMS", "values: other parameters and buffers",
        "The parameters and buffers that both modules have get other values."),
    Property("NAN", "values: a few NaNs",
        "One in a thousand of the inputs' elements, and at least one, is NaN."),
    Property("INF", "values: a few infinities",
        "One in a thousand of the inputs' elements, and at least one, is infinite."),
    Property("STRIDES", "values: strided inputs",
        "The inputs are rows cut out of a wider tensor, every second element, transposed, and expanded along axis "
        "0, in turn. A clear error is no fault."),
    Property("ALIGN", "values: inputs at odd addresses",
        "The inputs begin at addresses that are no multiple of 16 bytes. A clear error is no fault."),
    Property("POISON", "values: memory that was not written reads as NaN",
        "Memory that the candidate allocates and does not write reads as NaN."),
    Property("GRAD", "gradients of inputs and parameters",
        "The gradients of inputs and parameters are taken with random cotangents and held against the exact ones: "
        "at the given inputs, by a second backward, at others with other parameters, and with operands and "
        "cotangents that are not contiguous. The outputs of a call that records gradients are held, too, and the "
        "inputs must be as before."),
    Property("COMPILED", "values and gradients under torch.compile",
        "The candidate is traced by torch.compile, and the graph is run. A clear error is no fault."),
    Property("SIZES", "values: other sizes",
        "Every size of the inputs in its turn becomes one of 129, 1025 and 4099, one of 128, 1024 and 4096, and 1 "
        "or 37, where the spec takes that. A clear error is no fault."),
    Property("LIKELY", "values no farther off than random errors are",
        "The errors of many elements together are no larger, and no more of one sign, than independent "
        "roundings are likely to make them. This is a statistical verdict: it can end in suspect, never in "
        "rejected."),
    Property("LEFT", "nothing left running, no file written",
        "After the last call no thread or process is running that the candidate began, and no file was "
        "written."),
)
# fmt: on
