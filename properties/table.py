"""The one table of questions: the properties, and the kinds of calls in which a candidate is asked some of them.

Only this table says which questions exist; docs/properties.md says of each row what is done and what must be true then.
`opassay list` reads it, so it imports neither torch nor a check.
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
        sampling=Sampling(large=LARGE, edges=EDGES, effort=1.25, fills=True), compiles=True,
        kernels=ON_KERNELS),
    Property("VJP", "reverse mode, first order",
        sampling=Sampling(large=LARGE, effort=0.9, fills=True), compiles=True, kernels=ON_KERNELS),
    Property("JVP", "forward mode, first order",
        sampling=Sampling(large=LARGE, effort=0.9, fills=True), compiles=True, kernels=ON_KERNELS),
    Property("ORD2", "second order: jvp∘jvp, jvp∘vjp, vjp∘jvp, vjp∘vjp",
        sampling=Sampling(large=LARGE, most=20_000, effort=0.25), compiles=True, kernels=ON_KERNELS,
        requires=("double",)),
    Property("ORD3", "third order",
        sampling=Sampling(effort=0.2), dtypes=("float64",), requires=("triple",)),
    Property("ADJ", "forward and reverse mode are adjoint"),
    Property("VMAP", "vmap over every in_dims and out_dims",
        sampling=Sampling(slices=3, effort=0.25), kernels=ON_KERNELS),
    Property("NEST", "nested transforms",
        sampling=Sampling(slices=4, effort=0.07)),
    Property("WORD", "every nesting of jvp, vjp and vmap, to the depth promised",
        sampling=Sampling(slices=7), dtypes=("float64", "float32")),
    Property("DUAL", "the primal ignores tangents and requires_grad"),
    Property("LAW", "metamorphic laws",
        no_program="The relation is a function of the declaration, which no program without the framework has."),
    Property("DATA", "exact data, bit for bit",
        sampling=Sampling(kind="integers"), kernels=ON_KERNELS),
    Property("LAYOUT", "strides and views",
        kernels=ON_KERNELS),
    Property("SPECIAL", "NaN, infinities, zeros, subnormals, largest",
        sampling=Sampling(effort=0.15, fills=True), compiles=True, kernels=ON_KERNELS),
    Property("EMPTY", "zero-size inputs",
        sampling=Sampling(kind="empty", effort=0.3), compiles=True, kernels=ON_KERNELS,
        requires=("empty",)),
    Property("ERROR", "documented errors",
        sampling=Sampling(effort=0.4)),
    Property("PURE", "inputs and globals untouched",
        sampling=Sampling(effort=0.4)),
    Property("FAKE", "meta and fake tensors",
        sampling=Sampling(effort=0.4), requires=("fake",)),
    # One compilation takes as long as thousands of calls, so COMP has the smallest effort.
    Property("COMP", "torch.compile and torch.export: other sizes, other values, reloaded",
        sampling=Sampling(ample=True, effort=0.01), requires=("compile",),
        no_program="What was compiled for one call shows in a later one, so it takes the whole chain of calls."),
    Property("DET", "run to run and thread count",
        sampling=Sampling(kind="large", effort=0.12, fills=True), kernels=("ptx",)),
    Property("SIZE", "sizes where kernels change their ways, at every alignment",
        sampling=Sampling(kind="sizes", effort=0.3)),
    Property("INV", "a slice alone, in a batch, elsewhere: the same bits",
        sampling=Sampling(large=LONG_ROWS, most=20_000, slices=3, effort=0.3), kernels=ON_KERNELS,
        no_program="It compares two calls of the op, each at several samples that are put together."),
    Property("AUTOCAST", "values: under autocast",
        sampling=Sampling(effort=0.4)),
    Property("MEM", "tensors saved for backward",
        sampling=Sampling(effort=0.4)),
    Property("COMM", "several ranks and devices",
        sampling=Sampling(effort=0.15), where=Where.WORLD,
        no_program="It takes several ranks or devices, which opassay provides."),
    Property("SAVE", "tensors kept for backward: seen by autograd",
        sampling=Sampling(effort=0.1),
        no_program="It looks at what autograd keeps of a call, with the judge's own tools."),
    Property("CALLS", "a function of its values alone: no call tells what was called before",
        sampling=Sampling(slices=1, others=2, effort=0.15), dtypes=("float32",),
        no_program="What shows it depends on all calls that came before in the process, those of other ops among them.",
    ),
    Property("NEEDS", "every set of inputs that need a gradient: the same gradients, and no others",
        sampling=Sampling(effort=0.2), dtypes=("float32", "bfloat16"),
        no_program="It compares the calls for many sets of inputs that need a gradient with each other."),
    Property("AGREE", "without a formula: the ways to one result agree",
        sampling=Sampling(slices=7, effort=0.2), dtypes=("float64",), requires=("func", "double"),
        no_program="It compares many ways to a result with each other, and there is no exact value to print."),
    Property("FWAD", "torch's own forward AD with our decompositions installed",
        sampling=Sampling(effort=0.25), where=Where.PREPARED,
        no_program="It takes a process in which opassay's decompositions were installed first."),
    Property("WAYS", "every way of calling: keywords, modes, graphs, slices, dims",
        sampling=Sampling(ample=True, slices=3, effort=0.1)),
)  # fmt: skip

#: The kinds in which a candidate is asked, in their order; AUTOCAST of the other table comes before the last two.
_OF_CANDIDATES = (
    Property("PURE:process", "torch and the process untouched while the candidate is made"),
    Property("FWD:given", "values on the given inputs"),
    Property("PURE:untouched", "inputs untouched"),
    Property("PURE:fresh", "outputs in memory of their own"),
    Property("CALLS:same", "the same tensors with other data"),
    Property("CALLS:kept", "earlier outputs as they were after a later call"),
    Property("CALLS:reborn", "other tensors in the same memory"),
    Property("CALLS:again", "every later call as the first"),
    Property("FWD:seeds", "values: other seeds"),
    Property("FWD:signs", "values: both signs"),
    Property("FWD:offset", "values: around 100"),
    Property("FWD:nearone", "values: around 1"),
    Property("FWD:wide", "values: exponents of 24 bits"),
    Property("FWD:small", "values: around 2^-20"),
    Property("SPECIAL:zeros", "values: zeros"),
    Property("DATA:integers", "values: small integers, exact in every order"),
    Property("DATA:bits", "values: integers of 12 bits, which reduced precision rounds"),
    Property("FWD:ties", "values: numbers of few bits, and between them"),
    Property("FWD:params", "values: other parameters and buffers"),
    Property("SPECIAL:nan", "values: a few NaNs"),
    Property("SPECIAL:inf", "values: a few infinities"),
    Property("LAYOUT:strides", "values: strided inputs"),
    Property("LAYOUT:align", "values: inputs at odd addresses"),
    Property("POISON", "values: memory that was not written reads as NaN"),
    Property("VJP:grad", "gradients of inputs and parameters"),
    Property("COMP:compiled", "values and gradients under torch.compile"),
    Property("SIZE:sizes", "values: other sizes"),
    Property("FAR", "values: beyond 2^31 elements"),
    Property("LIKELY", "values no farther off than random errors are"),
    Property("PARITY", "why another candidate has other values"),
    Property("PURE:left", "nothing left running, no file written"),
)  # fmt: skip
#: Kinds of INV, asked where they are named: of rows that the spec keeps apart.
_OF_BITS = (
    Property("INV:rows", "bits: few rows, or many"),
    Property("INV:position", "bits: elsewhere in a batch"),
    Property("INV:neighbours", "bits: beside other rows"),
    Property("INV:padding", "bits: with more padding"),
    Property("INV:chunks", "bits: a sequence in pieces"),
    Property("INV:splits", "bits: parts of a sum"),
    Property("INV:order", "bits: rows in another order"),
    Property("INV:runs", "bits: run to run"),
    Property("INV:threads", "bits: one thread, or several"),
    Property("INV:shared", "bits: gradients of what rows share"),
)  # fmt: skip
#: Kinds of COMM, asked of a candidate that runs on several ranks.
_OF_RANKS = (
    Property("COMM:late", "values where ranks read and write as late as they may"),
    Property("COMM:parts", "values: parts of other lengths, and ranks without any"),
    Property("COMM:worlds", "values on other numbers of ranks"),
    Property("COMM:errors", "an error on every rank that has lost another"),
    Property("COMM:replicas", "the same bits on all ranks that must have the same"),
)
#: code -> property of an op; the order is the order of the report's columns.
PROPERTIES: dict[str, Property] = {row.code: row for row in _TABLE}
#: code -> kind, in the order of asking; a property without kinds is its own.
KINDS: dict[str, Property] = {
    row.code: row for row in (*_OF_CANDIDATES[:-3], *_OF_BITS, *_OF_RANKS, PROPERTIES["AUTOCAST"], *_OF_CANDIDATES[-3:])
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
