"""torch's own results for a spec and its gradients, held against what the reading of the spec gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import Products, contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.specs import BUFFER, PARAMETER, RESULT, SpecCall, Traced, Values, trace
from opassay.reference.choice import Choice
from opassay.reference.derivative import vjp
from opassay.reference.formats import FORMATS


@dataclass
class Agreement:
    """What one spec showed in one dtype.

    Attributes:
        judged: elements. refusals: elements outside their accept sets. worst: the largest error over its bound.
        widths: half-widths of the accept sets in ulp.
    """

    judged: int = 0
    refusals: int = 0
    worst: float = 0.0
    widths: list[Any] = field(default_factory=list)

    def line(self) -> str:
        widths = np.concatenate([np.ravel(w) for w in self.widths]) if self.widths else np.zeros(0)
        widths = widths[np.isfinite(widths)]
        median = f"{np.median(widths):9.3g} ulp" if widths.size else f"{'':13s}"
        text = f"{self.worst:6.3f} {median}" if self.judged else "  nothing judged   "
        return text + (f" REFUSED {self.refusals}" if self.refusals else "")


def values(
    call: SpecCall, dtype: str, results: Sequence[torch.Tensor], after: Sequence[torch.Tensor] = ()
) -> Agreement:
    """Results of a call, held against the balls that the reading of the spec gives.

    Args:
        call: the spec and its arguments, in the dtype. dtype: torch's name.
        results: what an implementation returned. after: its inputs as it left them, where the spec writes inputs.
    """
    spec = trace(call, Values.ALL)
    computed = [*results, *(after[i] for i in spec.written_inputs if after)]
    result = Agreement()
    for ball, tensor in zip(_bounds(spec, call, dtype), computed, strict=False):
        hold(result, ball, tensor.detach())
    return result


def bounds(call: SpecCall, dtype: str) -> list[Any]:
    """The balls that the reading of a spec gives for its results and for the inputs that it writes."""
    return _bounds(trace(call, Values.ALL), call, dtype)


def _bounds(spec: Traced, call: SpecCall, dtype: str) -> list[Any]:
    # torch stores every intermediate of a graph that it runs operation by operation.
    terms = replace(contract(dtype), intermediates=True)
    if any(_is_transposed_convolution(node) for node in spec.graph.graph.nodes):
        # On CPUs torch has one in half types as columns of products, which it stores and then adds up in place.
        terms = replace(terms, products=Products(partials=FORMATS[dtype]))
    return list(balls(spec, [_values(t) for t in call.tensors], terms))


def _is_transposed_convolution(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.aten.convolution.default and bool(node.args[6])


def gradients(call: SpecCall) -> Agreement:
    """torch's own gradients in float32, held against those that the reading of the spec has."""
    moving = [i for i, x in enumerate(call.operands) if x.dtype.is_floating_point and x.role != BUFFER]
    try:
        return _gradients(call, moving)
    except RuntimeError:  # Of targets and weights of losses torch has no gradients.
        return _gradients(call, [i for i in moving if i == 0 or call.operands[i].role == PARAMETER])


def _gradients(call: SpecCall, moving: list[int]) -> Agreement:
    pull = pullback(call, moving)
    result = Agreement()
    pulled = pull.computed(lambda *leaves: call.outputs(*leaves)[0])
    for ball, gradient in zip(pull.bounds, pulled, strict=True):
        hold(result, ball, gradient)
    return result


@dataclass(frozen=True)
class Pullback:
    """A vector-Jacobian product of a spec.

    Attributes:
        call: the spec and its arguments. moving: positions of the tensors that it is taken of.
        results: positions of the results that have gradients. cotangents: one for each of them.
        bounds: the balls of the gradients that the reading of the spec has.
    """

    call: SpecCall
    moving: Sequence[int]
    results: Sequence[int]
    cotangents: Sequence[torch.Tensor]
    bounds: Sequence[Any]

    def computed(self, function: Callable[..., Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        """torch's gradients of a function that returns what the spec returns, with the same cotangents."""
        tensors = self.call.tensors
        leaves = [t.detach().clone().requires_grad_(i in self.moving) for i, t in enumerate(tensors)]
        with torch.enable_grad():
            returned = function(*leaves)
            outputs = [returned[i] for i in self.results]
            pulled = torch.autograd.grad(
                outputs, [leaves[i] for i in self.moving], list(self.cotangents), allow_unused=True
            )
        return [
            torch.zeros(tensors[i].shape) if gradient is None else gradient
            for i, gradient in zip(self.moving, pulled, strict=True)
        ]


def pullback(call: SpecCall, moving: Sequence[int]) -> Pullback:
    """The vector-Jacobian product of a spec at drawn cotangents, of float32, with its balls.

    Raises:
        RuntimeError: torch has no gradients of one of these tensors.
    """
    spec = trace(call, Values.ALL)
    results = [i for i, y in enumerate(spec.outputs) if y.role == RESULT and y.dtype.is_floating_point]
    leaves = [t.detach().clone().requires_grad_(i in moving) for i, t in enumerate(call.tensors)]
    with torch.enable_grad():
        returned = call.outputs(*leaves)[0]
    results = [i for i in results if returned[i].requires_grad]
    cotangents = [torch.randn(returned[i].shape) for i in results]

    def formula(*operands: Any) -> Any:
        arrays = [_values(t) for t in call.tensors]

        def of_moving(*moved: Any) -> list[Any]:
            values = dict(zip(moving, moved, strict=True))
            outputs = spec(*(values.get(i, array) for i, array in enumerate(arrays)))
            return [outputs[i] for i in results]

        return vjp(of_moving, operands[: len(moving)])[1](*operands[len(moving) :])

    operands = [call.tensors[i] for i in moving] + cotangents
    terms = replace(contract("float32", order=1), intermediates=True)
    return Pullback(call, moving, results, cotangents, list(balls(formula, [_values(t) for t in operands], terms)))


def _values(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach()
    return tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()


def hold(findings: Agreement, ball: Any, tensor: torch.Tensor) -> None:
    """Hold a result against its ball, and count its elements."""
    findings.judged += tensor.numel()
    if not isinstance(ball, Ball):
        right = ball.accepts(tensor.numpy()) if isinstance(ball, Choice) else np.asarray(ball) == tensor.numpy()
        findings.refusals += int(np.sum(~right))
        return
    fmt = FORMATS[str(tensor.dtype).removeprefix("torch.")]
    elements = accept.place_in_accept_sets(tensor.double().numpy(), fmt, ball, None)
    findings.judged -= int(np.sum(~elements.judged))
    findings.refusals += int(np.sum(~elements.accepted))
    findings.worst = max(findings.worst, float(np.max(elements.ratio, initial=0.0)))
    findings.widths.append(elements.width)
