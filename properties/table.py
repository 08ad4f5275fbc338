"""The one table of questions: the properties, and the kinds of calls in which a candidate is asked some of them.

Only this table says which questions exist. `opassay list` reads it, so it imports neither torch nor a check.
`properties.checks` binds each property to the function that judges one sample of it, and `candidates.asking` binds each
kind to the function that asks a candidate in its own process. A kind has the code of its property, a colon and its
name: FWD:given is FWD at the given inputs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..reference.dtypes import FORMATS
from .names import ON_KERNELS

Function = TypeVar("Function", bound=Callable[..., object])

DTYPES = tuple(FORMATS)
#: Questions whose errors are also counted by the magnitude of the operands and by the length of sums.
BINNED = ("FWD", "VJP")
#: The share of large samples in questions about values.
LARGE = 0.08
#: The share of large samples in INV: two of six, so that one has long rows, and another has many rows.
LONG_ROWS = 0.4
#: The share of samples with results next to a rounding boundary.
EDGES = 0.04


class Where(enum.Enum):
    """In which process a property is judged."""

    HERE = "here"  # in the process that gets the question
    PREPARED = "prepared process"  # in new processes, in which something was installed first, for good
    WORLD = "world"  # in this process, with the ranks and devices of its world (`worlds`)


@dataclass(frozen=True)
class Sampling:
    """The samples of a question.

    Attributes:
        kind: "ordinary", "integers", "empty", "large", or "sizes", which are large samples of chosen extents.
        large: the share of samples that are of kind "large" although `kind` is another; at least one sample.
        edges: the number of further samples with results next to a rounding boundary, as a share of the samples; at
            least one sample.
        most: the largest number of elements of a large sample's tensor.
        ample: whether the first sample has two elements or more along every axis. Without this a cell of one or two
            samples would have samples of one element each, because the simplest sample always comes first.
        slices: how many further samples of the same structure the check needs for batches.
        others: how many further samples of other structures the check calls the op with, in turn with the sample.
        effort: the number of samples relative to the profile's number.
        fills: whether kernels as PTX are also judged at samples that fill their blocks.
    """

    kind: str = "ordinary"
    large: float = 0.0
    edges: float = 0.0
    most: int = 70_000
    ample: bool = False
    slices: int = 0
    others: int = 0
    effort: float = 1.0
    fills: bool = False

    def large_of(self, examples: int) -> int:
        """How many of `examples` samples are large: at least one, but none of two or fewer."""
        return max(1, round(self.large * examples)) if self.large and examples > 2 else 0

    def edges_of(self, examples: int) -> int:
        """How many samples in addition to `examples` have results next to a rounding boundary; see `large_of`."""
        return max(1, round(self.edges * examples)) if self.edges and examples > 2 else 0


@dataclass(frozen=True)
class Property:
    """One question about every op, or a kind of calls in which it is asked of a candidate.

    Attributes:
        code: the name that the command line, the report and the case files use.
        title: the question in a few words, for the report.
        asks: what is done and what must be true then, in whole sentences.
        fault: an example of a mistake that it detects; empty for a kind.
        sampling: its samples. dtypes: the dtypes of its samples.
        compiles: whether the check judges paths only (`Judge.hold`), so that compiled code can be judged, too.
        requires: the names in `Promises.without` that an op must offer, or else the question does not apply to it.
        kernels: the subjects it judges among kernels that run on a CPU, where each program takes milliseconds.
        where: in which process it is judged.
        no_program: a sentence that says why a failure cannot be shown by a program of torch and the implementation;
            empty where such programs are written.
    """

    code: str
    title: str
    asks: str
    fault: str = ""
    sampling: Sampling = Sampling()
    dtypes: tuple[str, ...] = DTYPES
    compiles: bool = False
    kernels: tuple[str, ...] = ()
    where: Where = Where.HERE
    requires: tuple[str, ...] = ()
    no_program: str = ""

    def subject_of(self, subject: str) -> str:
        """The name of the implementation that is judged in a cell of `subject`.

        For a prepared process that is "torch": torch's own op is judged in a process with the preparation and in one
        without, and the cell's subject says in which.
        """
        return "torch" if self.where is Where.PREPARED else subject


def property_of(code: str) -> str:
    """The code of the property that a kind is of, or the code itself."""
    return code.partition(":")[0]


def former_name(code: str) -> str:
    """What a kind was called before it had its property's name; other codes are as they were."""
    return code.rpartition(":")[2].upper()


_TABLE = (
    Property("FWD", "forward values",
        "The op is called, and every element of its outputs is compared with the exact value of the formula.",
        "A sum of float16 numbers that is accumulated in float16 and not in float32.",
        sampling=Sampling(large=LARGE, edges=EDGES, effort=1.25, fills=True), compiles=True,
        kernels=ON_KERNELS),
    Property("VJP", "reverse mode, first order",
        "Gradients are taken in reverse mode, as `backward` does, with random cotangents, and every element is compared"
        " with the exact derivative.",
        "A backward pass that forgets the term of the mean in the gradient of a norm.",
        sampling=Sampling(large=LARGE, effort=0.9, fills=True), compiles=True, kernels=ON_KERNELS),
    Property("JVP", "forward mode, first order",
        "Derivatives are taken in forward mode, as `torch.func.jvp` does, with random tangents, and every element is"
        " compared with the exact derivative.",
        "A forward-mode rule that ignores the tangent of the weight.",
        sampling=Sampling(large=LARGE, effort=0.9, fills=True), compiles=True, kernels=ON_KERNELS),
    Property("ORD2", "second order: jvp∘jvp, jvp∘vjp, vjp∘jvp, vjp∘vjp",
        "Second derivatives are taken in all four orders of forward and reverse mode.",
        "A backward pass that treats a saved statistic as a constant, so that second derivatives lack a term.",
        sampling=Sampling(large=LARGE, most=20_000, effort=0.25), compiles=True, kernels=ON_KERNELS,
        requires=("double",)),
    Property("ORD3", "third order",
        "Third derivatives are taken, in float64.",
        "A double backward that is right but itself not differentiable, and gives zero.",
        sampling=Sampling(effort=0.2), dtypes=("float64",), requires=("triple",)),
    Property("ADJ", "forward and reverse mode are adjoint",
        "The inner products of forward and reverse mode, <y, J v> and <J^T y, v>, are compared.",
        "A reverse mode that is that of a slightly different function than the forward mode."),
    Property("VMAP", "vmap over every in_dims and out_dims",
        "The op is batched by `torch.vmap` over every argument and dim, and each slice is compared with the op's result"
        " for that slice.",
        "A batching rule that mixes the batch with the rows when the batch is the last dim.",
        sampling=Sampling(slices=3, effort=0.25), kernels=ON_KERNELS),
    Property("NEST", "nested transforms",
        "Transforms are nested in each other, up to what users make of them: per-sample gradients, Jacobians,"
        " Hessians.",
        "A vmap rule that is right by itself and loses gradients inside `jacrev`.",
        sampling=Sampling(slices=4, effort=0.07)),
    Property("WORD", "every nesting of jvp, vjp and vmap, to the depth promised",
        "Every nesting of jvp, vjp and vmap is asked, up to the depth that the op promises.",
        "A rule that mistakes the level of a tangent when two forward modes are nested.",
        sampling=Sampling(slices=7), dtypes=("float64", "float32")),
    Property("DUAL", "the primal ignores tangents and requires_grad",
        "The values of a call have the same bits whether or not gradients or tangents are asked for.",
        "A second, less accurate kernel that runs only if an input requires a gradient."),
    Property("LAW", "metamorphic laws",
        "Relations that the op declares are tried, such as f(2x) = 2 f(x) or the independence of rows.",
        "A norm whose result depends on the order of its rows.",
        no_program="The relation is a function of the declaration, which no program without the framework has."),
    Property("DATA", "exact data, bit for bit",
        "Inputs are integers times a power of two, on which every sum is exact; the result must be exact as well.",
        "Two entries swapped, or an off-by-one index, whose error is smaller than a rounding bound.",
        sampling=Sampling(kind="integers"), kernels=ON_KERNELS),
    Property("LAYOUT", "strides and views",
        "Inputs and cotangents come as transposed, strided and expanded views, with known values around their memory.",
        "A kernel that assumes contiguous memory and reads the neighbours of a view.",
        kernels=ON_KERNELS),
    Property("SPECIAL", "NaN, infinities, zeros, subnormals, largest",
        "NaN, infinities, zeros, subnormals and the largest numbers are planted in every argument, cotangent and"
        " tangent.",
        "A maximum that drops a NaN, or a square that overflows where the exact result is moderate.",
        sampling=Sampling(effort=0.15, fills=True), compiles=True, kernels=ON_KERNELS),
    Property("EMPTY", "zero-size inputs",
        "The op is called with tensors that have no elements, and its gradients are taken.",
        "A mean over zero rows that raises, or a grid of zero blocks that is launched.",
        sampling=Sampling(kind="empty", effort=0.3), compiles=True, kernels=ON_KERNELS,
        requires=("empty",)),
    Property("ERROR", "documented errors",
        "Every documented mistake in the arguments must raise the documented error, before anything is written.",
        "A weight of the wrong shape that is accepted and read past its end.",
        sampling=Sampling(effort=0.4)),
    Property("PURE", "inputs and globals untouched",
        "After a call the inputs, their versions and the state of the process are as before, and no output shares"
        " memory that was not declared.",
        "An op that scales its input in place and scales it back, or that sets the default dtype.",
        sampling=Sampling(effort=0.4)),
    Property("FAKE", "meta and fake tensors",
        "On meta and fake tensors the op promises the shapes, dtypes and strides that it then gives on real ones.",
        "A shape rule for torch.compile that names float32 where the kernel returns float16.",
        sampling=Sampling(effort=0.4), requires=("fake",)),
    # One compilation takes as long as thousands of calls, so COMP has the smallest effort.
    Property("COMP", "torch.compile and torch.export: other sizes, other values, reloaded",
        "The op is compiled by torch.compile and exported, called again with other sizes and values, saved and loaded;"
        " each call is compared with the plain one.",
        "An option that is frozen into the compiled code at its first value.",
        sampling=Sampling(ample=True, effort=0.01), requires=("compile",),
        no_program="What was compiled for one call shows in a later one, so it takes the whole chain of calls."),
    Property("DET", "run to run and thread count",
        "The same call gives the same bits every time, and, where deterministic algorithms are asked for, with any"
        " number of threads.",
        "A sum by atomic additions, whose order changes from run to run.",
        sampling=Sampling(kind="large", effort=0.12, fills=True), kernels=("ptx",)),
    Property("SIZE", "sizes where kernels change their ways, at every alignment",
        "Values and gradients are judged at sizes where kernels change their ways, at every alignment in memory, and"
        " beyond the numbers to which a half type counts. But for brief cells, independent slices are repeated until"
        " an output has more than 2^20 elements.",
        "A tail of the last block that is computed twice, or not at all, at 1025 elements.",
        sampling=Sampling(kind="sizes", effort=0.3)),
    Property("INV", "a slice alone, in a batch, elsewhere: the same bits",
        "A slice must have the same bits alone, in a batch, at another place and among other neighbours.",
        "A reduction that is split differently when there are more rows.",
        sampling=Sampling(large=LONG_ROWS, most=20_000, slices=3, effort=0.3), kernels=ON_KERNELS,
        no_program="It compares two calls of the op, each at several samples that are put together."),
    Property("AUTOCAST", "values: under autocast",
        "Under autocast the op has the dtypes of torch's own op, and values within the bound. A candidate is called"
        " under torch.autocast to bfloat16, and may round as its spec does there.",
        "A custom op that stays in float16 where torch's runs in float32.",
        sampling=Sampling(effort=0.4)),
    Property("MEM", "tensors saved for backward",
        "The bytes that are kept for the backward pass stay below what the op declares.",
        "A whole intermediate tensor saved where a statistic per row would do.",
        sampling=Sampling(effort=0.4)),
    Property("COMM", "several ranks and devices",
        "Over several ranks and devices the op gives what it gives in one place, derivatives included, and nothing"
        " races or is left waiting.",
        "A gradient that each rank forgets to sum, or a copy that is used before it has arrived.",
        sampling=Sampling(effort=0.15), where=Where.WORLD,
        no_program="It takes several ranks or devices, which opassay provides."),
    Property("SAVE", "tensors kept for backward: seen by autograd",
        "What is kept for backward is kept where autograd sees it, so that a later change is noticed.",
        "A tensor stored as an attribute of the context: backward uses values that were overwritten since.",
        sampling=Sampling(effort=0.1),
        no_program="It looks at what autograd keeps of a call, with the judge's own tools."),
    Property("CALLS", "a function of its values alone: no call tells what was called before",
        "A call on equal values gives equal bits, whatever was called before, in other threads, or failed half-way.",
        "A cache that answers by the address of a tensor, or a workspace that two calls share.",
        sampling=Sampling(slices=1, others=2, effort=0.15), dtypes=("float32",),
        no_program="What shows it depends on all calls that came before in the process, those of other ops among them.",
    ),
    Property("NEEDS", "every set of inputs that need a gradient: the same gradients, and no others",
        "For every set of inputs that need a gradient, those gradients are the same, and the others are absent.",
        "Gradients that move to their neighbour's place when the first input needs none.",
        sampling=Sampling(effort=0.2), dtypes=("float32", "bfloat16"),
        no_program="It compares the calls for many sets of inputs that need a gradient with each other."),
    Property("AGREE", "without a formula: the ways to one result agree",
        "Of an op without a formula, the ways to one result are compared: forward and reverse mode, batched and not.",
        "A custom function whose `jvp` and `backward` contradict each other.",
        sampling=Sampling(slices=7, effort=0.2), dtypes=("float64",), requires=("func", "double"),
        no_program="It compares many ways to a result with each other, and there is no exact value to print."),
    Property("FWAD", "torch's own forward AD with our decompositions installed",
        "torch's own forward mode is judged in a process in which the decompositions of opassay are installed.",
        "A decomposition that is right by itself and never reached by torch.",
        sampling=Sampling(effort=0.25), where=Where.PREPARED,
        no_program="It takes a process in which opassay's decompositions were installed first."),
    Property("WAYS", "every way of calling: keywords, modes, graphs, slices, dims",
        "The op is called in every way in which users call it: keywords, defaults, lists, no_grad, several graphs"
        " alive, many slices, five and six dims.",
        "A keyword that is passed on to the wrong parameter.",
        sampling=Sampling(ample=True, slices=3, effort=0.1)),
)  # fmt: skip

#: The kinds in which a candidate is asked, in their order; AUTOCAST of the other table comes before the last two.
_OF_CANDIDATES = (
    Property("PURE:process", "torch and the process untouched while the candidate is made",
        "The process is compared before and after the candidate's file is imported: torch's defaults and "
        "functions, Python's modules, the generators of random numbers."),
    Property("FWD:given", "values on the given inputs",
        "The candidate is called with the given inputs, in the memory layout that they have, and every element is "
        "compared with its accept set."),
    Property("PURE:untouched", "inputs untouched",
        "The inputs of a call have the same bits after it, but for those that the spec writes."),
    Property("PURE:fresh", "outputs in memory of their own",
        "No output shares memory with an input or with another output, but for those of the spec that do."),
    Property("CALLS:same", "the same tensors with other data",
        "The same tensor objects get other values, and the candidate is called again: a result that was "
        "remembered by the object is wrong then."),
    Property("CALLS:kept", "earlier outputs as they were after a later call",
        "The outputs of a call have the same bits after another call with other values."),
    Property("CALLS:reborn", "other tensors in the same memory",
        "New tensors in the memory of earlier ones are given: a result remembered by the address is wrong then."),
    Property("CALLS:again", "every later call as the first",
        "Many calls are made in a row. One whose bits differ from the first is compared with the spec, too, "
        "and the process is compared afterwards."),
    Property("FWD:seeds", "values: other seeds",
        "The inputs are drawn anew, between the values that the given ones have."),
    Property("FWD:signs", "values: both signs",
        "The inputs have both signs: random numbers of one sign alone hide a missing absolute value."),
    Property("FWD:offset", "values: around 100",
        "The inputs lie around 100, where exponentials overflow and sums cancel."),
    Property("FWD:nearone", "values: around 1",
        "The inputs lie within a few hundredths of 1, where differences cancel. Where the spec takes logarithms, one "
        "input in its turn then lies between 8 and 16, or -16 and -8, and all others are 1: a loss may be small."),
    Property("FWD:wide", "values: exponents of 24 bits",
        "The inputs are normal numbers, each times a power of two between 2^-16 and 2^8; and then numbers with "
        "exponents of the whole format, held where no evaluation may overflow, and others around -20000, or around "
        "-100 where sums of products are factors of others."),
    Property("FWD:small", "values: around 2^-20",
        "The inputs are normal numbers times 2^-20, where a constant such as eps decides."),
    Property("SPECIAL:zeros", "values: zeros",
        "All inputs are zero."),
    Property("DATA:integers", "values: small integers, exact in every order",
        "The inputs are integers from -4 to 4, so that sums and products are exact in every order; what is exact "
        "must be returned exactly."),
    Property("DATA:bits", "values: integers of 12 bits, which reduced precision rounds",
        "One input in its turn holds integers of twelve bits and all others -1, 0 or 1, so that float32 is exact: "
        "a candidate that rounds its operands to bfloat16 or TF32 is wrong then."),
    Property("FWD:ties", "values: numbers of few bits, and between them",
        "Where the spec casts to eight bits, rounds to integers, or makes integers by comparisons, the inputs are "
        "numbers of that format, numbers that it compares with, numbers in the middle of two of them, and numbers next "
        "to both; some are beyond the largest, and then each row is such that its scale is 1. Where the spec compares, "
        "rounds or takes a sign, inputs are moved to where that changes, and next to it."),
    Property("FWD:params", "values: other parameters and buffers",
        "The parameters and buffers that both modules have get other values, and then other objects stand in their "
        "place. A module in training whose spec has other values in evaluation is asked there, too."),
    Property("SPECIAL:nan", "values: a few NaNs",
        "One in a thousand of the inputs' elements, and at least one, is NaN."),
    Property("SPECIAL:inf", "values: a few infinities",
        "One in a thousand of the inputs' elements, and at least one, is infinite."),
    Property("LAYOUT:strides", "values: strided inputs",
        "The inputs are rows cut out of a wider tensor, every second element, transposed, and expanded along axis "
        "0, in turn, but for expanding what the spec writes. Destinations are such rows, and transposed. And one "
        "tensor is all inputs of one shape and dtype. A clear error is no fault."),
    Property("LAYOUT:align", "values: inputs at odd addresses",
        "The inputs begin at addresses that are no multiple of 16 bytes. A clear error is no fault."),
    Property("POISON", "values: memory that was not written reads as NaN",
        "Memory that the candidate allocates and does not write reads as NaN. And so does every element of the inputs "
        "and parameters on which no output of the spec depends."),
    Property("VJP:grad", "gradients of inputs and parameters",
        "The gradients of inputs and parameters are taken with random cotangents and compared with the exact ones: "
        "at the given inputs, by a second backward after a call at other values and its backward, at others of all "
        "magnitudes with other parameters, where the inputs are no leaves, with operands and cotangents that are not "
        "contiguous, and with one tensor as several operands. The outputs of a call that records gradients are "
        "compared, too, and the inputs must be as before."),
    Property("COMP:compiled", "values and gradients under torch.compile",
        "The candidate is traced by torch.compile, and the graph is run. A clear error is no fault."),
    Property("SIZE:sizes", "values: other sizes",
        "Every size of the inputs in its turn becomes one of 129, 1025 and 4099, one of 128, 1024 and 4096, and 1 "
        "or 37, and one becomes 0, where the spec takes that; and one call has many rows, and several "
        "threads of torch. A clear error is no fault."),
    Property("FAR", "values: beyond 2^31 elements",
        "There are rows beyond 2^31 elements; of each launch the blocks at the ends and where 32 bits end are held."),
    Property("LIKELY", "values no farther off than random errors are",
        "The errors of many elements together are no larger, and no more of one sign, than independent "
        "roundings are likely to make them. This is a statistical verdict: it can end in suspect, never in "
        "rejected. Of a spec that draws random numbers, what many calls draw is distributed as what torch draws "
        "of the spec; what is not is rejected, at a risk of 1e-9."),
    Property("PARITY", "why another candidate has other values",
        "Another candidate is asked the same. What explains other bits is said, and which of both is worse."),
    Property("PURE:left", "nothing left running, no file written",
        "After the last call no thread or process of the candidate is running, no file was written, nothing of torch "
        "is replaced, no output was changed after it was returned, and no call wrote an input or gave it back."),
)  # fmt: skip
#: Kinds of INV, asked where they are named: of rows that the spec keeps apart.
_OF_BITS = (
    Property("INV:rows", "bits: few rows, or many", "Rows have their bits alone and in batches of up to 4099."),
    Property("INV:position", "bits: elsewhere in a batch", "A row has its bits wherever it stands in a batch."),
    Property("INV:neighbours", "bits: beside other rows", "Other rows hold other values, NaN, integers of all sizes."),
    Property("INV:padding", "bits: with more padding", "There is more behind a length or where a mask is false."),
    Property("INV:chunks", "bits: a sequence in pieces", "Later pieces get all keys so far, or the state before them."),
    Property("INV:splits", "bits: parts of a sum", "A whole number that the formula ignores has other values."),
    Property("INV:order", "bits: rows in another order", "Rows are sorted by their integers, backwards, at random."),
    Property("INV:runs", "bits: run to run", "A call comes again, after others, with warps in another order."),
    Property("INV:threads", "bits: one thread, or several", "torch has 1 thread, and 4."),
    Property("INV:shared", "bits: gradients of what rows share",
        "Equal rows in equal order, with others whose cotangents are 0; one by one or in any order, where declared."),
)  # fmt: skip
#: code -> property of an op; the order is the order of the report's columns.
PROPERTIES: dict[str, Property] = {row.code: row for row in _TABLE}
#: code -> kind, in the order of asking; a property without kinds is its own.
KINDS: dict[str, Property] = {
    row.code: row for row in (*_OF_CANDIDATES[:-3], *_OF_BITS, PROPERTIES["AUTOCAST"], *_OF_CANDIDATES[-3:])
}
#: code -> property or kind.
TABLE: dict[str, Property] = KINDS | PROPERTIES
#: The name that a kind had before it had its property's -> its code; such names are taken until 0.2.
FORMER_NAMES: dict[str, str] = {former_name(code): code for code in KINDS if ":" in code}


def bind(functions: Mapping[str, Function], rows: Mapping[str, Property]) -> dict[str, Function]:
    """The functions that ask the rows of a table, in its order; ValueError for rows or functions without a partner."""
    missing, unknown = [code for code in rows if code not in functions], [c for c in functions if c not in rows]
    if missing or unknown:
        raise ValueError(f"functions: got none for codes={missing}, and unknown codes={unknown}")
    return {code: functions[code] for code in rows}
