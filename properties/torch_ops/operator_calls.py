"""Calls of torch's differentiable operations: the samples of torch's own tests (OpInfo), of few elements.

What is hard here: a sample of OpInfo is made for one dtype, and holds tensors anywhere among its arguments. So it is
made in float64, once; what is differentiable in it are the operands, and everything else belongs to the call, in the
dtype of its operands.
"""

from __future__ import annotations

import functools
import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.bound.contract import contract
from ...oracles.bound.rounding import ball
from ...oracles.op.declaration import Tensor, is_float
from ...oracles.op.transforms import REFERENCE, along
from ...oracles.specs import UntraceableError, traced
from ...oracles.specs.calls import first_line
from ...oracles.specs.decisions import Decisions
from ...oracles.specs.node_facts import drawing_nodes
from ...oracles.specs.tracing import Traced
from ...reference.array import Array
from ...reference.choice import has_residual
from ..names import SelectionError, unknown_name
from .patterns import PREFIX

#: How many calls an operation has, how many elements the tensors of one have, and at most where all samples have more.
CALLS, ELEMENTS, MOST = 8, 160, 4000
#: What a trace adds to the operations of a call, or what only copies.
_COPIES = {"clone", "detach", "alias", "<built-in function getitem>"}
#: The line of this module, which traces of a call name.
_HERE = re.compile(r" in line \d+ of operator_calls\.py \(.*\)\)\)")
#: Operations whose results are whatever memory holds.
_UNWRITTEN = {"empty", "resize"}


@dataclass(frozen=True, eq=False)
class OperatorCall:
    """One call of an operation, as a function of its differentiable tensors.

    Attributes:
        text: the call, for reports; it begins with its number.
        operator: what is called.
        leaves, structure: of (args, kwargs). places: of the operands among the leaves.
    """

    text: str
    operator: Callable[..., Any]
    leaves: tuple[Any, ...]
    structure: Any
    places: tuple[int, ...]

    @property
    def elements(self) -> int:
        return sum(leaf.numel() for leaf in self.leaves if isinstance(leaf, Tensor))

    @property
    def has_numbers(self) -> bool:
        """Whether some result has floating numbers, or complex ones that are read: by their bits these are no facts."""
        with torch.no_grad():
            results = self._results(*self.operands)
        return any(map(is_float, results)) or (any(t.is_complex() for t in results) and not reading_of(self).why_not)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The differentiable tensors, in float64."""
        return tuple(self.leaves[i] for i in self.places)

    def require_sizes(self, operands: Sequence[Tensor]) -> None:
        """Refuse extents that a tensor of the call has otherwise, which not all operations check.

        Batch norm reads behind running statistics of fewer channels, and a segment reduction behind its offsets.

        Raises:
            ValueError: an operand has another extent in its place.
        """
        constants = (leaf for i, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor) and i not in self.places)
        extents = {extent for leaf in constants for extent in leaf.shape}
        for position, (operand, own) in enumerate(zip(operands, self.operands, strict=True)):
            for extent, need in zip(operand.shape, own.shape, strict=False):
                if extent != need and need in extents:
                    text = f"need {need}, as a tensor of the call {self.text} has it"
                    raise ValueError(f"operand {position}: an axis of {extent} elements: {text}")

    def __call__(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """The tensors among the results, for operands of another dtype too; of complex ones their parts."""
        results = self._results(*operands)
        # `view_as_real` would want cotangents that lie in memory as complex numbers do.
        return tuple(
            torch.stack([part(t.resolve_conj()) for part in (torch.real, torch.imag)], -1) if t.is_complex() else t
            for t in results
        )

    def _results(self, *operands: Tensor) -> tuple[Tensor, ...]:
        dtype = operands[0].dtype
        # A call may write its constants, as batch norm does with running statistics, so each call has its own.
        leaves = [_constant(leaf, dtype) for leaf in self.leaves]
        for place, operand in zip(self.places, operands, strict=True):
            leaves[place] = operand
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        results = pytree.tree_leaves(self.operator(*args, **kwargs))
        return tuple(leaf for leaf in results if isinstance(leaf, Tensor))


@dataclass(frozen=True)
class OperatorReading:
    """Whether a call can be read as a formula.

    Attributes:
        why_not: a sentence; empty where it can be read.
        operations: the aten operations that torch traces it as, in order, each once, but for copies.
    """

    why_not: str
    operations: tuple[str, ...] = ()


@functools.cache
def operators() -> Mapping[str, Any]:
    """Name -> OpInfo of every differentiable operation of torch's own tests.

    Raises:
        SelectionError: the samples of torch's tests cannot be imported.
    """
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as err:
        text = f"op: operations of torch need the samples of torch's tests: {err}; pip install expecttest"
        raise SelectionError(text) from err
    return {
        info.full_name: info
        for info in op_db
        if info.supports_autograd and torch.float64 in info.dtypes and not _UNWRITTEN & set(re.split("[._]", info.name))
    }


@functools.lru_cache(maxsize=16)
def calls_of(name: str) -> tuple[OperatorCall, ...]:
    """Calls of an operation, those of no elements last; of a few elements each, and evenly spread among the samples.

    Raises:
        SelectionError: there is no such operation.
    """
    info = operators().get(name)
    if info is None:
        raise SelectionError(unknown_name("op", f"{PREFIX}{name}", (f"{PREFIX}{each}" for each in operators())))
    calls = [call for sample in _samples(info) if (call := _call(info, sample)) is not None and call.has_numbers]
    filled = [call for call in calls if all(t.numel() for t in call.operands)]
    empty = [call for call in calls if not all(t.numel() for t in call.operands)]
    least = min((call.elements for call in filled), default=0)
    small = [call for call in filled if call.elements <= max(ELEMENTS, least)]
    spread = [*small[:: -(-len(small) // CALLS) or 1], *empty[:2]]
    return tuple(
        OperatorCall(f"{i} {call.text}", call.operator, call.leaves, call.structure, call.places)
        for i, call in enumerate(spread)
    )


def _samples(info: Any) -> list[Any]:
    seed = zlib.crc32(info.full_name.encode())
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 (torch's samples draw of this generator)
    try:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return list(info.sample_inputs("cpu", torch.float64, requires_grad=True))
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _call(info: Any, sample: Any) -> OperatorCall | None:
    """The call of a sample; None where it is large, or nothing of it is a dense tensor that needs a gradient."""
    leaves, structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    dense = all(t.layout is torch.strided and not t.is_nested for t in tensors)
    places = tuple(i for i, leaf in enumerate(leaves) if is_float(leaf) and leaf.requires_grad)
    if not places or not dense or sum(t.numel() for t in tensors) > MOST:
        return None
    plain = tuple(leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    args, kwargs = pytree.tree_unflatten(list(map(_abbreviate, plain)), structure)
    words = [*map(str, args), *(f"{name}={value}" for name, value in kwargs.items())]
    return OperatorCall(f"{info.name}({', '.join(words)})", info.op, plain, structure, places)


def _abbreviate(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}".replace("float64", "")


def _constant(leaf: Any, dtype: torch.dtype) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.to(dtype, copy=True) if is_float(leaf) else leaf.clone()


@functools.lru_cache(maxsize=256)
def reading_of(call: OperatorCall) -> OperatorReading:
    """How a call and its second derivatives are read, tried on its own operands in float64."""
    try:
        formula = traced(call, *call.operands)
        graph = formula.graph
        targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        names = [target.removeprefix("aten.").removesuffix(".default") for target in targets]
        if drawing_nodes(graph):
            return OperatorReading("it draws random numbers")
        _read_second_order(formula, call.operands)
    except UntraceableError as err:
        return OperatorReading(_HERE.sub("", first_line(err)))
    except Exception as err:
        return OperatorReading(f"{type(err).__name__}: {first_line(err)}")
    return OperatorReading("", tuple(dict.fromkeys(name for name in names if name not in _COPIES)))


def _read_second_order(formula: Traced, operands: Sequence[Tensor]) -> None:
    """Read values and second derivatives of a formula of floating operands; what cannot be read raises."""
    terms, decisions = contract("float64"), Decisions()
    formula = replace(formula, decisions=decisions)

    def floating(*arrays: Any) -> tuple[Any, ...]:
        return tuple(y for y in formula(*arrays) if isinstance(y, Array))

    inputs = [ball(t.numpy(), terms) for t in operands]
    if has_residual(formula(*inputs)):
        raise UntraceableError("it is known by its residual alone, by which `opassay judge` judges it")
    outputs = floating(*inputs)
    if not all(source.is_ordered for source in decisions.open.values()):
        raise UntraceableError("its values go by which index is chosen, so that `opassay judge` alone judges it")
    tangents, cotangents = ([ball(np.ones(x.shape), terms) for x in of] for of in (inputs, outputs))
    along(REFERENCE, ("vjp", "jvp"), floating, len(inputs), len(outputs))(*inputs, *cotangents, *tangents, *cotangents)
    along(REFERENCE, ("jvp", "vjp"), floating, len(inputs), len(outputs))(*inputs, *tangents, *cotangents)
