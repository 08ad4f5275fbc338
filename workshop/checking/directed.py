"""Evaluations of a spec whose roundings all push one result the same way, on a tape that knows nothing of balls.

What this is for: a bound is sound where no legal evaluation leaves it, and useful where some comes near. Random
roundings cancel, so they come near to no bound. Here the spec is decomposed into operations of torch in float64, and to
each result an error is added that float32 arithmetic may make there: in the direction that the derivative of one
element of one output has, so that to first order no evaluation of this order is farther away. Sums are made one term
after another, from the largest term down to the most negative one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from opassay.reference.formats import Format

#: Half the distance between 1 and the next number of float32.
UNIT = 2.0**-24
#: Results that are as exact as what they are made of.
_EXACT = frozenset(
    {"view", "_unsafe_view", "expand", "permute", "t", "transpose", "unsqueeze", "squeeze", "select", "slice", "neg"}
    | {"amax", "clone", "alias", "detach", "cat", "full_like", "zeros_like", "ones_like", "full", "scalar_tensor"}
    | {"arange", "eq", "ne", "lt", "le", "gt", "ge", "where", "relu", "gather", "scatter", "split", "_to_copy", "index"}
    | {"lift_fresh_copy", "unfold", "flip", "abs", "sign", "getitem", "logical_and", "logical_not", "bitwise_not"}
    | {"select_scatter", "slice_scatter"}
)
#: Results off by an ulp, which is 2u of them at most and u at least.
_ULP = frozenset(
    {"exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "pow", "expm1", "log1p", "erf", "sin", "cos", "exp2", "log2"}
)

Spec = Callable[..., Any]
#: Times that the direction of errors is asked where they are stored in a half type, whose errors are not small.
_ROUNDS = 3


def decompose(spec: Spec, inputs: Sequence[Tensor]) -> torch.fx.GraphModule:
    """The spec as a graph of operations of torch, in float64."""
    wide = [x.double() for x in inputs]
    graph: torch.fx.GraphModule = make_fx(lambda *xs: spec(*xs), dict(core_aten_decompositions().items()))(*wide)
    return graph


class _Directed(torch.fx.Interpreter):
    """Evaluates a graph with errors: `signs` has for each operation the sign of every element's error."""

    def __init__(self, graph: torch.fx.GraphModule, signs: dict[str, Tensor], stores: Format | None, at: str) -> None:
        super().__init__(graph)
        self.signs, self.stores, self.at = signs, stores, at
        self.errors: dict[str, Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        name = str(getattr(n.target, "__name__", "")).split(".")[0] if n.op == "call_function" else "getitem"
        if not isinstance(result, Tensor) or not result.is_floating_point() or (name in _EXACT and name != self.at):
            return result
        args, _ = self.fetch_args_kwargs_from_env(n)
        whole = result.detach()
        size = torch.zeros_like(whole)
        if name not in _EXACT:
            size = _error(name, whole, [x.detach() if isinstance(x, Tensor) else x for x in args])
        if self.stores is not None and self.at in ("", name):
            size = size + self.stores.unit_roundoff * _power_below(whole)
        error = self.errors[n.name] = torch.zeros_like(result).requires_grad_()
        return result + (error + self.signs.get(n.name, torch.zeros(()))) * size


def _power_below(values: Tensor) -> Tensor:
    return torch.exp2(torch.floor(torch.log2(values.abs().clamp_min(1e-300))))


def _error(name: str, result: Tensor, args: Sequence[Any]) -> Tensor:
    """The largest error of float32 arithmetic in every element of a result, for one order of sums."""
    if name in ("sum", "mean"):
        dims = args[1] if len(args) > 1 and args[1] else list(range(args[0].ndim))
        size: Tensor = _of_sum(args[0], [dims] if isinstance(dims, int) else list(dims)).reshape(result.shape)
        if name == "sum":
            return UNIT * size
        count: int = args[0].numel() // max(result.numel(), 1)
        return UNIT * (size / count + result.abs())
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        a: Tensor = args[-2]
        b: Tensor = args[-1]
        products = a.unsqueeze(-1) * b.unsqueeze(-3)
        size = _of_sum(products, [products.ndim - 2]).squeeze(-2) + products.abs().sum(-2)
        return UNIT * (size + (result.abs() if name.startswith("add") or name == "baddbmm" else 0.0))
    if name == "div":  # by the product with the rounded reciprocal
        return 2.0 * UNIT * result.abs()
    if name in _ULP:
        return 2.0 * UNIT * _power_below(result)
    if name in ("add", "sub", "mul", "reciprocal", "square", "rsub"):
        return UNIT * result.abs()
    raise NotImplementedError(f"directed evaluation: got the operation {name}, which has no error here")


def _of_sum(terms: Tensor, dims: list[int]) -> Tensor:
    """Sum of the magnitudes of the partial sums of terms from the largest down, or up from the most negative one."""
    dims = [d % terms.ndim for d in dims]
    others = [d for d in range(terms.ndim) if d not in dims]
    rows = terms.permute(*others, *dims).reshape(*(terms.shape[d] for d in others), -1)
    shape = [1 if d in dims else terms.shape[d] for d in range(terms.ndim)]
    ordered = torch.sort(rows, dim=-1).values
    down, up = (torch.cumsum(each, -1)[..., 1:].abs().sum(-1) for each in (ordered.flip(-1), ordered))
    return torch.maximum(down, up).reshape(shape)


def directed_errors(
    graph: torch.fx.GraphModule, inputs: Sequence[Tensor], output: int, element: int, stores: Format | None = None,
    at: str = "",
) -> Tensor:  # fmt: skip
    """How far evaluations are from the exact output when all errors push one element of it up.

    Args:
        graph: of `decompose`. inputs: of it. output, element: the element, by its place in the flat output.
        stores: the format in which results are stored; None for float32 alone.
        at: the operation whose results alone are stored so, as `clone`; empty for all that round.

    Returns:
        The error of every element of that output, in float64: largest, as a rule, at that element.
    """
    wide = [x.double() for x in inputs]
    exact = _leaf(graph(*wide), output).detach()
    signs: dict[str, Tensor] = {}
    farthest = torch.zeros_like(exact)
    for turn in range((_ROUNDS if stores else 1) + 1):
        probe = _Directed(graph, signs, stores, at)
        reached = _leaf(probe.run(*wide), output)
        errors = (reached - exact).detach()
        if errors.reshape(-1)[element].abs() > farthest.reshape(-1)[element].abs() or not turn:
            farthest = errors
        names = [name for name, error in probe.errors.items() if error.numel()]
        leaves = [probe.errors[name] for name in names]
        slopes = torch.autograd.grad(reached.reshape(-1)[element], leaves, allow_unused=True)
        signs = {name: slope.sign() for name, slope in zip(names, slopes, strict=True) if slope is not None}
    return farthest


def _leaf(outputs: Any, index: int) -> Tensor:
    leaf: Tensor = outputs[index] if isinstance(outputs, (tuple, list)) else outputs
    return leaf
