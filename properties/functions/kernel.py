"""Any kernel as an op: a callable, its meaning in plain PyTorch or NumPy, and the shapes of its arguments.

What is hard here: a kernel declares nothing. So its caller says what it does not offer, and it is not failed for that.
And a reference does not say whether it is written in PyTorch or NumPy. PyTorch is tried first, with the tensors without
values by which a spec is traced: NumPy's functions refuse these.
"""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.control import assume
from torch.utils import _pytree as pytree

from ...oracles.bound.contract import contract
from ...oracles.bound.rounding import Ball
from ...oracles.op.copies import copied
from ...oracles.op.declaration import OWN, Draft, Op, Promises, Slices, is_float
from ...oracles.op.documented import Documented
from ...oracles.op.placement import KernelRequest
from ...oracles.process import interrupt
from ...oracles.specs import SpecCall, SpecFormula, UntraceableError, Values, trace
from ...oracles.specs.node_facts import why_without_derivatives
from ...reference.algorithms import Algorithm, declare_all, declared
from ...reference.missing import nearest_of
from ..declaring import choices, strategies
from ..declaring.declare import by_position
from ..declaring.shapes import Argument, Shapes, samples_by
from ..declaring.signature import Signature
from ..declaring.user_samples import dtypes_when_called
from ..names import collect_names
from .kernel_request import RequestKeywords, with_request
from .offer import AXES, Offer, forward_of

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@interrupt.SignalScope()
def custom_kernel(
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    shapes: Mapping[str, Argument],
    *,
    constants: Mapping[str, Any] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    regimes: Sequence[str] = strategies.MODERATE,
    offer: Offer | None = None,
    name: str = "",
    **request: Unpack[RequestKeywords],
) -> Op:
    """The declaration of a kernel, for `verify`, for `opassay.pytest`, or for `opassay run --op MODULE:NAME`.

    Args:
        kernel: what is judged: any callable of tensors, or a subclass of `torch.autograd.Function`. What it needs
            besides are destinations, one for each output of a reference in PyTorch: it writes into them.
        reference: what it means, forward only: plain PyTorch, a module of it, or NumPy. Its dtypes are promised. A cast
            in it is a rounding that the kernel may make, too.
        shapes: the shape of every floating tensor that both take, by its name in `reference`: symbols, "2*n", or
            numbers; and `opassay.Integers` of labels, indices and counts. The kernel gets them by the same names if it
            has them, else in this order.
        constants: further arguments, by name, with the one value that is asked for.
        sizes: for a symbol of which not every extent is taken, those that are.
        regimes: of the data, names of `strategies.REGIMES`.
        offer: what the kernel does not offer, and what it promises. name: of the op; by default that of the kernel.
        request: `properties`, `dtypes`, `device`, `settings` and `compiled`, as for `verify_kernel`: what is asked by
            whoever judges the declaration and says nothing else.

    Raises:
        TypeError: `kernel` or `reference` is not callable, or the reference can neither be traced nor be called with
            NumPy arrays, or there is no argument of that name.
        ValueError: a name is that of no argument or symbol, or an extent is of another kind.
    """
    offer, fixed = Offer.of(offer, "supported"), dict(constants or {})
    _require_parameters(kernel, reference, shapes, fixed)
    by_symbol = Shapes.of(shapes, sizes or {})
    names = tuple(by_symbol.arguments)
    wrt = offer.choose_differentiable([name for name in names if name not in by_symbol.integers])
    call = _by_name("reference", reference, names, fixed)
    title = name or _kernel_name(kernel)
    operands = by_symbol.example(by_symbol.smallest())
    formula = _formula(reference, call, operands, title)
    subject = _writing(kernel, names, fixed, formula, operands) or _by_name("kernel", kernel, names, fixed)
    writes = _find_writes(formula, names, operands)
    if isinstance(formula, SpecFormula) and _why_without_derivatives(formula, operands):
        wrt = ()
    op = Op(
        title,
        formula,
        {"opassay": offer.picked(subject)},
        by_position(Signature(call), title, samples_by(by_symbol, regimes)),
        tuple(name for name in wrt if name not in writes) if offer.differentiable is not None or not writes else (),
        Promises(
            lambda args: _dtypes_of(formula, operands, op.functional)(args),
            invariant=_invariant(offer.invariant, by_symbol, formula),
        ),
        documented=_documented(offer, formula),
        mutates=writes,
    )
    return with_request(op.changed(**offer.keywords() | {"without": offer.lacking() | {"dims"}}), request)


def _documented(offer: Offer, formula: Any) -> dict[str, Documented]:
    """What is documented of a kernel: what its offer says, and that it need not surpass torch at its reference."""
    native = Offer().picked(formula.spec) if isinstance(formula, SpecFormula) else None
    return {OWN: replace(offer.documented.get(OWN, Documented()), native=native)}


def replace_kernel(kernel: Callable[..., Any], op: Op, offer: Offer | None = None) -> Op:
    """A kernel under the declaration of another op: its formula, its samples and its laws.

    Args:
        kernel: takes the arguments of the op, in their order, and returns its outputs. op: the declaration.
        offer: as for `custom_kernel`.

    Raises:
        TypeError: the kernel is not callable. ValueError: a name in `offer` is no argument of the op.
    """
    offer = Offer.of(offer)
    if not callable(kernel):
        raise TypeError(f"kernel: got {type(kernel).__name__}, need a callable")
    own = offer.keywords()
    return replace(
        op,
        subjects={"opassay": offer.picked(kernel)},
        samples=op.samples if offer.supported is None else _filter_samples(op, offer.supported),
        differentiable=offer.choose_differentiable(op.differentiable),
        documented=offer.documented,
    ).changed(
        invariant=op.promises.invariant if offer.invariant else None,
        without=op.promises.without | own["without"], saved=None, one_graph=own["one_graph"],
        specials=op.promises.specials and own["specials"], flush=own["flush"], nesting=0, error_names=(),
        algorithms=op.promises.arithmetic.algorithms | own["algorithms"], kernels="", ranks=None, devices=None,
        request=KernelRequest(),
    )  # fmt: skip


def _parameters(function: Any) -> Mapping[str, inspect.Parameter] | None:
    """The parameters by name; None where Python cannot read them."""
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        function = forward_of(function)
    elif isinstance(function, torch.nn.Module):
        function = function.forward
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _kernel_name(function: Any) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return "kernel" if name == "<lambda>" else name


def _require_parameters(kernel: Any, reference: Any, shapes: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    """ValueError unless each tensor is a parameter of the reference, and each constant of one of the two functions;
    TypeError where one of these is none.
    """
    for what, function in (("kernel", kernel), ("reference", reference)):
        if not callable(function):
            raise TypeError(f"{what}: got {type(function).__name__}, need a callable")
    read, own = _parameters(reference), _parameters(kernel)
    if read is not None and not any(p.kind in _MANY for p in read.values()):
        _require_names("shapes", shapes, "reference", read)
    if read is not None and own is not None and not _takes_any(read) and not _takes_any(own):
        _require_names("constants", constants, "kernel or reference", {**own, **read})


def _require_names(what: str, values: Mapping[str, Any], functions: str, parameters: Iterable[str]) -> None:
    names = tuple(parameters)
    for name, value in values.items():
        if name not in names:
            text = f"{name}={reprlib.repr(value)}{nearest_of(name, names)}"
            raise ValueError(f"{what}: got {text}, need parameters of {functions}: {', '.join(names)}")


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _by_name(what: str, function: Any, names: Sequence[str], constants: Mapping[str, Any]) -> Callable[..., Any]:
    """A function of the tensors in order that passes them to `function` by name if it has these names, else in order.

    Raises:
        ValueError: the function does not accept these tensors and the constants.
    """
    parameters = _parameters(function)
    options = {n: v for n, v in constants.items() if parameters is None or n in parameters or _takes_any(parameters)}
    named = parameters is not None and all(n in parameters and parameters[n].kind in _BY_NAME for n in names)
    is_function = isinstance(function, type) and issubclass(function, torch.autograd.Function)
    signature = None if parameters is None else inspect.Signature(list(parameters.values()))

    def bound(*args: Any) -> inspect.BoundArguments | None:
        by_name, in_order = (dict(zip(names, args, strict=True)), ()) if named else ({}, args)
        return None if signature is None else signature.bind(*in_order, **by_name, **options)

    def call(*args: Any) -> Any:
        if is_function:
            binding = bound(*args)
            assert binding is not None
            binding.apply_defaults()
            return function.apply(*binding.args)
        return function(**dict(zip(names, args, strict=True)), **options) if named else function(*args, **options)

    try:
        bound(*names)
    except TypeError as err:
        raise ValueError(f"{what}: does not take shapes {', '.join(names)} and constants: {err}") from err
    surface: Any = call
    surface.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    surface.__name__ = _kernel_name(function)
    surface.__wrapped__ = function
    return call


def _writing(
    kernel: Any, names: Sequence[str], constants: Mapping[str, Any], formula: Any, operands: Sequence[Any]
) -> Callable[..., Any] | None:
    """A kernel that needs a destination for each output as a function of the tensors; None for other kernels."""
    parameters = _parameters(kernel) or {}
    by_name = all(name in parameters for name in names)
    rest = [n for n in parameters if n not in names] if by_name else list(parameters)[len(names) :]
    needed = [parameters[name] for name in rest if name not in constants]
    places = [p.name for p in needed if p.default is p.empty and p.kind in _BY_NAME]
    outputs = _read(formula, operands) if places and isinstance(formula, SpecFormula) else ()
    if len(places) != len(outputs) or not places:
        return None
    call = _by_name("kernel", kernel, (*names, *places), constants)

    def write(*args: Any) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            like = [t for t in pytree.tree_leaves(formula.spec(*map(copied, args))) if isinstance(t, torch.Tensor)]
        # A kernel that reads what was there before gives NaN.
        outputs = tuple(torch.full_like(t, math.nan if is_float(t) else 0) for t in like)
        call(*args, *outputs)
        return outputs

    return write


def _invariant(
    rows: Sequence[str] | bool | None, shapes: Shapes, formula: Callable[..., Any]
) -> Callable[..., Slices] | None:
    """What is promised of slices along a symbol, as `Promises.invariant` has it.

    Raises:
        ValueError: some extent is not that symbol alone, or it may not have every extent, or outputs have it twice.
    """
    if not rows:
        return None
    words = collect_names([] if rows is True else rows)
    # All relations of rows are asked, whichever are named; runs and threads are DET, which is asked anyway.
    symbol = next((word.removeprefix("rows=") for word in words if word not in AXES), "")
    symbol = symbol or next(axes[0][1] for axes in shapes.arguments.values() if axes)
    places = {name: [i for i, axis in enumerate(axes) if axis[1] == symbol] for name, axes in shapes.arguments.items()}
    sizes = [shapes.smallest() | {symbol: extent} for extent in (5, 6)]
    one, two = ([np.shape(y) for y in _read(formula, shapes.example(each))] for each in sizes)
    outputs = [[i for i, n in enumerate(shape) if n != other[i]] for shape, other in zip(one, two, strict=True)]
    plain = all((1, symbol) == shapes.arguments[name][i] for name, axes in places.items() for i in axes)
    counts = {len(axes) for axes in (*places.values(), *outputs)}
    if symbol not in shapes.free or not plain or max(counts) > 1 or not any(outputs):
        need = f"need one of {', '.join(shapes.free)} that is one whole axis of tensors and of an output, of any extent"
        need += f"; or of {', '.join(AXES)}, rows=N (opassay.judge asks of others)"
        raise ValueError(f"invariant: got {symbol!r}{nearest_of(symbol, shapes.free)}, {need}")
    slices = Slices(
        {name: axes[0] for name, axes in places.items() if axes}, tuple(axes[0] if axes else None for axes in outputs),
        least={name: each.least for name, (each, _) in shapes.integers.items()},
    )  # fmt: skip
    return lambda args, device: slices


def _formula(reference: Any, call: Callable[..., Any], operands: Sequence[Any], title: str) -> Callable[..., Any]:
    others = declared(reference)
    if others:
        names = tuple(inspect.signature(call).parameters)
        declare_all(call, tuple(Algorithm(_by_name("reference", o.formula, names, {}), o.name) for o in others))
        return call
    # NumPy's functions convert tensors to arrays, but not tensors on "meta", which have no numbers.
    why = _fails(call, [torch.empty_like(torch.from_numpy(o), device="meta") if _is_array(o) else o for o in operands])
    if why and not _fails(call, operands):
        return call
    formula = SpecFormula(call, title)
    try:
        outputs = _read(formula, operands)
    except UntraceableError as err:
        raise TypeError(f"reference: as plain PyTorch, {err}; with NumPy arrays, {_fails(call, operands)}") from err
    if all(y is None for y in outputs):
        raise TypeError("reference: has no floating output, and no other is compared; opassay.judge compares them")
    return formula


def _read(formula: Callable[..., Any], operands: Sequence[Any]) -> list[Any]:
    """The outputs of a formula as balls: some primitives, of convolutions and pools, have no reading in NumPy."""
    terms = contract("float64")
    return pytree.tree_leaves(
        formula(*(Ball(o, None, terms) if _is_array(o) and o.dtype.kind == "f" else o for o in operands))
    )


def _why_without_derivatives(formula: SpecFormula, operands: Sequence[Any]) -> str:
    """Why no derivative of a reference is judged, as of what comes of a residual; empty where derivatives are."""
    tensors = [torch.as_tensor(o) if _is_array(o) else o for o in operands]
    try:
        return why_without_derivatives(trace(SpecCall.of(formula.spec, *tensors), Values.INTEGERS).graph)
    except UntraceableError:  # It reads values of a sample, which says so.
        return ""


def _fails(call: Callable[..., Any], operands: Sequence[Any]) -> str:
    """Why a function of tensors, or of arrays, does not return the same kind; empty if it does."""
    kind = (np.ndarray, np.generic) if any(map(_is_array, operands)) else torch.Tensor
    try:
        leaves = pytree.tree_leaves(call(*operands))
    except Exception as err:
        return f"{type(err).__name__}: {err}"
    other = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, kind)]
    return f"it gives {', '.join(other)}" if other else ""


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _find_writes(formula: Any, names: Sequence[str], operands: Sequence[Any]) -> tuple[str, ...]:
    """Names of the arguments that a reference in PyTorch writes."""
    if not isinstance(formula, SpecFormula):
        return ()
    tensors = [torch.from_numpy(np.array(o)) if _is_array(o) else o for o in operands]
    formula.spec(*tensors)
    return tuple(name for name, t in zip(names, tensors, strict=True) if isinstance(t, torch.Tensor) and t._version)


def _dtypes_of(
    formula: Callable[..., Any], operands: Sequence[Any], functional: Callable[[Any], Any]
) -> Callable[..., tuple[torch.dtype, ...]]:
    """The promised dtypes of the outputs: those of the spec, or, of a formula in NumPy, that of the arguments."""
    if not isinstance(formula, SpecFormula):
        count = len(pytree.tree_leaves(formula(*operands)))
        return lambda args: (next(a.dtype for a in args if is_float(a)),) * count
    return functools.partial(dtypes_when_called, functional(formula.spec))


def _filter_samples(op: Op, supported: Callable[..., Any]) -> Callable[..., Any]:
    """The samples of an op that a kernel supports; values that no supported sample has are not declared."""
    read = Signature(op.reference).reader(f"{op.name}: supported", supported)
    pairs: dict[tuple[str, str], set[tuple[str, str]]] = {}

    @st.composite
    def draw_supported(draw: st.DrawFn, dtype: str, kind: str, drafts: st.SearchStrategy[Draft]) -> Draft:
        with choices.record_choices() as record:
            draft = draw(drafts)
        assume(read(draft.fill(np.random.default_rng(0))))
        values = pairs.setdefault((dtype, kind), set())
        values |= record.values
        choices.restrict(values)
        return draft

    def samples(dtype: str, kind: str = "ordinary") -> Any:
        return draw_supported(dtype, kind, op.samples(dtype, kind))

    return samples
