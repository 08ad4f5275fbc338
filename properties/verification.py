"""The functions that users call: for the verdict of a cell, of a case file, of an op, of a custom function.

This module alone chooses the place where a question is judged: this process, processes that are prepared for the
question, or this process together with others as the ranks of a world. Each place calls the engine, which imports no
place; so neither imports the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch

from ..oracles.op.declaration import KERNELS, OWN, Op
from ..oracles.op.placement import KernelRequest
from ..oracles.process import interrupt
from ..oracles.verdicts.case import CaseError as CaseError
from ..oracles.verdicts.case import load_case
from ..oracles.verdicts.verdict import Cell, Verdict, charged
from ..oracles.verdicts.witnesses import ANNOUNCERS
from ..reference.dtypes import dtype_name
from .catalog.loading import load_op
from .declaring.shapes import Argument
from .declaring.strategies import MODERATE
from .declaring.user_samples import Samples
from .engine.cells import judge_cell
from .engine.guard import guard
from .engine.plan import cells_of
from .engine.samples import Settings as Settings
from .functions.kernel import custom_kernel, replace_kernel
from .functions.kernel_request import RequestKeywords, usual_properties, with_request
from .functions.offer import Offer
from .functions.user import custom_function
from .names import SUBJECTS, require_known
from .places.gathering import OnRanks
from .places.here import Here, Place
from .places.kernels import LaunchedKernels, kernel_place
from .places.prepared import prepared_place
from .table import PROPERTIES, Where
from .torch_ops.patterns import PREFIX


def place_of(cell: Cell, op: Op | None = None) -> Place:
    """The place where a cell is judged; for an unknown property it is `Here`, whose verdict says that."""
    if op is not None and op.production.request is not None and op.production.request.compiled:
        return LaunchedKernels(op.production.request.compiled)
    if cell.subject in KERNELS:
        return kernel_place(cell.subject)
    question = PROPERTIES.get(cell.property)
    where = Where.HERE if question is None else question.where
    return prepared_place() if where is Where.PREPARED else OnRanks() if where is Where.WORLD else Here()


def run_cell(cell: Cell, settings: Settings, op: Op | None = None) -> Verdict:
    """The verdict of a cell. A fault of the framework gives a verdict, too ("error"), and no exception.

    The declaration is `op` where it is not one of the catalog or of a plugin.

    Raises:
        KeyboardInterrupt: a signal came (or another exception of the caller's signal handler); there is no verdict.
    """
    named = replace(cell, dtype=dtype_name(cell.dtype))

    def judge() -> Verdict:
        declared = op or _own_op(named)
        return place_of(named, declared).judge(named, settings, declared)

    return guard(named, judge)


def _own_op(cell: Cell) -> Op | None:
    """The declaration at "module:name", of which alone it depends where it is judged."""
    own: Op | None = load_op(cell.op) if ":" in cell.op and not cell.op.startswith(PREFIX) else None
    return own


def replay_case(text: str) -> Verdict:
    """Judge the sample of a case file again.

    Raises:
        CaseError: the text is no case file.
    """
    cell, sample = load_case(text)
    return guard(cell, lambda: place_of(cell, _own_op(cell)).replay(cell, sample, text))


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
    dtypes: Sequence[str | torch.dtype] = (),
    device: str = "cpu",
    settings: Settings | str | None = None,
) -> list[Verdict]:
    """Judge one implementation of an op: a verdict for every property and dtype.

    Args:
        op: the declaration; `subject` is a name among its `subjects`.
        properties, dtypes: codes of `PROPERTIES`, and dtypes or their names; all by default.
        device: "cpu" or "cuda".
        settings: profile, seed and examples, or the name of a profile; "commit" by default.

    Raises:
        TypeError: `op` is no op. ValueError: there is no such subject, property, dtype, device or profile.
    """
    if not isinstance(op, Op):
        raise TypeError(f"op: got a {type(op).__name__}, need an op: what declare gives, or load_op of its name")
    require_known("subject", [subject], tuple(dict.fromkeys((*SUBJECTS, *op.subjects))))
    limits, subject = Settings.of(settings, "commit"), op.production.own_subject if subject == OWN else subject
    return charged([run_cell(cell, limits, op) for cell in cells_of(op.name, properties, dtypes, device, subject)])


@interrupt.SignalScope()
def verify_function(
    function: Any,
    samples: Samples,
    reference: Callable[..., Any] | None = None,
    *,
    constant: Iterable[str] = (),
    offer: Offer | None = None,
    properties: Sequence[str] = (),
    dtypes: Sequence[str | torch.dtype] = ("float64", "float32"),
    settings: Settings | str | None = None,
) -> list[Verdict]:
    """Verdicts on a custom function: one per property and dtype, as `verify` gives them.

    Args:
        function, samples, reference, constant, offer: as for `custom_function`.
        properties, dtypes: codes of properties, all by default, and dtypes or their names. In the half types a function
            is held to one rounding per output, accumulating in float32.
        settings: profile, seed and examples, or the name of a profile; "brief" by default.

    Raises:
        TypeError, ValueError: as `custom_function` and `verify`.
    """
    # All cells share one declaration, because each new one would call the function and trace it again.
    op = custom_function(function, samples, reference, constant=constant, offer=offer)
    return verify(op, properties=properties, dtypes=dtypes, settings=Settings.of(settings, "brief"))


def kernel_of_op(
    kernel: Callable[..., Any], op: str | Op, *, offer: Offer | None = None, **request: Unpack[RequestKeywords]
) -> Op:
    """A kernel under the declaration of an op of the catalog: its formula, its samples and its laws.

    Args:
        kernel: takes the arguments of the op, in their order, and returns its outputs.
        op: the name of an op, as `opassay list` has it, or a declaration.
        offer, request: as for `custom_kernel`; the offer's `supported` says which calls the kernel takes.

    Raises:
        SelectionError: there is no op of that name. ValueError: a name in `offer` is no argument of the op.
    """
    return with_request(replace_kernel(kernel, load_op(op) if isinstance(op, str) else op, offer), request)


@interrupt.SignalScope()
def verify_kernel(
    kernel: Callable[..., Any],
    reference: Callable[..., Any] | str | Op,
    shapes: Mapping[str, Argument] | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    regimes: Sequence[str] | None = None,
    offer: Offer | None = None,
    **request: Unpack[RequestKeywords],
) -> list[Verdict]:
    """Verdicts on a kernel, one per property and dtype, as `verify` gives them.

    Args:
        kernel: any callable of tensors; gradients are taken by `torch.autograd.grad`.
        reference: what it means: plain PyTorch, or NumPy, forward only; or an op of the catalog, by name, whose
            declaration then says which samples there are, and nothing of `shapes` to `regimes` is given.
        shapes, constants, sizes, regimes: as for `custom_kernel`.
        offer: what the kernel does not offer, and what it promises: a question that needs what it does not offer is
            "unsupported", and no failure.
        request: of these.
            `properties`, `dtypes`, `device`: codes of properties, dtypes or their names, float32 by default, "cpu" or
            "cuda".
            `settings`: profile, seed and examples, or the name of a profile; "brief" by default.
            `compiled`: an architecture, "sm_90" say: Triton kernels that are launched are compiled for it, and their
            PTX is executed on tensors of the CPU, under the questions of subject "ptx". "" for launches as ever.

    Raises:
        TypeError, ValueError: as `custom_kernel` and `verify`; or `compiled` is no architecture, or `device` is "cuda"
            beside it. RuntimeError: kernels were to be compiled, and Triton was imported as an interpreter.
    """
    samples = {"shapes": shapes, "constants": constants, "sizes": sizes, "regimes": regimes}
    if isinstance(reference, (str, Op)):
        extra = [name for name, value in samples.items() if value is not None]
        if extra:
            raise ValueError(f"{extra[0]}: got one, and the declaration of an op has its own")
        op = kernel_of_op(kernel, reference, offer=offer, **request)
    else:
        if shapes is None:
            raise ValueError("shapes: got none, need the shape of every tensor that the kernel takes")
        op = custom_kernel(
            kernel, reference, shapes, constants=constants, sizes=sizes,
            regimes=MODERATE if regimes is None else regimes, offer=offer, **request,
        )  # fmt: skip
    return judge_kernel(op, kernel_cells(op))


def judge_kernel(op: Op, cells: Sequence[Cell], settings: Settings | str | None = None) -> list[Verdict]:
    """The verdicts of cells of somebody's kernel; settings that are not given are those of its declaration, or "brief".

    Raises:
        TypeError: `settings` is something else. ValueError: there is no such profile.
    """
    request = op.production.request or KernelRequest()
    limits, verdicts = Settings.of(request.settings if settings is None else settings, "brief"), []
    for cell in cells:
        for announce in ANNOUNCERS:
            announce(cell)
        verdicts.append(run_cell(cell, limits, op))
    return charged(verdicts)


def kernel_cells(
    op: Op, properties: Sequence[str] | None = None, dtypes: Sequence[str | torch.dtype] | None = None, device: str = ""
) -> list[Cell]:
    """The cells of somebody's kernel; what is not given is that of its declaration, or the usual of kernels.

    Raises:
        ValueError: there is no such property, dtype or device.
    """
    request = op.production.request or KernelRequest()
    codes = request.properties if properties is None else properties
    names = request.dtypes if dtypes is None else dtypes
    return cells_of(
        op.name,
        usual_properties(op) if codes is None else codes,
        ("float32",) if names is None else names,
        device or request.device,
        op.production.own_subject,
    )
