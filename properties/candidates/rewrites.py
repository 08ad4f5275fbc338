"""A spec with one thing changed as kernels have it by mistake: rewrites of single operations of a traced graph.

A rewrite is a sentence, and what is called in place of nodes. Those that change an argument are rows of a table; the
others are functions of a node. Nothing here decides whether a rewrite is what a candidate computes.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import Node

from ...oracles.specs.node_facts import name_of

#: What is called in place of the operation of a node, with its arguments.
Changes = Mapping[Node, Callable[..., Any]]

#: What is added to keep a quotient finite is no larger in any layer of torch, and usual values of it.
_EPS, _USUAL = 1e-3, (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3)
#: Operations that are mistaken for each other.
_SWAPS = {"sum": "mean", "mean": "sum", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}
#: Operations that are named with the number that they take.
_OF_NUMBERS = ("add", "sub", "mul", "div")
#: The places of the factors of products among the arguments.
_FACTORS = {"addmm": (1, 2), "baddbmm": (1, 2), **dict.fromkeys(("mm", "bmm", "mv", "attention_scores"), (0, 1))}
#: Operations that give elements of their first operand, so that a factor behind them is an input still.
MOVES = ("clone", "to_copy", "view", "unsafe_view", "reshape", "expand", "permute", "transpose", "t", "unsqueeze")


class Rewritten(torch.fx.Interpreter):
    """Runs a graph with some of its operations replaced."""

    def __init__(self, graph: torch.fx.GraphModule, changes: Changes) -> None:
        super().__init__(graph)
        self.changes, self.extra_traceback = changes, False

    def run_node(self, n: Node) -> Any:
        self._node = n
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.changes.get(self._node, target)(*args, **kwargs)


def rewrites_of(graph: torch.fx.GraphModule) -> Iterator[tuple[str, Changes]]:
    """Every rewrite of a graph: first those of all operations of a kind, then those of one among several."""
    kinds: dict[str, list[Changes]] = defaultdict(list)
    for node in graph.graph.nodes:
        for of_kind in (_omit_operation, _other_arguments, _other_operation, _transposed, _eps_and_root):
            for text, changes in of_kind(node, name_of(node)):
                kinds[text].append(changes)
    for text, rows in kinds.items():
        yield text, {node: replacement for changes in rows for node, replacement in changes.items()}
    yield from ((text, changes) for text, rows in kinds.items() if len(rows) > 1 for changes in rows)


def roundings_of(graph: torch.fx.GraphModule) -> Iterator[tuple[str, Changes]]:
    """Every operation of float32 whose result is rounded to a half type, as where a kernel stores it in one."""
    for node in graph.graph.nodes:
        value = _value(node)
        if node.op != "call_function" or name_of(node) in MOVES or value is None or value.dtype != torch.float32:
            continue
        for half in (torch.bfloat16, torch.float16):
            text = f"{name_of(node)} rounded to {str(half).removeprefix('torch.')}"
            yield text, {node: functools.partial(_call_rounded, node.target, half)}


def _call_rounded(target: Any, half: torch.dtype, *args: Any, **kwargs: Any) -> Any:
    return target(*args, **kwargs).to(half).float()


def factors_of(graph: torch.fx.GraphModule) -> list[frozenset[int]]:
    """Of each product the positions of the inputs that are its factors, as they are or at other places."""
    inputs, products = graph.graph.find_nodes(op="placeholder"), []
    for node in graph.graph.nodes:
        positions = set()
        for i in (0, 1) if name_of(node) == "convolution" else _FACTORS.get(name_of(node), ()):
            factor = node.args[i]
            while name_of(factor) in MOVES:
                factor = factor.args[0]
            positions |= {inputs.index(factor)} if factor.op == "placeholder" else set()
        products.append(frozenset(positions))
    return products


def multiplies_sums(graph: torch.fx.GraphModule) -> bool:
    """Whether a sum of products is a factor in further sums of products, so that (a b) c may be computed as a (b c)."""
    terms: dict[Node, int] = {}  # of what is a sum of products: how many additions of a product lie on the way to it
    for node in graph.graph.nodes:
        name, most = name_of(node), max((terms.get(each, 0) for each in node.all_input_nodes), default=0)
        if most > 1 and (name in _FACTORS or (name == "sum" and name_of(node.args[0]) == "mul")):
            return True
        is_sum = name == "add" and "mul" in map(name_of, node.all_input_nodes)
        terms[node] = 2 if name in _FACTORS else most + 1 if is_sum else most if name in (*MOVES, "mul") else 0
    return False


def stand_ins_of(node: Node) -> list[int]:
    """Positions of the operands that could take the place of a result, because they have its shape and dtype."""
    likes, value = [_value(operand) for operand in node.args], _value(node)
    return [
        i
        for i, like in enumerate(likes)
        if value is not None and like is not None and (like.shape, like.dtype) == (value.shape, value.dtype)
    ]


def _value(node: Any) -> torch.Tensor | None:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _format(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _omit_operation(node: Node, name: str) -> Iterator[tuple[str, Changes]]:
    if name == "addmm":
        yield "addmm without operand 0", {node: lambda _, a, b, **__: torch.mm(a, b)}
    for i in stand_ins_of(node) if name not in MOVES else ():
        others = " and ".join(str(j) for j, arg in enumerate(node.args) if isinstance(arg, Node) and j != i)
        numbers = [f" of {_format(arg)}" for arg in node.args if name in _OF_NUMBERS and not isinstance(arg, Node)]
        text = f"without operand {others}" if others else "left out"
        yield f"{name}{''.join(numbers)} {text}", {node: lambda *args, at=i, **_: args[at]}


def _eps(old: Any, _: Any = None) -> list[Any]:
    return [new for new in _USUAL if new != old] if isinstance(old, float) and 0 < old <= _EPS else []


def _factor(old: Any, _: Any) -> list[Any]:
    return [1.0, old * old, 1 / old] if type(old) in (int, float) and old not in (0, 1) else []


def _axis(old: Any, node: Node) -> list[Any]:
    """Another axis; of several the same without one of them."""
    value, many = _value(node.args[0]), isinstance(old, (list, tuple))
    if value is None or not value.ndim or old is None:
        return []
    axes = [axis % value.ndim for axis in (old if many else [old])]
    if len(axes) > 1:
        return [[axis for axis in axes if axis != other] for other in axes]
    return [[axis] if many else axis for axis in range(value.ndim) if axis not in axes]


#: (operations, an argument by its name, other values of it by the usual one and the node).
_ARGUMENTS: tuple[tuple[str, str, Callable[[Any, Node], list[Any]]], ...] = (
    ("gelu", "approximate", lambda old, _: ["tanh" if old == "none" else "none"]),
    ("var var_mean std std_mean", "correction", lambda old, _: [0 if old in (None, 1) else 1]),
    ("layer_norm group_norm batch_norm_legit_no_training", "eps", _eps),
    ("add sub", "other", _eps),
    ("clamp_min", "min", _eps),
    ("mul div", "other", _factor),
    ("attention_scores", "scale", _factor),
    ("softmax log_softmax cumsum cumprod logcumsumexp sum mean amax amin var var_mean std logsumexp", "dim", _axis),
    ("tril triu", "diagonal", lambda old, _: [old - 1, old + 1]),
    ("avg_pool1d avg_pool2d avg_pool3d", "count_include_pad", lambda old, _: [not old]),
    ("upsample_linear1d upsample_bilinear2d upsample_bicubic2d", "align_corners", lambda old, _: [not old]),
    ("layer_norm group_norm", "weight", lambda old, _: [] if old is None else [None]),
    ("layer_norm group_norm convolution", "bias", lambda old, _: [] if old is None else [None]),
)


def _other_arguments(node: Node, name: str) -> Iterator[tuple[str, Changes]]:
    target: Any = node.target
    for names, argument, others in _ARGUMENTS:
        if name in names.split():
            order = [each.name for each in target._schema.arguments]
            usual = {each.name: each.default_value for each in target._schema.arguments if each.has_default_value()}
            old = {**usual, **dict(zip(order, node.args, strict=False)), **node.kwargs}.get(argument)
            for new in others(old, node):
                words = f"with {argument}={_format(new)} in place of {_format(old)}"
                text = f"{name} {words if new is not None else f'without its {argument}'}"
                yield text, {node: functools.partial(_call_reordered, target, order, {argument: new})}


def _call_reordered(target: Any, order: list[str], other: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    return target(**(dict(zip(order, args, strict=False)) | kwargs | other))


def _other_operation(node: Node, name: str) -> Iterator[tuple[str, Changes]]:
    if name in _SWAPS:
        yield f"{_SWAPS[name]} in place of {name}", {node: getattr(torch.ops.aten, _SWAPS[name])}
    if name == "layer_norm":
        yield "n - 1 in place of n in layer_norm", {node: functools.partial(_layer_norm, 1, False)}
        yield "layer_norm with eps added to the square root", {node: functools.partial(_layer_norm, 0, True)}
    target: Any = node.target
    before, after = _value(node.args[0] if node.args else None), _value(node)
    if name == "mean" and before is not None and after is not None and 0 < after.numel() < before.numel():
        count = before.numel() // after.numel()
        yield "n - 1 in place of n in mean", {node: lambda *xs, **named: target(*xs, **named) * (count / (count - 1))}


def _layer_norm(correction: int, outside: bool, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    axes = list(range(x.ndim - len(shape), x.ndim))
    variance, mean = torch.var_mean(x, axes, correction=correction, keepdim=True)
    result = (x - mean) / (variance.sqrt() + eps if outside else (variance + eps).sqrt())
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias), mean, variance


def _transposed(node: Node, name: str) -> Iterator[tuple[str, Changes]]:
    for i in _FACTORS.get(name, ()):
        value, target = _value(node.args[i]), node.target
        if value is not None and value.ndim > 1 and value.shape[-1] == value.shape[-2] > 1:
            yield f"operand {i} of {name} transposed", {node: functools.partial(_turned, target, i)}


def _turned(target: Any, i: int, *args: Any, **kwargs: Any) -> Any:
    return target(*args[:i], args[i].mT, *args[i + 1 :], **kwargs)


def _eps_and_root(node: Node, name: str) -> Iterator[tuple[str, Changes]]:
    """eps added to a square root in place of what is under it, and the reverse."""
    inner = node.args[0] if node.args and isinstance(node.args[0], Node) else node
    kinds, added = (name_of(inner), name), (inner.args if name != "add" else node.args)[1:2]
    if not added or not _eps(eps := added[0]) or len(inner.users) > 1:
        return
    if kinds in (("add", "sqrt"), ("add", "rsqrt")):
        outer = (lambda x: x.sqrt() + eps) if name == "sqrt" else (lambda x: (x.sqrt() + eps).reciprocal())
        yield "eps added to the square root in place of what is under it", {inner: lambda x, *_, **__: x, node: outer}
    if kinds == ("sqrt", "add"):
        under = {inner: lambda x: x, node: lambda x, *_, **__: (x + eps).sqrt()}
        yield "eps added to what is under the square root in place of the root", under
