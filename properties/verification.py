"""The functions that users call: for the verdict of a cell, of a case file, of an op, of a custom function.

This module alone chooses the place where a question is judged: this process, processes that are prepared for the
question, or this process together with others as the ranks of a world. Each place calls the engine, which imports no
place; so neither imports the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..oracles.op.declaration import INTERPRETED, Op
from ..oracles.verdicts.case import CaseError, load_case
from ..oracles.verdicts.verdict import Cell, Verdict, charged
from .catalog.loading import load_op
from .declaring.strategies import MODERATE
from .engine.cells import judge_cell
from .engine.guard import guard
from .engine.plan import require_names
from .engine.samples import Settings
from .functions.kernel import KERNEL_PROPERTIES, KERNEL_WITHOUT, Offer, custom_kernel, replace_kernel
from .functions.shapes import Extent
from .functions.user import Samples, custom_function
from .places.gathering import OnRanks
from .places.here import Here, Place
from .places.interpreted import interpreted_place
from .places.prepared import prepared_place
from .table import DTYPES, PROPERTIES, Where

__all__ = [
    "CaseError",
    "Settings",
    "kernel_of_op",
    "place_of",
    "replay_case",
    "retell_cell",
    "run_cell",
    "verify",
    "verify_function",
    "verify_kernel",
]


def place_of(cell: Cell) -> Place:
    """The place where a cell is judged; for an unknown property it is `Here`, whose verdict says that."""
    if cell.subject == INTERPRETED:
        return interpreted_place()
    question = PROPERTIES.get(cell.property)
    where = Where.HERE if question is None else question.where
    return prepared_place() if where is Where.PREPARED else OnRanks() if where is Where.WORLD else Here()


def run_cell(cell: Cell, settings: Settings, op: Op | None = None) -> Verdict:
    """The verdict of a cell. A fault of the framework gives a verdict, too ("error"), and no exception.

    Args:
        cell: the question. settings: how much is asked.
        op: the declaration, where it is not one of the catalog or of a plugin.

    Raises:
        KeyboardInterrupt: a signal came (or another exception of the caller's signal handler); there is no verdict.
    """
    return guard(cell, lambda: place_of(cell).judge(cell, settings, op))


def replay_case(text: str) -> Verdict:
    """Judge the sample of a case file again.

    Raises:
        CaseError: the text is no case file.
    """
    cell, sample = load_case(text)
    return guard(cell, lambda: place_of(cell).replay(cell, sample, text))


def retell_cell(cell: Cell, settings: Settings, tell: Callable[[str], None]) -> Verdict | None:
    """Judge a cell of the catalog again, and call `tell` with the case file of each sample before it is judged.

    This finds the sample that ends the process: the last one of which the case file was told. None for a cell that is
    not judged in this process.

    Raises:
        KeyboardInterrupt: as `run_cell`.
    """
    if not isinstance(place_of(cell), Here):
        return None
    return guard(cell, lambda: judge_cell(cell, settings, tell=tell))


def verify(
    op: Op,
    subject: str = "opassay",
    properties: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    device: str = "cpu",
    settings: Settings | None = None,
) -> list[Verdict]:
    """Judge one implementation of an op: a verdict for every property and dtype.

    Args:
        op: the declaration; `subject` is a name among its `subjects`.
        properties, dtypes: codes of `PROPERTIES` and torch dtype names; all by default.
        device: "cpu" or "cuda".
        settings: profile, seed and examples; profile "commit" by default.

    Raises:
        TypeError: `op` is no op. ValueError: there is no such property, dtype or device.
    """
    if not isinstance(op, Op):
        raise TypeError(f"op: got a {type(op).__name__}, need an op: what declare gives, or load_op of its name")
    require_names(properties, dtypes, device)
    cells = [
        Cell(op.name, code, dtype, device, subject) for code in properties or PROPERTIES for dtype in dtypes or DTYPES
    ]
    return charged([run_cell(cell, settings or Settings(), op) for cell in cells])


def verify_function(
    function: Any,
    samples: Samples,
    reference: Callable[..., Any] | None = None,
    *,
    constant: Iterable[str] = (),
    specials: bool = False,
    flush: bool = False,
    algorithms: Iterable[str] = (),
    properties: Sequence[str] = (),
    dtypes: Sequence[str] = ("float64", "float32"),
    settings: Settings | None = None,
) -> list[Verdict]:
    """Verdicts on a custom function: one per property and dtype, as `verify` gives them.

    Args:
        function, samples, reference, constant, specials, flush, algorithms: as for `custom_function`.
        properties, dtypes: codes of properties, all by default, and torch dtype names. In the half types a function is
            held to one rounding per output, accumulating in float32.
        settings: profile, seed and examples; profile "brief" by default.

    Raises:
        TypeError, ValueError: as `custom_function`.
    """
    # All cells share one declaration, because each new one would call the function and trace it again.
    op = custom_function(
        function, samples, reference, constant=constant, specials=specials, flush=flush, algorithms=algorithms
    )
    return verify(op, properties=properties, dtypes=dtypes, settings=settings or Settings("brief"))


def kernel_of_op(
    kernel: Callable[..., Any],
    op: str | Op,
    *,
    supported: Callable[..., Any] | None = None,
    offer: Offer | None = None,
) -> Op:
    """A kernel under the declaration of an op of the catalog: its formula, its samples and its laws.

    Args:
        kernel: takes the arguments of the op, in their order, and returns its outputs.
        op: the name of an op, as `opassay list` has it, or a declaration.
        supported: (arguments by name) -> whether the kernel takes such a call; others are not asked.
        offer: as for `custom_kernel`.

    Raises:
        SelectionError: there is no op of that name. ValueError: a parameter of `supported` is no argument of the op.
    """
    return replace_kernel(kernel, load_op(op) if isinstance(op, str) else op, supported=supported, offer=offer)


def verify_kernel(
    kernel: Callable[..., Any],
    reference: Callable[..., Any] | str | Op,
    shapes: Mapping[str, Sequence[Extent]] | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    regimes: Sequence[str] = MODERATE,
    differentiable: Iterable[str] | None = None,
    supported: Callable[..., Any] | None = None,
    outputs: Sequence[int] | None = None,
    without: Iterable[str] = KERNEL_WITHOUT,
    max_order: int = 3,
    specials: bool = True,
    flush: bool = False,
    algorithms: Iterable[str] = (),
    properties: Sequence[str] = KERNEL_PROPERTIES,
    dtypes: Sequence[str] = ("float32",),
    device: str = "cpu",
    profile: str = "brief",
    settings: Settings | None = None,
) -> list[Verdict]:
    """Verdicts on a kernel, one per property and dtype, as `verify` gives them.

    Args:
        kernel: any callable of tensors; gradients are taken by `torch.autograd.grad`.
        reference: what it means: plain PyTorch, or NumPy, forward only; or an op of the catalog, by name, whose
            declaration then says which samples there are, and nothing of `shapes` to `differentiable` is given.
        shapes, constants, sizes, regimes, differentiable: as for `custom_kernel`.
        supported: (arguments by name) -> whether the kernel takes such a call of an op of the catalog.
        outputs: positions of the kernel's outputs that are judged, in the order of the reference's; all by default.
        without: what the kernel does not offer, of "jvp", "vmap", "func", "double", "triple", "compile", "fake",
            "empty"; a question that needs one of them is "unsupported", and no failure.
        max_order: of the derivatives that it offers: 0 for a kernel without gradients, 1 without double backward.
        specials, flush, algorithms: as for `custom_function`.
        properties, dtypes, device: codes of properties, torch dtype names, "cpu" or "cuda".
        profile: how much is asked, a name of `PROFILES`. settings: the same, with seed and examples.

    Raises:
        TypeError, ValueError: as `custom_kernel`.
    """
    offer = Offer(without, max_order, specials, flush, algorithms, outputs)
    options = {"constants": constants, "sizes": sizes, "differentiable": differentiable}
    if isinstance(reference, (str, Op)):
        extra = [name for name, value in {"shapes": shapes, **options}.items() if value is not None]
        if extra:
            raise ValueError(f"{extra[0]}: got one, and the declaration of an op has its own")
        op = kernel_of_op(kernel, reference, supported=supported, offer=offer)
    else:
        if supported is not None:
            raise ValueError("supported: got a function, which is for an op of the catalog; need shapes and sizes")
        if shapes is None:
            raise ValueError("shapes: got none, need the shape of every tensor that the kernel takes")
        op = custom_kernel(
            kernel, reference, shapes, constants=constants, sizes=sizes, regimes=regimes,
            differentiable=differentiable, offer=offer,
        )  # fmt: skip
    return verify(op, "opassay", properties, dtypes, device, settings or Settings(profile))
