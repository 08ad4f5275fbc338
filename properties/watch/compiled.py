"""A backend of `torch.compile` by which compiled graphs, forward and backward, are held like calls of torch.

A graph that inductor has compiled is held by the ball of its own operations, as the compiler was given them.

What is hard here is depth: a ball that is carried through a whole network becomes wide, and hides faults. So the
reading goes on from each result that the graph gives (activations that are saved for backward among them) as it was
computed, and the error of each is its own.
"""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from .call import DROPOUT, MOVES, DispatcherCall, Tensor, drop_by_mask, is_floating, tensors_in
from .recorder import active_recorder
from .regions import reference_of
from .stand_ins.lookup import stand_in_of

#: Views of memory that has other strides where a graph is read.
_VIEWS = frozenset({torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default})
#: Of a part that is computed again for its gradients: draws, and keeps the generator's state; draws again from it.
_KEEPS_STATE = torch.ops.higher_order.run_and_save_rng_state
_FROM_STATE = torch.ops.higher_order.run_with_rng_state
#: Operations that inductor leaves to libraries, which read what memory holds.
_APART = re.compile(r"mm\b|convolution|scaled_dot_product|_fft|rnn")
_HALF_TYPES = (torch.float16, torch.bfloat16)
_NUMBERS = itertools.count()


class GraphRegion:
    """A compiled graph as a function of its operands, of the numbers that it draws, and of its floating results.

    Attributes:
        name: for the report. graph: as the compiler was given it.
    """

    def __init__(self, name: str, graph: torch.fx.GraphModule) -> None:
        self.name, self.graph = name, graph
        self._outputs, operands = find_results(graph), list(graph.graph.find_nodes(op="placeholder"))
        self._writes = [operands.index(x.args[0]) for x in self._outputs if _writes_operand(x)]

    def results_of(self, output: Any, args: Sequence[Any]) -> tuple[Tensor, ...]:
        """The tensors that the graph gave, and the operands that it wrote: statistics that a layer keeps."""
        return (*tensors_in(output), *(args[i] for i in self._writes))

    @property
    def result_nodes(self) -> list[torch.fx.Node]:
        """The nodes of the tensors among the results."""
        return [x for x in self._outputs if isinstance(x.meta.get("val"), Tensor)]

    @property
    def names(self) -> list[str]:
        """What messages call the results: the operation, and the program's module."""
        return [f"{node.name} ({module_of(node)})".removesuffix(" ()") for node in self.result_nodes]

    def operands(self, call: DispatcherCall) -> tuple[Tensor, ...]:
        """The tensors of which the results are a function: the call's own, draws, and results as they were computed."""
        return (*call.tensors, *self._draws(call), *(y for _, y in self._known(call)))

    def function(self, call: DispatcherCall) -> Callable[..., tuple[Tensor, ...]]:
        """The results as a function of `operands`."""
        places = [i for i, x in enumerate(call.leaves) if isinstance(x, Tensor)]
        template = [None if isinstance(x, Tensor) else x for x in call.leaves]
        known = [node.name for node, _ in self._known(call)]

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            leaves, rest = list(template), list(tensors[len(places) :])
            for place, tensor in zip(places, tensors, strict=False):
                leaves[place] = tensor
            draws, own = rest[: len(rest) - len(known)], rest[len(rest) - len(known) :]
            reader = _GraphReader(self.graph, dict(zip(known, own, strict=True)), draws)
            return tuple(tensors_in(reader.run(*leaves)))

        return function

    def function_of_tensors(
        self, call: DispatcherCall, convert: Callable[[Tensor], Tensor]
    ) -> Callable[..., tuple[Tensor, ...]]:
        """The results as a function of the call's tensors alone: it draws and chooses what it drew and chose there.

        Args:
            convert: gives a tensor of the call or the graph the format of those that the function will be given.
        """
        draws = [convert(x) for x in self._draws(call)]
        choices = functools.cache(lambda: self._choices(call, draws, convert))
        places = [i for i, x in enumerate(call.leaves) if isinstance(x, Tensor)]

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            leaves = list(call.leaves)
            for place, tensor in zip(places, tensors, strict=True):
                leaves[place] = tensor
            return tuple(tensors_in(_GraphReader(self.graph, choices(), draws).run(*leaves)))

        return function

    def _choices(
        self, call: DispatcherCall, draws: Sequence[Tensor], convert: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:  # fmt: skip
        """The integers and masks of the graph, where its results are as they were computed; and its constants."""
        constants = {
            node.name: operator.attrgetter(node.target)(self.graph)
            for node in self.graph.graph.find_nodes(op="get_attr")
        }
        values = {name: convert(x) for name, x in constants.items() if isinstance(x, Tensor)}
        results = zip(self.result_nodes, call.results, strict=True)
        known = {node.name: convert(y) for node, y in results if node.op == "call_function"}
        reader = _GraphReader(self.graph, values | known, draws)
        with torch.no_grad():
            reader.run(*(convert(x).clone() if isinstance(x, Tensor) else x for x in call.leaves))
        masks = ((node, x) for node, x in reader.env.items() if isinstance(x, Tensor) and not is_floating(x))
        return values | {node.name: x for node, x in masks if node.op == "call_function"}

    def _known(self, call: DispatcherCall) -> list[tuple[torch.fx.Node, Tensor]]:
        """The results from which the reading goes on, one for each node."""
        pairs = {
            node: y for node, y in zip(self.result_nodes, call.results, strict=False) if node.op == "call_function"
        }
        return [(node, y) for node, y in pairs.items() if is_floating(y) or _is_beside(node)]

    def _draws(self, call: DispatcherCall) -> list[Tensor]:
        """The numbers that the graph drew: an eager run from the same state of the generator draws them again."""
        drawing = [n for n in self.graph.graph.nodes if n.op == "call_function" and draws_numbers(n.target)]
        if not drawing or call.generator is None:
            return []
        # A mode that asks for a wider format would have other numbers drawn.
        with torch.random.fork_rng(devices=[]), torch.no_grad(), torch._C._DisableTorchDispatch():
            torch.set_rng_state(call.generator)
            eager = _Drawing(self.graph)
            eager.run(*[x.clone() if isinstance(x, Tensor) else x for x in call.leaves])
        return eager.draws


class GraphRunner(torch.fx.Interpreter):
    """Runs a graph in operations of torch, on memory that may have other strides than where it was compiled."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in _VIEWS:
            return args[0].reshape(args[1])
        if target is torch.ops.prims.convert_element_type.default:
            return args[0].to(args[1])
        if target is torch.ops.higher_order.with_effects:  # an operation in order behind the one that gave its token
            value = self.call_function(args[1], args[2:], kwargs)
            return (args[0], *(value if isinstance(value, tuple) else (value,)))
        # Primitives of the compiler say themselves what they are in operations of torch.
        return super().call_function(getattr(target, "impl_aten", None) or target, args, kwargs)


class _GraphReader(GraphRunner):
    """The graph in words that are read; results that are known go on as they were computed."""

    def __init__(self, graph: torch.fx.GraphModule, known: dict[str, Tensor], draws: Sequence[Tensor]) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self._known, self._draws, self._results = known, list(draws), find_results(graph)
        self._own: dict[torch.fx.Node, Any] = {}
        #: Results of a half type, as what is compiled together with what gives them has them: before their rounding.
        self._unrounded: dict[torch.fx.Node, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "output":
            return tuple(self._own.get(x, self.env.get(x)) for x in self._results)
        is_apart = n.op != "call_function" or _APART.search(str(whole_of(n).target)) is not None
        value, known = self._run_among(n, {} if is_apart else self._unrounded), self._known.get(n.name)
        if not is_apart and _only_moves(n.target) and not self._unrounded.keys().isdisjoint(n.all_input_nodes):
            self._unrounded[n] = value
            value = value if known is not None else super().run_node(n)
        elif not is_apart and known is not None and known.dtype in _HALF_TYPES:
            # To add next to nothing is to be off by what a rounding may take.
            self._unrounded[n] = torch.add(known, known, alpha=2.0**-20)
        if known is None:
            return value
        if value is not None:
            self._own[n] = value
        return known

    def _run_among(self, n: torch.fx.Node, others: dict[torch.fx.Node, Any]) -> Any:
        """What a node gives where some of its operands are others."""
        args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), lambda x: others.get(x, self.env[x]))
        return getattr(self, n.op)(n.target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is _FROM_STATE:
            return self.call_function(args[1], args[2:], kwargs)
        if target is _KEEPS_STATE:
            return self._draws.pop(0), self.call_function(args[0], args[1:], kwargs)
        if target is DROPOUT:
            return drop_by_mask(*args, mask=self._draws.pop(0))
        if draws_numbers(target):
            return self._draws.pop(0)
        if target is operator.getitem and isinstance(args[0], _FirstAlone):
            return args[0].value if args[1] == 0 else None
        word = reference_of(target) if isinstance(target, torch._ops.OpOverload) else None
        if word is None:
            return super().call_function(target, args, kwargs)
        value = word(*args, **kwargs)
        return _FirstAlone(value) if isinstance(value, Tensor) and len(target._schema.returns) > 1 else value


class _FirstAlone(NamedTuple):
    """What an operation with several results gives, where what stands for it gives the first alone."""

    value: Tensor


class _Drawing(torch.fx.Interpreter):
    """An eager run that keeps what is drawn, and the states of generators that the graph keeps."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.draws: list[Tensor] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is _FROM_STATE:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(args[0])
                return self.call_function(args[1], args[2:], kwargs)
        if target is _KEEPS_STATE:
            self.draws.append(torch.get_rng_state())
            return self.draws[-1], self.call_function(args[0], args[1:], kwargs)
        value = super().call_function(target, args, kwargs)
        if draws_numbers(target):
            # The product with a mask is rounded, and what it would have to be is asked.
            self.draws.append(value[1] if target is DROPOUT else value)
        return value


def watched(backend: str = "inductor") -> Callable[..., Any]:
    """A backend for `torch.compile` whose graphs are held where a program is watched; elsewhere they just run.

        compiled = torch.compile(model, backend=opassay.watched("inductor"))

    The compiler's caches are not used, and random numbers are those of eager torch (`fallback_random`), because the
    report must know what a graph computes and what it draws.

    Args:
        backend: "inductor", torch's own compiler.

    Raises:
        ValueError: another backend.
    """
    if backend != "inductor":
        raise ValueError(f"backend: got {backend!r}, need 'inductor'")
    from torch._inductor import config  # imports a compiler, which takes seconds
    from torch._inductor.compile_fx import compile_fx

    def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        with config.patch(fallback_random=True, force_disable_caches=True):
            return compile_fx(graph, inputs, inner_compile=compile_inner, **options)

    return compile_graph


def compile_inner(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
    """Compile a graph, and stand around what runs it."""
    from torch._inductor.compile_fx import compile_fx_inner

    text = copy.deepcopy(graph)
    code: Any = compile_fx_inner(graph, inputs, **options)
    if not hasattr(code, "current_callable"):  # A graph without an operation is handed back as it is.
        return code
    side = "backward" if options.get("is_backward") else "forward"
    region, run = GraphRegion(f"compiled graph {next(_NUMBERS)} {side}", text), code.current_callable

    def call(args: Any) -> Any:
        recorder = active_recorder()
        if recorder is None:
            return run(args)
        state = torch.get_rng_state()
        output, recorded = recorder.record_region(region, tuple(args), {}, lambda: _run_plain(run, args))
        if recorded is not None:
            recorded.generator = state
        return output

    code.current_callable = call
    return code


def _run_plain(run: Callable[[Any], Any], args: Any) -> Any:
    """Run compiled code, whose calls of torch's kernels are parts of the graph and no calls of the program."""
    with torch._C._DisableTorchDispatch():
        return run(args)


def find_results(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """What a graph gives, and then what it writes into its operands."""
    (output,) = graph.graph.find_nodes(op="output")
    outputs = [x for x in pytree.tree_leaves(output.args[0]) if isinstance(x, torch.fx.Node)]
    return [*outputs, *filter(_writes_operand, graph.graph.nodes)]


def _writes_operand(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.aten.copy_.default and node.all_input_nodes[0].op == "placeholder"


def _is_beside(node: torch.fx.Node) -> bool:
    """Whether a node is a second or later result of an operation, of which a stand-in may know nothing."""
    return node.target is operator.getitem and bool(node.args[1])


def draws_numbers(target: Any) -> bool:
    """Whether an operation of a graph gives other numbers at each call."""
    if target in (_KEEPS_STATE, _FROM_STATE):
        return True
    draws = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
    return draws and (target is DROPOUT or stand_in_of(target) is None)


def _only_moves(target: Any) -> bool:
    return getattr(target, "is_view", False) or getattr(target, "overloadpacket", None) in MOVES


def whole_of(node: torch.fx.Node) -> Any:
    """The operation of which a node is one of several results; else the node."""
    return node.args[0] if node.target is operator.getitem else node


def module_of(node: torch.fx.Node) -> str:
    """The path of the module in which the program calls a node, or the forward of one in backward; else empty."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    path, _ = list(stack.values())[-1] if stack else ("", None)
    names = re.findall(r"\['(\w+)'\]|\.(\w+)", str(path).replace("_modules", "").partition("]")[2])
    return ".".join(a or b for a, b in names)
