"""A function of plain PyTorch as a formula: the aten operations that torch traces, read in NumPy's words.

torch traces the function on tensors without data, for the shapes and dtypes that it is called with; each operation of
the graph that has a rule (`rules/`) is evaluated on arrays of any reading. So the truth about a kernel is what its spec
says, with the bound and the derivatives that every formula has.

What is hard here are dtypes. A formula is about real numbers, and a spec in bfloat16 rounds every intermediate to
bfloat16 where it is run. Such roundings are marked in the formula (`reference.array.store`), and the contract says
whether an evaluation may make them. A cast that the spec asks for by itself may always be made.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.fx.traceback
from torch._decomp import _core_aten_decompositions_post_autograd as core_decompositions
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from ...reference.array import Array
from ...reference.dtypes import dtype_name
from ..bound.laws.residual import Residual
from ..process.logs import FAKE_TENSORS, silent
from .autograd_calls import trace_with_own_derivatives
from .calls import RESULT, Operand, SpecCall, UntraceableError, ValuesNeededError, first_line
from .complex_numbers import RealInterpreter
from .decisions import Decisions
from .lines import Lines, line_of, line_of_error
from .node_facts import Known, is_complex, moving_nodes
from .reader import READ, Reader
from .rules import DECOMPOSED, RULES
from .rules.elementwise import recover_decimal
from .rules.table import overloads
from .stand_ins import open_custom_functions, uncompiled
from .storage import is_floating
from .traces import Traces, Values

#: Of operations without a rule. torch's public table has composite ones, too, which are traced as what they call.
_DECOMPOSITIONS = {op: rule for op, rule in {**core_decompositions(), **DECOMPOSED}.items() if op not in RULES}
#: What torch raises where a spec reads values of tensors that it is traced without.
READS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
#: What torch calls operations that read values, and those among them that have values to choose from beside an index.
_VALUE_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_INDEXING = set(overloads("index.Tensor _unsafe_index.Tensor"))
_READ_OFF_FLOATS = (
    "a number, a branch or a shape depends on values of floating tensors there, which rounding may decide; a spec may"
    " read those of integers and truth values that it is given"
)


@dataclass(frozen=True)
class Traced:
    """A spec for the shapes and dtypes that it was traced with.

    Attributes:
        graph: aten operations.
        inputs: what it takes: tensors among the arguments, then parameters and buffers of a module.
        outputs: what it gives: the tensors among the leaves of the result, then inputs that the spec wrote, as they
            are after it.
        written_inputs: the positions among the inputs of those outputs that are inputs.
        decisions: which of several possible indices a reading takes.
    """

    graph: torch.fx.GraphModule
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    written_inputs: tuple[int, ...] = ()
    decisions: Decisions | None = None
    _known: Known = field(default_factory=dict, compare=False, repr=False)

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The dtypes of the outputs."""
        return tuple(output.dtype for output in self.outputs)

    def __call__(self, *arrays: Any, like: Any = None) -> tuple[Any, ...]:
        """The outputs for arrays of any reading, or of NumPy, in place of the inputs.

        Integers and truth values come as NumPy arrays, unless they depend on floating numbers.

        Args:
            arrays: in place of the inputs. like: an array of the reading, of which no other is known where all inputs
                are integers.

        Raises:
            UntraceableError: an operation of the spec has no rule.
        """
        if len(arrays) != len(self.inputs):
            raise TypeError(f"arrays: got {len(arrays)}, need {len(self.inputs)}: {[x.name for x in self.inputs]}")
        return Reader(self.graph, self.decisions, self._known).run(*arrays, like=like)  # type: ignore[no-any-return]


def traced(spec: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """The spec at tensors like those among these arguments.

    Args:
        spec: a function or a module; its result is a tensor, or a tree of which the tensors are taken in order.
        args, kwargs: of one call; shapes, dtypes and devices of the tensors are those it is traced for, and other
            arguments keep their values. A number that the spec reads off a tensor, or a branch that it takes by one,
            cannot be traced.

    Raises:
        ValuesNeededError: the spec reads values of tensors; `trace` may be allowed to.
        UntraceableError: the spec cannot be traced. An operation without a rule raises when it is read.
    """
    return trace(SpecCall.of(spec, *args, **kwargs))


def trace(call: SpecCall, values: Values = Values.NONE) -> Traced:
    """The spec of a call, for tensors like those of the call.

    Args:
        call: the spec and its arguments. values: which of them it may read.

    Raises:
        UntraceableError: as `traced` does; and where the spec reads values that it may not read.
    """
    for operand, tensor in zip(call.operands, call.tensors, strict=True):
        check(operand.name, tensor)
    places: list[str] = []
    lines = Lines()

    def flat(*tensors: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        # A copy that the spec does not write stays a copy in the graph, which shows what the spec has written.
        copies = [t.clone() for t in tensors]
        with lines.wish, lines:
            results = call.results(copies)
        places[:] = [place for place, _ in results]
        return [leaf for _, leaf in results], copies

    try:
        with _tracing():
            graph = trace_with_own_derivatives(
                lambda f: _functional(f, call.tensors, _DECOMPOSITIONS, values), flat, call.tensors
            )
            if any(map(is_complex, graph.graph.nodes)):
                graph = _functional(RealInterpreter(graph).run, call.tensors, _DECOMPOSITIONS, values)
            if any(_node_writes(node) for node in graph.graph.nodes):
                graph = _functional(torch.fx.Interpreter(graph).run, call.tensors, {}, values)
    except UntraceableError:
        raise
    except Exception as err:
        kind = ValuesNeededError if isinstance(err, READS_VALUES) else UntraceableError
        raise kind(f"cannot be traced{_at(line_of_error(err) or lines.last)}: {_why(err)}") from err
    if values is Values.INTEGERS:
        _require_reads_of_integers(graph)
    spec = _of_graph(graph, call, places)
    # Of what is left alone: torch traces what finds a shape on the meta device, and uses nothing of it.
    for node in spec.graph.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                check(f"what {node.target} gives{line_of(node)}", value)
    return spec


def rewritten(spec: Traced, run: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Traced:
    """A spec with other operations: those that another way to run its graph calls. The marks of its nodes stay.

    Args:
        spec: of which inputs and outputs are those of the result. run: (*tensors) -> the outputs. tensors: like inputs.

    Raises:
        UntraceableError: it cannot be run.
    """
    try:
        with _tracing():
            graph = _functional(run, tensors, _DECOMPOSITIONS, Values.INTEGERS)
    except Exception as err:
        raise UntraceableError(f"cannot be traced: {_why(err)}") from err
    graph.graph.eliminate_dead_code()
    return replace(spec, graph=graph)


def check(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor that cannot be read.

    Raises:
        UntraceableError: the tensor is complex, sparse, without data, or of a format that has no arithmetic here.
    """
    if tensor.dtype.is_complex:
        why = "complex; write its real and its imaginary part as two tensors"
    elif tensor.is_nested or tensor.layout != torch.strided:
        layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        why = f"{layout}; give it as a dense tensor"
    elif tensor.dtype not in READ:
        names = ", ".join(sorted(dtype_name(dtype) for dtype in READ if is_floating(dtype)))
        why = f"of {dtype_name(tensor.dtype)}; it can be read in {names}, in integers and in truth values"
    elif tensor.is_meta:
        why = "on the meta device, and has no values; give it on another"
    else:
        return
    raise UntraceableError(f"cannot be read: {name} is {why}")


def _functional(
    function: Callable[..., Any], tensors: Sequence[torch.Tensor], decompositions: Any, values: Values
) -> torch.fx.GraphModule:
    """The graph of a function, in which every write has become an operation with a result of its own, since nothing
    writes arrays of a reading. Decompositions are applied after that, and may write again.
    """
    functional = torch.func.functionalize(function)
    try:
        tracer = make_fx(functional, decompositions, _allow_non_fake_inputs=True)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            # A tensor that is given twice is two inputs, so each has an object of its own.
            return tracer(*(mode.from_tensor(t.detach(), static_shapes=True) for t in tensors))
    except READS_VALUES:
        if values is Values.NONE:
            raise
    return make_fx(functional, decompositions, _error_on_data_dependent_ops=False)(*(t.detach() for t in tensors))


def _require_reads_of_integers(graph: torch.fx.GraphModule) -> None:
    """Raise an UntraceableError for a number, a branch or a shape that depends on floating inputs."""
    moving = moving_nodes(graph)
    for node in graph.graph.nodes:
        if not _VALUE_TAGS.isdisjoint(getattr(node.target, "tags", ())) and _deciding(node) & moving:
            raise UntraceableError(f"cannot be traced{line_of(node)}: {_READ_OFF_FLOATS}")


def _deciding(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The operands of a node whose values decide its shape, or the number that is read off it.

    Operands of integers and truth values beside floating ones are what chooses among these. An index by integers
    decides no shape, one by truth values does.
    """
    dtypes = {each: _meta_of(each).dtype for each in node.all_input_nodes}
    if node.target in _INDEXING:
        return {each for each, dtype in dtypes.items() if dtype == torch.bool}
    return {each for each, dtype in dtypes.items() if not is_floating(dtype)} or set(dtypes)


def _node_writes(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


@contextlib.contextmanager
def without_fused_operations() -> Iterator[None]:
    """torch without operations that are fused for speed and have no rule: attention, its layers, recurrent layers."""
    enabled, fast = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    widened = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch._C._set_mkldnn_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    # Otherwise attention of half types would be traced in float32, as if the spec asked for that.
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(widened)


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    """The state of torch in which a spec is traced, and logs nothing where the spec raises."""
    # No tensor asks for gradients, so none are traced. They are on so that `Lines` sees a spec turn them off.
    quiet, preserved = silent(FAKE_TENSORS), torch.fx.traceback.preserve_node_meta()
    with quiet, uncompiled(), torch.enable_grad(), without_fused_operations(), preserved, open_custom_functions():
        yield


def _at(line: str) -> str:
    return f" in {line}" if line else ""


def _why(err: Exception) -> str:
    if isinstance(err, READS_VALUES):
        return "a number, a branch or a shape is read off a tensor there, and a spec is read without values"
    if "INTERNAL ASSERT" in str(err):
        return (
            "it writes there into a tensor that is neither an argument nor computed in the call;"
            " keep it by register_buffer, or make it an argument"
        )
    return f"{type(err).__name__}: {first_line(err)}"


def _of_graph(graph: torch.fx.GraphModule, call: SpecCall, places: Sequence[str]) -> Traced:
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    results, after = output.args[0]
    written_inputs = tuple(i for i, node in enumerate(after) if not _is_copied_input(node))
    nodes = [*results, *(after[i] for i in written_inputs)]
    # torch hands some numbers over in float32. In float64 it computes with these; elsewhere the decimal is meant.
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.add.Scalar and _meta_of(node).dtype != torch.float64:
            node.args = (node.args[0], recover_decimal(node.args[1]), *node.args[2:])
    output.args = (tuple(nodes),)
    # A node of a functional graph has no effect but its value, so unused ones may go, random draws included.
    graph.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    graph.recompile()
    named = [(place, RESULT) for place in places] + [
        (call.operands[i].name, call.operands[i].role) for i in written_inputs
    ]
    values = (_meta_of(node) for node in nodes)
    outputs = tuple(Operand(name, role, t.dtype, tuple(t.shape)) for (name, role), t in zip(named, values, strict=True))
    return Traced(graph, call.operands, outputs, written_inputs)


def _meta_of(node: torch.fx.Node) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


def _is_copied_input(node: torch.fx.Node) -> bool:
    copied = node.args[0] if node.target is torch.ops.aten.clone.default else node
    return isinstance(copied, torch.fx.Node) and copied.op == "placeholder"


def formula_of(function: Callable[..., Any], like: Sequence[Any] = ()) -> Callable[..., Any]:
    """`function` as a formula of NumPy arrays; tensors among its arguments come as arrays, and are traced in float64.

    Its outputs are those of the spec, as balls or residuals say; None stands for those that are not floating.

    Args:
        function: the spec.
        like: arguments of a call; floating arrays in the place of its tensors are traced in the dtypes of those.

    Raises (when called):
        UntraceableError: an operation of the function has no rule.
    """
    traces: Traces[Traced] = Traces()

    def is_kept(y: Any, dtype: torch.dtype) -> bool:
        whole = isinstance(y, Residual) and dtype.is_floating_point
        return whole or isinstance(y, Array) or getattr(y, "dtype", None) == np.float64

    def formula(*args: Any) -> Any:
        arrays = [a for a in args if _is_array(a)]
        shapes = [(np.shape(a), _dtype(a)) if _is_array(a) else a for a in args]
        known = [a for a in arrays if isinstance(a, np.ndarray) and a.dtype.kind != "f"]
        trace = traces.at(repr(shapes), known, functools.partial(_trace_of_arrays, function, args, like))
        return tuple(y if is_kept(y, dtype) else None for y, dtype in zip(trace(*arrays), trace.dtypes, strict=True))

    return formula


def _is_array(value: Any) -> bool:
    return isinstance(value, (Array, np.ndarray))


def _dtype(value: Any) -> torch.dtype:
    if isinstance(value, Array) or value.dtype.kind == "f":
        return torch.float64
    return torch.bool if value.dtype.kind == "b" else torch.int64


class SpecFormula:
    """A spec as the formula of an op: read as the spec rounds in the dtypes of the arguments of each sample.

    So a cast of the spec to the dtype of an argument is read as the cast that the spec makes for that sample.

    Attributes:
        spec: the function of plain PyTorch.
    """

    def __init__(self, spec: Callable[..., Any], name: str = "") -> None:
        self.spec, self.__wrapped__ = spec, spec
        self.__name__ = name or getattr(spec, "__name__", type(spec).__name__)
        self._formulas: dict[tuple[torch.dtype | None, ...], Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        return self.for_arguments(())(*args)

    def for_arguments(self, args: Sequence[Any]) -> Callable[..., Any]:
        """The formula in the dtypes of these arguments."""
        dtypes = tuple(a.dtype if isinstance(a, torch.Tensor) else None for a in args)
        if dtypes not in self._formulas:
            like = [torch.empty(0, dtype=dtype) if dtype is not None else None for dtype in dtypes]
            self._formulas[dtypes] = formula_of(self.spec, like)
        return self._formulas[dtypes]


def _trace_of_arrays(function: Callable[..., Any], args: Sequence[Any], like: Sequence[Any], values: Values) -> Traced:
    positions = [i for i, a in enumerate(args) if _is_array(a)]

    def of_tensors(*tensors: Any) -> Any:
        arguments = list(args)
        for i, tensor in zip(positions, tensors, strict=True):
            arguments[i] = tensor
        return function(*arguments)

    def tensor_for(i: int) -> torch.Tensor:
        original = like[i] if i < len(like) else None
        dtype = original.dtype if isinstance(original, torch.Tensor) else _dtype(args[i])
        if dtype.is_floating_point or not isinstance(args[i], np.ndarray):
            return torch.ones(np.shape(args[i]), dtype=dtype)
        return torch.from_numpy(np.array(args[i])).to(dtype)

    return trace(SpecCall.of(of_tensors, *map(tensor_for, positions)), values)
