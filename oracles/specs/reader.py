"""Evaluates a graph of aten operations on arrays of any reading, by the rules."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from ...reference.algorithms import Inapplicable
from ...reference.array import Array, attach, constant, store
from ...reference.choice import AnswerSet, Choice, Decidable, has_residual
from ...reference.condition import Condition, condition, is_open, possibly, surely
from ...reference.derivative import steps_stored, store_contributions
from ...reference.draw import Draw
from ...reference.dtypes import dtype_name
from ...reference.formats import FORMATS
from ...reference.whole import Whole, integers, settle, truncate
from ..bound.laws.turned import OpenBasisError, Turned
from .calls import UntraceableError, reason_of
from .decisions import Decisions
from .drawing import as_numbers, decided_by_draw, drawn_by
from .integers import is_place, is_read_at, of_integers, read_at
from .lines import NODE, is_constant, is_write, line_of
from .node_facts import GraphFacts, Known, draws, dtype_of, gives_floating, is_within, only_moves, takes_memory
from .residuals import of_residuals, require_digits
from .rules import MOVES, REPEATING, RESIDUALS, RULES, Rule, truth_of
from .rules.ordering import COMPARING
from .rules.table import overloads
from .storage import PAIRS, STORAGE_DTYPES, by_way_of_float32, cast_to, is_floating
from .unwritten import describe, differ, read_memory

#: Arguments of aten operations that say nothing of values.
_OF_MEMORY = ("dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit")

_aten = torch.ops.aten
#: Operations that cast. A cast to integers truncates.
_CASTS = {_aten._to_copy.default, _aten.copy.default, _aten.copy_.default}
#: Operations that give the indices of their operand unchanged, at other places perhaps; none that compares them.
_KEEPING = {*MOVES, _aten._to_copy.default} - COMPARING
#: Dtypes of integers, and what NumPy calls them.
_INTEGERS = {
    getattr(torch, f"{kind}{bits}"): np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)
}

_INTEGERS[PAIRS] = np.dtype("uint8")

#: Dtypes whose tensors can be read.
READ = {torch.bool, *_INTEGERS, *(getattr(torch, name) for name in FORMATS), *STORAGE_DTYPES}
#: Norms of which torch differentiates the first result alone, and not the statistics; those of group norm it does.
_NORMS = set(
    overloads("native_layer_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional")
)


class Reader(torch.fx.Interpreter):
    """Evaluates a graph by the rules.

    Floating tensors are arrays of the reading of the inputs. Integers and truth values are NumPy arrays, and what is
    computed of them alone is left to torch, whose integer arithmetic is exact.
    """

    def __init__(self, graph: GraphModule, decisions: Decisions | None = None, known: Known | None = None) -> None:
        known = {} if known is None else known
        self.facts = known.get(graph) or known.setdefault(graph, GraphFacts(graph))
        # What is read of the spec by a way of a scan must stay until the scan is read.
        super().__init__(graph, garbage_collect_values=not self.facts.scans.ways)
        #: Which of several possible indices the reading takes.
        self.decisions = decisions or Decisions()
        self.extra_traceback = False  # An error is to be told in one sentence, which names the line of the spec.
        self.reading: Any = None
        #: Whether this reading fills memory that nothing has written with marks.
        self.marked = False
        #: The values of nodes of `last` before they are rounded to their dtype: whoever judges the results does that.
        self.unrounded: dict[torch.fx.Node, Any] = {}

    def run(self, *arrays: Any, like: Any = None, **kwargs: Any) -> Any:
        # Constants of the graph are lifted into the reading of the inputs, because an evaluation rounds them.
        self.reading = next((constant(a) for a in (*arrays, like) if isinstance(a, Array)), None)
        arrays = tuple(self._lift(a) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arrays)
        self.unrounded = {}
        self.decisions.present.clear()
        for node, array in zip(self.graph.find_nodes(op="placeholder"), arrays, strict=False):
            store_contributions(array, self._format_of(node))
        results = super().run(*arrays, enable_io_processing=False, **kwargs)
        if self.facts.taking and not self.marked and (self.reading is None or self.reading.is_repeatable):
            assert isinstance(self.module, GraphModule)
            other = Reader(self.module, self.decisions, {self.module: self.facts})
            other.marked = True
            if differ(results, other.run(*map(constant, arrays), like=like)):
                raise UntraceableError(describe(self.facts.taking))
        return results

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._of_tensor(super().get_attr(target, args, kwargs))

    def run_node(self, n: torch.fx.Node) -> Any:
        if n in self.facts.scans.inside:
            return None
        NODE.set(n)
        if n.op == "output":
            results = torch.fx.node.map_arg(n.args[0], self._before_rounding)
            # The vectors themselves have a law.
            if any(isinstance(x, Turned) for x in pytree.tree_leaves(results)):
                raise UntraceableError(f"it gives a product with {OpenBasisError()}")
            return results
        try:
            return self._read(n) if n.op == "call_function" else super().run_node(n)
        except (UntraceableError, Inapplicable, MemoryError):
            raise
        except Exception as err:
            place = _describe_node(n)
            raise UntraceableError(f"it uses {place}, which cannot be read there: {reason_of(err)}") from err

    def _read(self, n: torch.fx.Node) -> Any:
        if n in self.facts.scans.ways:
            return self._mark_as_stored(self.facts.scans.read(n, self.env, Reader), n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        # Results of an operation that only moves elements are stored already, if their operands are.
        if only_moves(n):
            with steps_stored(self._format_of(n) if n.target in REPEATING else ""):
                moved = self._move(n, args, kwargs)
            store_contributions(moved, self._format_of(n))
            # Indices are chosen by what is stored, in which more elements may tie.
            unrounded = any(each in self.unrounded for each in n.all_input_nodes)
            if n in self.facts.last and unrounded and dtype_of(n) not in _INTEGERS:
                self.unrounded[n] = self._move(n, *torch.fx.node.map_arg((n.args, n.kwargs), self._before_rounding))
            return moved
        with steps_stored(self._format_of(n)):
            result = self._evaluate(n, args, kwargs)
            return result if isinstance(result, Sequence) else self._mark_as_stored(result, n)

    def _move(self, n: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        result = self._evaluate(n, args, kwargs)
        return result if isinstance(result, Sequence) else self._of_dtype(result, n)

    def _before_rounding(self, node: torch.fx.Node) -> Any:
        return self.unrounded.get(node, self.env.get(node))

    def _format_of(self, node: torch.fx.Node) -> str:
        """The format of a node's operation, if an evaluation may store its results; else ""."""
        name = self.facts.dtypes.get(node, "")
        return name if self.reading is not None and self.reading.may_store(name) else ""

    def _evaluate(self, n: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        if n.target is operator.getitem:  # one of several results
            source = n.args[0]
            assert isinstance(source, torch.fx.Node)
            # torch has no derivatives of the statistics that a norm gives beside its result.
            return constant(args[0][args[1]]) if source.target in _NORMS and args[1] else operator.getitem(*args)
        result = self._by_rule(n, args, kwargs)
        if isinstance(result, (Choice, Sequence)):
            result = self.decisions.apply_to(n.name, result)
        if n.target is torch.ops.aten.where.self:
            self._leave_out(n, result, args)
        if n.target is _aten.signbit.default and n.args[0] in self.facts.handed_on:
            result = _with_signs_of_zeros(result, args[0])
        return _without_derivatives(n, result, args) if is_constant(n) else result

    def _by_rule(self, node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any]) -> Any:
        rule = RULES.get(node.target)
        leaves = pytree.tree_leaves((args, kwargs))
        if has_residual(leaves):
            moved, args, kwargs = of_residuals(node, args, kwargs, self.reading, _apply_rule)
            if moved is not None:
                return moved
            leaves = pytree.tree_leaves((args, kwargs))
        if takes_memory(node):
            return read_memory(node, args, self.marked, self._lift)
        if any(isinstance(leaf, Choice) for leaf in leaves):
            result, args, kwargs = self._of_open_integers(node, args, kwargs)
            if result is not None:
                return result
            leaves = pytree.tree_leaves((args, kwargs))
        if draws(node):
            return self._draw(node, args, kwargs)
        if not any(_is_floating(leaf) for leaf in leaves):
            if rule is None or not gives_floating(node):
                return self._by_torch(node, args, kwargs)
            # Integers that become floating numbers here are lifted first, so that the arithmetic counts as rounded.
            args, kwargs = pytree.tree_map(self._lift_integers, (args, dict(kwargs)))
        if rule is None:
            raise UntraceableError(f"it uses {_describe_node(node)}, which {_NO_RULE}")
        if node.target in RESIDUALS:
            require_digits(node, self.reading)
        result = _apply_rule(rule, args, kwargs)
        draw = decided_by_draw(node, result) if node in self.facts.drawing else None
        return result if draw is None else self._take(node, draw)

    def _draw(self, node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """What an operation that draws gives: of floating numbers their ends, and of integers those that are taken."""
        draw = drawn_by(node, args, kwargs, self.reading)
        if draw is None:
            raise UntraceableError(f"it uses {_describe_node(node)}, which {_DRAWS}")
        if not isinstance(draw, Draw):
            return self.reading.lift(constant(draw).ends()[1]) if self.decisions.still else draw
        if dtype_of(node) in _INTEGERS:  # Integers that are drawn may be what the spec gives.
            return draw
        return self._take(node, draw)

    def _take(self, node: torch.fx.Node, draw: Draw) -> Any:
        draw.name = node.name
        dtype = dtype_of(node)
        assert dtype is not None
        return as_numbers(self.decisions.numbers(draw), dtype, self.reading)

    def _of_open_integers(self, node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """The result of a node for operands that are open integers, or None if there is no rule for such; and its
        operands, of which open integers have then become arrays of the reading.
        """
        leaves = pytree.tree_leaves((args, kwargs))
        target: Any = node.target
        choices = [leaf for leaf in leaves if isinstance(leaf, Choice) and not isinstance(leaf, Whole)]
        if choices and target in _KEEPING and not any(is_place(target, args, leaf) for leaf in choices):
            return _apply_rule(RULES[target], args, kwargs), args, kwargs
        # Every other operation needs numbers in place of indices that were chosen by values.
        args, kwargs = pytree.tree_map(self._settle, (args, dict(kwargs)))
        if is_read_at(target, args):
            return read_at(target, args, lambda operands: _apply_rule(RULES[target], operands, kwargs)), args, kwargs
        leaves = pytree.tree_leaves((args, kwargs))
        whole = any(isinstance(leaf, Whole) for leaf in leaves) and not any(map(_is_floating, leaves))
        if whole and dtype_of(node) in _INTEGERS:
            result = of_integers(target, args, kwargs, lambda xs, named: self._compute(node, xs, named))
            if result is not None:
                return result, args, kwargs
        return None, *pytree.tree_map(lambda x: x.lifted() if isinstance(x, Whole) else x, (args, kwargs))

    def _settle(self, value: Any) -> Any:
        if not isinstance(value, Choice):
            return value
        named = isinstance(value.source, Decidable) and value.source.name
        return self.decisions.numbers(value) if named else settle(value, np.int64, self.reading)

    def _leave_out(self, node: torch.fx.Node, result: Any, args: Any) -> None:
        """Tell the reading of zeros, and of −∞, that a mask puts into a tensor whatever the inputs are."""
        mask, *sides = node.args
        if not isinstance(result, Array) or mask in self.facts.moving:
            return
        choice, *values = args
        zero = [side not in self.facts.moving and _is_nothing(value) for side, value in zip(sides, values, strict=True)]
        zeros = np.where(np.asarray(choice, dtype=bool), *zero)
        if zeros.any():
            constant(result).leave_out(np.broadcast_to(zeros, result.shape))

    def _by_torch(self, node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """An operation of integers, truth values and constants alone: torch computes it."""
        return pytree.tree_map(self._of_tensor, self._compute(node, args, kwargs, as_tensors=True))

    def _compute(self, node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any], as_tensors: bool = False) -> Any:
        """What torch computes of integers, truth values and constants, as arrays or as tensors."""
        tensors, named = pytree.tree_map(_tensor, (args, dict(kwargs)))
        if "device" in named:
            named["device"] = torch.device("cpu")
        results = node.target(*tensors, **named)  # type: ignore[operator]
        return results if as_tensors else pytree.tree_map(_numbers, results)

    def _of_tensor(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not is_floating(value.dtype):
            return _numbers(value)
        return self._lift(value.detach().to("cpu", torch.float64).numpy())

    def _lift(self, value: Any) -> Any:
        return value if self.reading is None else self.reading.lift(value)

    def _lift_integers(self, value: Any) -> Any:
        is_array = isinstance(value, (np.ndarray, np.generic))
        return self._lift(value.astype(np.float64)) if is_array and value.dtype.kind in "iu" else value

    def _mark_as_stored(self, result: Any, node: torch.fx.Node) -> Any:
        """A result, marked as one that an evaluation may store in the dtype that the spec has there."""
        result = self._of_dtype(result, node)
        dtype = dtype_of(node)
        if dtype is None or isinstance(result, AnswerSet) or not is_floating(dtype):
            return result
        if not isinstance(result, Array):
            result = self._lift(result if is_open(result) else np.asarray(result))
        # A cast that stands in the spec is asked for; one that an operation makes inside itself is its own business.
        by_spec = node.target is torch.ops.aten._to_copy.default and not is_within(node)
        if not isinstance(result, Array):
            return result
        if dtype in STORAGE_DTYPES:
            source = node.args[0] if node.target in _CASTS else None
            result = by_way_of_float32(result, dtype_of(source) if isinstance(source, torch.fx.Node) else None)
        # Whoever judges the results of the spec rounds them; to round them here, too, would count that twice.
        if node in self.facts.last:
            self.unrounded[node] = result
        return cast_to(result, dtype) if dtype in STORAGE_DTYPES else store(result, dtype_name(dtype), by_spec)

    def _of_dtype(self, result: Any, node: torch.fx.Node) -> Any:
        """A result as numbers of the kind that the node has in the spec: integers, truth values, or floating ones."""
        dtype = dtype_of(node)
        if dtype in _INTEGERS and not isinstance(result, AnswerSet):
            if _is_floating(result):
                change = truncate if node.target in _CASTS else integers
                return change(result, _INTEGERS[dtype])
            return np.asarray(result).astype(_INTEGERS[dtype])
        if isinstance(result, Choice) and dtype not in _INTEGERS and dtype is not None:
            result = self._settle(result)
            result = result.lifted() if isinstance(result, Whole) else result
        return truth_of(result) if dtype == torch.bool else result


_NO_RULE = "has no rule; give a formula in NumPy"
_DRAWS = "draws random numbers of a kind that is not known; put it in evaluation, or hand them in as an argument"


def _describe_node(node: torch.fx.Node) -> str:
    return f"{node.target}{line_of(node)}"


def _without_derivatives(node: torch.fx.Node, result: Any, args: Any) -> Any:
    """A result of a node under `torch.no_grad`: a constant; or, if the spec wrote it into a tensor, a value with the
    derivatives of that tensor.
    """
    before = args[0] if args and is_write(node) else None
    if isinstance(before, Array) and isinstance(result, Array) and before.shape == result.shape:
        return attach(result, before, always=True)
    return pytree.tree_map(constant, result)


def _with_signs_of_zeros(negative: Any, x: Any) -> Any:
    """Whether the sign of each number is set; the numbers are inputs without arithmetic, so zeros have signs, too."""
    values = constant(x).comparable() if isinstance(x, Array) else np.asarray(x)
    if values.dtype == object:
        signs = getattr(constant(x), "negative_zeros", None)
        if signs is None:
            return negative
    else:
        signs = np.where(values == 0, np.signbit(values), False)
    return condition(surely(negative) | signs, np.where(values == 0, signs, possibly(negative)), constant(x))


def _apply_rule(rule: Rule, args: Any, kwargs: Mapping[str, Any]) -> Any:
    return rule(*args, **{name: value for name, value in kwargs.items() if name not in _OF_MEMORY})


def _is_nothing(value: Any) -> bool:
    """Whether a value is the number 0, or −∞, whose exponential is 0."""
    base = constant(value)
    number = base.comparable() if isinstance(base, Array) else base
    return np.size(number) == 1 and bool(np.all(np.equal(number, 0) | np.equal(number, -np.inf)))


def _is_floating(value: Any) -> bool:
    """Whether a value is, or depends on, floating numbers."""
    return isinstance(value, (Array, Condition)) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _numbers(tensor: torch.Tensor) -> Any:
    return (tensor.view(torch.uint8) if tensor.dtype == PAIRS else tensor).numpy(force=True)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(np.array(value)) if isinstance(value, (np.ndarray, np.generic, Choice)) else value
