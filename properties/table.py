"""The table of properties: what can be asked of an op, in words, and of which samples each question is asked.

This table alone says which properties there are; `opassay list` reads it, so it imports neither torch nor a check.
`properties.checks` binds each code to the function that judges one sample.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Check = TypeVar("Check", bound=Callable[..., object])

DTYPES = ("float64", "float32", "bfloat16", "float16")
#: Questions whose errors are also told by the magnitude of the operands and by the length of sums.
BINNED = ("FWD", "VJP")
#: The share of large samples in questions about values.
LARGE = 0.08
#: The share of samples with results next to a rounding boundary.
EDGES = 0.04


class Where(enum.Enum):
    """In which process a property is judged."""

    HERE = "here"  # in the process that is asked
    PREPARED = "prepared process"  # in processes of its own, where something was installed first, and for good
    WORLD = "world"  # here too, but with the ranks and devices that this process was told to use


@dataclass(frozen=True)
class Property:
    """One question that can be asked of every op.

    Attributes:
        code: the name that the command line, the report and the case files use.
        title: the question in words, for the report.
        kind: of the samples that the check takes: "ordinary", "integers", "empty", "large", or "sizes": large
            ones of chosen extents.
        large: the share of samples of kind "large" among those of another kind: one at least.
        edges: the share of samples with results next to a rounding boundary, one at least; besides the others.
        most: elements of a large sample's axes together.
        ample: whether the first sample has two elements or more along every axis: where there are one or two samples in
            all, they would be of one element each, because the simplest sample always comes first.
        slices: how many further samples of the same structure the check needs for batches.
        others: how many further samples of other structures the check calls the op with, in turn with the sample.
        effort: how many examples are drawn, relative to a profile's number of them.
        dtypes: the dtypes in which it is asked.
        compiles: whether the check judges paths only (`Judge.hold`), so that it can be asked of compiled code.
        requires: what an op must offer for it to be asked (`Promises.without`).
        interprets: whether it is asked of kernels that are interpreted: each program of them takes milliseconds.
        where: in which process it is judged.
        no_program: why its failures are not written as programs of torch and the implementation alone, in a sentence;
            empty where they are.
    """

    code: str
    title: str
    kind: str = "ordinary"
    large: float = 0.0
    edges: float = 0.0
    most: int = 70_000
    ample: bool = False
    slices: int = 0
    others: int = 0
    effort: float = 1.0
    dtypes: tuple[str, ...] = DTYPES
    compiles: bool = False
    interprets: bool = False
    where: Where = Where.HERE
    requires: tuple[str, ...] = ()
    no_program: str = ""

    def large_of(self, examples: int) -> int:
        """How many samples of `examples` are large: one at least, but none where there are two or fewer."""
        return max(1, round(self.large * examples)) if self.large and examples > 2 else 0

    def edges_of(self, examples: int) -> int:
        """How many samples besides `examples` have results next to a rounding boundary: as many as `large_of` says."""
        return max(1, round(self.edges * examples)) if self.edges and examples > 2 else 0

    def subject_of(self, subject: str) -> str:
        """The implementation that is judged in a cell of that subject.

        A process is prepared for torch's own op, which is then judged there whether it was prepared or not: the cell's
        subject says which of the two processes answers.
        """
        return "torch" if self.where is Where.PREPARED else subject


_TABLE = (
    Property("FWD", "forward values", effort=1.25, compiles=True, interprets=True, large=LARGE, edges=EDGES),
    Property("VJP", "reverse mode, first order", effort=0.9, compiles=True, interprets=True, large=LARGE),
    Property("JVP", "forward mode, first order", effort=0.9, compiles=True, interprets=True, large=LARGE),
    Property(
        "ORD2", "second order: jvp∘jvp, jvp∘vjp, vjp∘jvp, vjp∘vjp",
        effort=0.25, compiles=True, interprets=True, large=LARGE, most=20_000,
        requires=("double",),
    ),
    Property("ORD3", "third order", effort=0.2, dtypes=("float64",), requires=("triple",)),
    Property("ADJ", "forward and reverse mode are adjoint"),
    Property("VMAP", "vmap over every in_dims and out_dims", slices=3, effort=0.25, interprets=True),
    Property("NEST", "nested transforms", slices=4, effort=0.07),
    Property(
        "WORD", "every nesting of jvp, vjp and vmap, to the depth promised", slices=7, dtypes=("float64", "float32")
    ),
    Property("DUAL", "the primal ignores tangents and requires_grad"),
    Property(
        "LAW", "metamorphic laws",
        no_program="The relation is a function of the declaration, which no program without the framework has.",
    ),
    Property("DATA", "exact data, bit for bit", kind="integers", interprets=True),
    Property("LAYOUT", "strides and views", interprets=True),
    Property("SPECIAL", "NaN, infinities, zeros, subnormals, largest", effort=0.15, compiles=True, interprets=True),
    Property(
        "EMPTY", "zero-size inputs",
        kind="empty", effort=0.3, compiles=True, interprets=True, requires=("empty",),
    ),
    Property("ERROR", "documented errors", effort=0.4),
    Property("PURE", "inputs and globals untouched", effort=0.4),
    Property("FAKE", "meta and fake tensors", effort=0.4, requires=("fake",)),
    # One compilation takes as long as thousands of calls, hence the smallest effort of all.
    Property(
        "COMP", "torch.compile and torch.export: other sizes, other values, reloaded",
        effort=0.01, ample=True, requires=("compile",),
        no_program="What was compiled for one call shows in a later one, so it takes the whole chain of calls.",
    ),
    Property("DET", "run to run and thread count", kind="large", effort=0.12),
    Property("SIZE", "sizes where kernels change their ways, at every alignment", kind="sizes", effort=0.3),
    Property(
        "INV", "a slice alone, in a batch, elsewhere: the same bits",
        slices=3, effort=0.25, interprets=True, large=LARGE, most=20_000,
        no_program="It compares two calls of the op, each at several samples that are put together.",
    ),
    Property("AUTOCAST", "autocast", effort=0.4),
    Property("MEM", "tensors saved for backward", effort=0.4),
    Property(
        "COMM", "several ranks and devices", effort=0.15, where=Where.WORLD,
        no_program="It takes several ranks or devices, which opassay provides.",
    ),
    Property(
        "SAVE", "tensors kept for backward: seen by autograd", effort=0.1,
        no_program="It looks at what autograd keeps of a call, with the judge's own tools.",
    ),
    Property(
        "CALLS", "a function of its values alone: no call tells what was called before",
        slices=1, others=2, effort=0.15, dtypes=("float32",),
        no_program="What shows it depends on all calls that came before in the process, those of other ops among them.",
    ),
    Property(
        "NEEDS", "every set of inputs that need a gradient: the same gradients, and no others",
        effort=0.2, dtypes=("float32", "bfloat16"),
        no_program="It compares the calls for many sets of inputs that need a gradient with each other.",
    ),
    Property(
        "AGREE", "without a formula: the ways to one result agree", slices=7, effort=0.2, dtypes=("float64",),
        requires=("func", "double"),
        no_program="It compares many ways to a result with each other, and there is no exact value to print.",
    ),
    Property(
        "FWAD", "torch's own forward AD with our decompositions installed", effort=0.25, where=Where.PREPARED,
        no_program="It takes a process in which opassay's decompositions were installed first.",
    ),
    Property("WAYS", "every way of calling: keywords, modes, graphs, slices, dims", slices=3, effort=0.1, ample=True),
)  # fmt: skip

#: code -> property; the order is the order of the report's columns.
PROPERTIES: dict[str, Property] = {row.code: row for row in _TABLE}


def bound(checks: Mapping[str, Check]) -> dict[str, Check]:
    """The checks by code, in the table's order.

    Raises:
        ValueError: a property without a check, or a check of no property; the text names them.
    """
    missing, unknown = [code for code in PROPERTIES if code not in checks], [c for c in checks if c not in PROPERTIES]
    if missing or unknown:
        raise ValueError(f"checks: got none for codes={missing}, and unknown codes={unknown}, need those of PROPERTIES")
    return {code: checks[code] for code in PROPERTIES}
