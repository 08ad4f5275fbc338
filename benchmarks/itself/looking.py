"""torch's values and gradients of one call, held element by element by the ball that the call itself has as a spec."""

from __future__ import annotations

import ast
import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opassay.oracles.bound import accept
from opassay.oracles.bound.rounding import Ball
from opassay.oracles.bound.terms import terms
from opassay.oracles.op.declaration import dtype_name, is_float, to_array
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.results import result_of
from opassay.properties.candidates.specification import SpecError, Specification, specification
from opassay.reference.condition import Condition, possibly, surely
from opassay.reference.formats import FORMATS

from .kinds import of_kind
from .sources import NoSampleError, Source
from .stepping import Stepping

CONTRACT = terms("torch")
#: Stands for the evaluation of `stepping`, beside 0 for float64 and 1, 2, ... for moved operands.
STEPPED = -1


@dataclass
class Row:
    """What one result of torch showed.

    Attributes:
        name, group: of the source. dtype, kind: of the data. what: which value, or the gradient in which operand.
        judged, left: elements that were judged, and that were not; missed: of these, those that are finite numbers of
            the dtype by torch's own float64. outside: of those that were judged.
        worst: the largest error over its bound. at: where. computed, exact, centre, width: there; exact is torch's
            own float64, which is no work of ours.
        moved: the error there over what float64 shows where every operand is moved by half an ulp: near 1 if the
            function itself is that sensitive, large if torch loses digits that the function keeps.
        stepped: elements that are outside where each operation is computed in float64 and rounded once (`stepping`):
            where there is one, the ball is too narrow; where there is none, torch's kernel loses what is lost.
        quotient: of a gradient with an element outside: a difference quotient there of torch's function in float64,
            which knows nothing of derivatives; NaN where there is none.
        note: why nothing was judged.
    """

    name: str
    group: str
    dtype: str
    kind: str
    what: str
    judged: int = 0
    left: int = 0
    missed: int = 0
    outside: int = 0
    worst: float = 0.0
    at: str = ""
    computed: float = 0.0
    exact: float = 0.0
    centre: float = 0.0
    width: float = 0.0
    moved: float = 0.0
    stepped: int = 0
    quotient: float = math.nan
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def looked_at(source: Source, dtype: torch.dtype) -> list[Row]:
    """A row for each value and each gradient at each kind of data; one with a note where there are none."""
    rows: list[Row] = []
    named = (source.name, source.group, dtype_name(dtype))
    try:
        function, *draws = source.build(dtype)
    except (NoSampleError, NotImplementedError):
        return []
    except Exception as err:  # an example that torch itself cannot make in that dtype
        return [Row(*named, "normal", "made", note=f"torch: {_first(err)}")]
    spec = specification(function)
    for kind in source.kinds:
        args = pytree.tree_map(lambda leaf, kind=kind: _of_kind(leaf, kind, dtype), tuple(draws))
        arguments = CallArguments.of(args)
        if not arguments.finite:
            continue
        for what, values in (("value", _values), ("gradient", _gradients)):
            # torch refuses an operation in a dtype, or numbers out of its domain: there is nothing to hold.
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rows += values(spec, arguments, (*named, kind))
            except _TorchError as err:
                rows.append(Row(*named, kind, what, note=f"torch: {err}"))
                break
            except SpecError as err:
                rows.append(Row(*named, kind, what, note=f"not read: {_first(err)}"))
                break
            except Exception as err:
                rows.append(Row(*named, kind, what, note=f"RAISED {type(err).__name__}: {_first(err)}"))
                break
        if rows and rows[-1].note.startswith("not read"):
            break  # It is not read at other data either.
    return rows


class _TorchError(Exception):
    """torch does not compute it."""


def _first(err: Exception) -> str:
    return str(err).strip().partition("\n")[0][:200]


def _of_kind(leaf: Any, kind: str, dtype: torch.dtype) -> Any:
    moves = isinstance(leaf, Tensor) and leaf.dtype == dtype and kind != "normal"
    return of_kind(kind, leaf, dtype) if moves else leaf


def _values(spec: Specification, arguments: CallArguments, named: Sequence[str]) -> Iterator[Row]:
    computed = _run(spec, arguments)
    balls = spec.read(arguments, spec.state, CONTRACT, sharp=named[3] == "ties")

    def other(moved: int) -> list[Tensor]:
        if moved != STEPPED:
            return _run(*_doubled(spec, arguments, moved))
        with Stepping():
            return _run(spec, arguments)

    exact = _Lazy(other)
    for i, (tensor, ball) in enumerate(zip(computed, balls, strict=True)):
        if tensor.is_complex():
            continue
        yield _row(Row(*named, f"value {i}"), tensor, ball, exact, i, 0)  # type: ignore[misc]


def _run(spec: Specification, arguments: CallArguments) -> list[Tensor]:
    try:
        run = spec.run(arguments, spec.state)
    except SpecError as err:
        raise _TorchError(_first(err)) from err
    return [*run.outputs, *run.values]


def _gradients(spec: Specification, arguments: CallArguments, named: Sequence[str]) -> Iterator[Row]:
    floats = [*spec.state.values(), *arguments.tensors]
    floats = [t for t in floats if is_float(t)]
    pulled = _pulled(spec, arguments, seed=1)
    wanted = [i for i, g in enumerate(pulled.gradients) if g is not None]
    if not wanted:
        return
    balls = spec.gradients(arguments, spec.state, CONTRACT, wanted, pulled.cotangents)

    def doubled(moved: int) -> list[Tensor]:
        if moved == STEPPED:
            with Stepping():
                result = _pulled(spec, arguments, seed=1, cotangents=pulled.cotangents)
        else:
            result = _pulled(*_doubled(spec, arguments, moved), seed=1, cotangents=pulled.cotangents)
        return [torch.zeros_like(floats[i]) if g is None else g for i, g in enumerate(result.gradients) if i in wanted]

    exact = _Lazy(doubled)
    for place, (i, ball) in enumerate(zip(wanted, balls, strict=True)):
        row = _row(Row(*named, f"gradient {i}"), pulled.gradients[i], ball, exact, place, 1)  # type: ignore[misc]
        if row.outside:
            row.quotient = _quotient(spec, arguments, pulled.cotangents, i, ast.literal_eval(row.at))
        yield row


def _quotient(
    spec: Specification, arguments: CallArguments, cotangents: Sequence[Tensor], operand: int, at: Any
) -> float:
    """The difference quotient of Σ g y by one element of an operand, in float64; NaN where torch computes none."""

    def total(moved: float) -> float:
        wide, args = _doubled(spec, arguments, 0)
        floats = [t for t in (*wide.state.values(), *args.tensors) if is_float(t)]
        with torch.no_grad():
            floats[operand][at] += moved
            outputs = [y for y in result_of(_call(wide, wide.state, args.args)).tensors if is_float(y)]
        return sum(float((g.double() * y).sum()) for g, y in zip(cotangents, outputs, strict=True) if y.numel())

    floats = [t for t in (*spec.state.values(), *arguments.tensors) if is_float(t)]
    step = 2.0**-17 * max(1.0, abs(float(floats[operand][at])))  # about the third root of float64's ulp
    try:
        return (total(step) - total(-step)) / (2.0 * step)
    except (RuntimeError, NotImplementedError, IndexError, ValueError):
        return math.nan


@dataclass(frozen=True)
class _Pulled:
    cotangents: list[Tensor]
    gradients: list[Any]


def _pulled(
    spec: Specification, arguments: CallArguments, seed: int, cotangents: Sequence[Tensor] | None = None
) -> _Pulled:
    """torch's gradients of a call in all its floating operands: None where torch has none.

    Args:
        spec, arguments: the call. seed: of the cotangents. cotangents: those of another dtype, in place of drawn ones.
    """
    draws = np.random.default_rng(seed)
    state = {n: _leaf(t) for n, t in spec.state.items()}
    leaves = [_leaf(t) for t in arguments.tensors]
    try:
        with torch.enable_grad():
            args = arguments.with_tensors([t.clone() if is_float(t) else t for t in leaves]).args
            called = {n: t.clone() if is_float(t) else t for n, t in state.items()}
            outputs = [y for y in result_of(_call(spec, called, args)).tensors if is_float(y)]
            if cotangents is None:
                cotangents = [torch.as_tensor(draws.standard_normal(tuple(y.shape))).to(y.dtype) for y in outputs]
            # What is not differentiable has no say in the gradients of the reading either.
            cotangents = [g if y.requires_grad else 0 * g for y, g in zip(outputs, cotangents, strict=True)]
            pairs = [(y, g.to(y.dtype)) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
            floats = [t for t in (*state.values(), *leaves) if is_float(t)]
            if not pairs:
                return _Pulled(list(cotangents), [None] * len(floats))
            gradients = torch.autograd.grad([y for y, _ in pairs], floats, [g for _, g in pairs], allow_unused=True)
    except (RuntimeError, NotImplementedError, IndexError, ValueError) as err:
        raise _TorchError(_first(err)) from err
    return _Pulled(list(cotangents), [g.to_dense() if g is not None and g.is_sparse else g for g in gradients])


def _call(spec: Specification, state: dict[str, Tensor], args: tuple[Any, ...]) -> Any:
    if isinstance(spec.function, torch.nn.Module):
        return torch.func.functional_call(spec.function, state, args)
    return spec.function(*args)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(is_float(tensor))


def _doubled(spec: Specification, arguments: CallArguments, moved: int) -> tuple[Specification, CallArguments]:
    """The call in float64; if `moved` is not 0, with every floating number moved by half an ulp, up or down."""
    draws = np.random.default_rng(moved)

    def double(t: Tensor) -> Tensor:
        if not is_float(t):
            return t
        signs = draws.integers(0, 2, tuple(t.shape)) * 2 - 1 if moved else np.zeros(tuple(t.shape))
        return t.detach().double() * (1 + torch.as_tensor(signs * FORMATS[dtype_name(t.dtype)].unit_roundoff))

    function = spec.function
    if isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).double()
    state = {n: double(t) for n, t in spec.state.items()}
    return Specification(spec.name, function, state, spec.parameters), arguments.changed(double)


class _Lazy:
    """Results of a call in float64, computed where they are asked for; None where torch has none."""

    def __init__(self, function: Any) -> None:
        self._function, self._results = function, {}

    def of(self, moved: int, place: int) -> Any:
        if moved not in self._results:
            try:
                self._results[moved] = self._function(moved)
            except _TorchError:
                self._results[moved] = None
        results = self._results[moved]
        return None if results is None else results[place].detach().double().numpy()


def _row(row: Row, computed: Tensor, ball: Any, exact: _Lazy, place: int, order: int) -> Row:
    """The row of a result: how many of its elements are where the ball lets them be, and the worst that is not."""
    if tuple(computed.shape) != tuple(ball.shape):
        row.judged, row.outside, row.note = computed.numel(), computed.numel(), f"shape {tuple(ball.shape)} is read"
        return row
    if not isinstance(ball, Ball):
        accepted = _accepted(ball, computed.detach().numpy())
        row.judged, row.outside = accepted.size, int(np.count_nonzero(~accepted))
        if row.outside:
            row.at, row.worst = str(tuple(int(i) for i in np.argwhere(~accepted)[0])), np.inf
        return row
    values = to_array(computed)
    elements = accept.place_in_accept_sets(values, FORMATS[dtype_name(computed.dtype)], ball, None, True, order)
    judged = np.asarray(elements.judged)
    row.judged, row.left = int(np.count_nonzero(judged)), int(np.count_nonzero(~judged))
    if row.left:
        right = exact.of(0, place)
        largest = float(torch.finfo(computed.dtype).max)
        row.missed = 0 if right is None else int(np.count_nonzero(~judged & (np.abs(right) <= largest)))
    row.outside = int(np.count_nonzero(~np.asarray(elements.accepted)))
    row.worst = float(np.max(elements.ratio, initial=0.0))
    if row.outside:
        _proof(row, values, elements, ball, exact, place)
        steps = exact.of(STEPPED, place)
        if steps is not None:
            others = accept.place_in_accept_sets(steps, FORMATS[dtype_name(computed.dtype)], ball, None, True, order)
            row.stepped = int(np.count_nonzero(~np.asarray(others.accepted)))
    return row


def _proof(row: Row, values: Any, elements: Any, ball: Ball, exact: _Lazy, place: int) -> None:
    at = tuple(int(i) for i in elements.worst())
    right = exact.of(0, place)
    row.at, row.computed = str(at), float(values[at])
    row.centre, row.width = float(ball.centre[at]), float(elements.bound[at])
    if right is None:
        row.exact = np.nan
        return
    row.exact = float(right[at])
    others = [exact.of(moved, place) for moved in range(1, 5)]
    # Beside what the operands' own digits leave open stands half an ulp of the result, which every evaluation may lose.
    fmt = FORMATS[row.dtype]
    least = abs(row.exact) * fmt.unit_roundoff + fmt.eta
    swing = max((abs(float(other[at]) - row.exact) for other in others if other is not None), default=0.0)
    row.moved = abs(row.computed - row.exact) / max(swing, least)


def _accepted(need: Any, values: Any) -> Any:
    if hasattr(need, "accepts"):  # indices that were chosen by values
        return np.asarray(need.accepts(values))
    if isinstance(need, Condition):
        return (values == np.asarray(possibly(need))) | (np.asarray(possibly(need)) & ~np.asarray(surely(need)))
    return np.asarray(np.asarray(need) == values)
