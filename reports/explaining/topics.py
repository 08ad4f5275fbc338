"""What a property asks and which fault it sees, what a profile costs, and what a subject is, in plain sentences.

The names are those of `properties.table`, `properties.engine.profiles` and `properties.names`, which reports must not
import; `tests/reports/test_explain.py` holds both lists against each other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """A property in words.

    Attributes:
        asks: what is done and what has to come out. fault: an example of a mistake that it sees.
    """

    asks: str
    fault: str


ASKED: dict[str, Asked] = {
    "FWD": Asked(
        "The op is called, and every element of its outputs is held against the exact value of the formula.",
        "A sum of float16 numbers that is accumulated in float16 and not in float32.",
    ),
    "VJP": Asked(
        "Gradients are taken in reverse mode, as `backward` does, with random cotangents, and every element is held"
        " against the exact derivative.",
        "A backward pass that forgets the term of the mean in the gradient of a norm.",
    ),
    "JVP": Asked(
        "Derivatives are taken in forward mode, as `torch.func.jvp` does, with random tangents, and every element is"
        " held against the exact derivative.",
        "A forward-mode rule that ignores the tangent of the weight.",
    ),
    "ORD2": Asked(
        "Second derivatives are taken in all four orders of forward and reverse mode.",
        "A backward pass that treats a saved statistic as a constant, so that second derivatives lack a term.",
    ),
    "ORD3": Asked(
        "Third derivatives are taken, in float64.",
        "A double backward that is right but itself not differentiable, and gives zero.",
    ),
    "ADJ": Asked(
        "The inner products of forward and reverse mode, <y, J v> and <J^T y, v>, are compared.",
        "A reverse mode that is that of a slightly different function than the forward mode.",
    ),
    "VMAP": Asked(
        "The op is batched by `torch.vmap` over every argument and dim, and each slice is held against the op's result"
        " for that slice.",
        "A batching rule that mixes the batch with the rows when the batch is the last dim.",
    ),
    "NEST": Asked(
        "Transforms are nested in each other, up to what users make of them: per-sample gradients, Jacobians,"
        " Hessians.",
        "A vmap rule that is right by itself and loses gradients inside `jacrev`.",
    ),
    "WORD": Asked(
        "Every nesting of jvp, vjp and vmap is asked, up to the depth that the op promises.",
        "A rule that mistakes the level of a tangent when two forward modes are nested.",
    ),
    "DUAL": Asked(
        "The values of a call have the same bits whether or not gradients or tangents are asked for.",
        "A second, less accurate kernel that runs only if an input requires a gradient.",
    ),
    "LAW": Asked(
        "Relations that the op declares are tried, such as f(2x) = 2 f(x) or the independence of rows.",
        "A norm whose result depends on the order of its rows.",
    ),
    "DATA": Asked(
        "Inputs are integers times a power of two, on which every sum is exact; the result must be exact as well.",
        "Two entries swapped, or an off-by-one index, whose error is smaller than a rounding bound.",
    ),
    "LAYOUT": Asked(
        "Inputs and cotangents come as transposed, strided and expanded views, with known values around their memory.",
        "A kernel that assumes contiguous memory and reads the neighbours of a view.",
    ),
    "SPECIAL": Asked(
        "NaN, infinities, zeros, subnormals and the largest numbers are planted in every argument, cotangent and"
        " tangent.",
        "A maximum that drops a NaN, or a square that overflows where the exact result is moderate.",
    ),
    "EMPTY": Asked(
        "The op is called with tensors that have no elements, and its gradients are taken.",
        "A mean over zero rows that raises, or a grid of zero blocks that is launched.",
    ),
    "ERROR": Asked(
        "Every documented mistake in the arguments must raise the documented error, before anything is written.",
        "A weight of the wrong shape that is accepted and read past its end.",
    ),
    "PURE": Asked(
        "After a call the inputs, their versions and the state of the process are as before, and no output shares"
        " memory that was not declared.",
        "An op that scales its input in place and scales it back, or that sets the default dtype.",
    ),
    "FAKE": Asked(
        "On meta and fake tensors the op promises the shapes, dtypes and strides that it then gives on real ones.",
        "A shape rule for torch.compile that names float32 where the kernel returns float16.",
    ),
    "COMP": Asked(
        "The op is compiled by torch.compile and exported, called again with other sizes and values, saved and loaded;"
        " each call is held against the plain one.",
        "An option that is frozen into the compiled code at its first value.",
    ),
    "DET": Asked(
        "The same call gives the same bits every time, and, where deterministic algorithms are asked for, with any"
        " number of threads.",
        "A sum by atomic additions, whose order changes from run to run.",
    ),
    "SIZE": Asked(
        "Values and gradients are judged at sizes where kernels change their ways, and at every alignment in memory.",
        "A tail of the last block that is computed twice, or not at all, at 1025 elements.",
    ),
    "INV": Asked(
        "A slice must have the same bits alone, in a batch, at another place and among other neighbours.",
        "A reduction that is split differently when there are more rows.",
    ),
    "AUTOCAST": Asked(
        "Under autocast the op has the dtypes of torch's own op, and values within the bound.",
        "A custom op that stays in float16 where torch's runs in float32.",
    ),
    "MEM": Asked(
        "The bytes that are kept for the backward pass stay below what the op declares.",
        "A whole intermediate tensor saved where a statistic per row would do.",
    ),
    "COMM": Asked(
        "Over several ranks and devices the op gives what it gives in one place, derivatives included, and nothing"
        " races or is left waiting.",
        "A gradient that each rank forgets to sum, or a copy that is used before it has arrived.",
    ),
    "SAVE": Asked(
        "What is kept for backward is kept where autograd sees it, so that a later change is noticed.",
        "A tensor stored as an attribute of the context: backward uses values that were overwritten since.",
    ),
    "CALLS": Asked(
        "A call on equal values gives equal bits, whatever was called before, in other threads, or failed half-way.",
        "A cache that answers by the address of a tensor, or a workspace that two calls share.",
    ),
    "NEEDS": Asked(
        "For every set of inputs that need a gradient, those gradients are the same, and the others are absent.",
        "Gradients that move to their neighbour's place when the first input needs none.",
    ),
    "AGREE": Asked(
        "Of an op without a formula, the ways to one result are compared: forward and reverse mode, batched and not.",
        "A custom function whose `jvp` and `backward` contradict each other.",
    ),
    "FWAD": Asked(
        "torch's own forward mode is judged in a process in which the decompositions of opassay are installed.",
        "A decomposition that is right by itself and never reached by torch.",
    ),
    "WAYS": Asked(
        "The op is called in every way in which users call it: keywords, defaults, lists, no_grad, several graphs"
        " alive, many slices, five and six dims.",
        "A keyword that is passed on to the wrong parameter.",
    ),
}

#: What each profile is for; the number of samples is that of the table of profiles.
PROFILES_TOLD: dict[str, str] = {
    "brief": "For a first look, and for every commit where there are many ops. The whole catalog of opassay takes"
    " five to ten minutes on two cores. The same commit is asked the same questions every time.",
    "dev": "For work on an op. Every run draws other inputs, and steers them to where the largest error was.",
    "commit": "For a gate in CI, and the default: four times as many samples as brief. The same commit is asked the"
    " same questions every time, so a failure repeats and budgets can be compared.",
    "nightly": "For a long run on a machine that is free. It draws twelve times as many samples as commit and other"
    " inputs every time, and COMP compiles with inductor. It takes hours for many ops.",
}

SUBJECTS_TOLD: dict[str, str] = {
    "opassay": "The implementation that ships, and the default. Of the catalog it is the production op of opassay, of"
    " an op that you declare the implementation that you name so.",
    "torch": "torch's own op of the same name, under the same questions. It is held to what torch documents.",
    "decomposition": "What torch._decomp or torch._refs make of torch's op: the Python texts that compilers trace.",
    "compiled": "torch's op as inductor compiles it, each path of transforms as a whole.",
    "functional": "torch's functional collectives, on process groups.",
    "triton": "The production op with its CUDA kernels run by Triton's interpreter on the CPU. What a GPU alone can"
    " show, such as timing, is not seen.",
    "module": "The module of torch.nn, built of each call's arguments; WAYS asks about its state, too.",
    "own_module": "The production module that takes its place.",
}

#: What each severity says of an error, on the scale of the tensor that it is in.
SEVERITIES_TOLD: dict[str, str] = {
    "crash": "The process died.",
    "wrong": "No digit is right, on the scale of the tensor; or a NaN or an infinity stands where a number is right, or"
    " a number where one of them is; or an output has another dtype or shape.",
    "raises": "An exception on valid input. Nothing wrong was computed.",
    "inaccurate": "Half of the digits of the format or more are lost, on the scale of the tensor.",
    "promise": "A promise that is not about values was broken: the same bits, memory, an error that was expected.",
    "not finite": "A NaN stands in place of an infinity, or the reverse.",
    "last digits": "Fewer than half of the digits are lost, on the scale of the tensor.",
    "negligible": "The error is less than one rounding of the largest number of the tensor and of what is summed.",
}
