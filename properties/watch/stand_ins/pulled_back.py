"""The backward of an operation that has a rule, as one operation: a reading differentiates the rule.

torch has a backward operation for most of its operations, and a rule for each would repeat the rule of its forward.
Where such a call means the cotangents of its forward at the operands that it is given, it is read as just that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from ....oracles.specs.rules import RULES
from ....oracles.specs.rules.table import overloads
from ....reference.array import Array
from ....reference.derivative import vjp

_LIBRARY = torch.library.Library("opassay_watch", "FRAGMENT")
#: Operations that are traced as others, which have the rule.
_READ_AS = {"_ctc_loss.Tensor": torch.ops.opassay_specs.ctc_loss.default}
_LIBRARY.define("pull_back(str name, Tensor[] operands, Tensor[] cotangents, int[] wanted, str form) -> Tensor[]")


def pull_back(
    name: str, args: Sequence[Any], cotangents: Sequence[Tensor], wanted: Sequence[int] = (0,)
) -> list[Tensor]:
    """The cotangents of operands of an operation of aten that has a rule.

    Args:
        name: of the operation, as `overloads` takes it. args: what it is called with.
        cotangents: of its first results.
        wanted: which of the tensors among `args` have their cotangents taken.
    """
    operands = [arg for arg in args if isinstance(arg, Tensor)]
    places = iter(range(len(operands)))
    form = json.dumps([{"operand": next(places)} if isinstance(arg, Tensor) else arg for arg in args])
    if get_proxy_mode() is None:  # It is not traced to be read, but computed, and perhaps differentiated itself.
        function = _gradients(overloads(name)[0], operands, wanted, form, len(cotangents))
        return list(torch.func.vjp(function, *(operands[i] for i in wanted))[1](tuple(cotangents)))
    gradients: list[Tensor] = torch.ops.opassay_watch.pull_back(name, operands, list(cotangents), list(wanted), form)
    return gradients


def pull_back_masked(
    name: str, args: Sequence[Any], cotangent: Tensor, output_mask: Sequence[bool]
) -> list[Tensor | None]:
    """The cotangents of the first tensors among the arguments, of which a mask says which are asked for."""
    gradients = iter(pull_back(name, args, [cotangent], [i for i, is_asked in enumerate(output_mask) if is_asked]))
    return [next(gradients) if is_asked else None for is_asked in output_mask]


def _fill(form: str, operands: Sequence[Any]) -> list[Any]:
    return [operands[arg["operand"]] if isinstance(arg, dict) else arg for arg in json.loads(form)]


def _gradients(
    run: Callable[..., Any], operands: Sequence[Any], wanted: Sequence[int], form: str, count: int
) -> Callable[..., tuple[Any, ...]]:
    """The first `count` results of a call as a function of the wanted operands alone."""

    def function(*moved: Any) -> tuple[Any, ...]:
        filled = list(operands)
        for place, value in zip(wanted, moved, strict=True):
            filled[place] = value
        results = run(*_fill(form, filled))
        return tuple(results)[:count] if isinstance(results, (tuple, list)) else (results,)

    return function


def _read(name: str, operands: Sequence[Any], cotangents: Sequence[Any], wanted: Sequence[int], form: str) -> Any:
    like = next(value for value in (*cotangents, *operands) if isinstance(value, Array))
    primals = [operands[i] if isinstance(operands[i], Array) else like.lift(operands[i]) for i in wanted]
    rule = RULES[_READ_AS.get(name) or overloads(name)[0]]
    _, pull = vjp(_gradients(rule, operands, wanted, form, len(cotangents)), primals)
    return list(pull(*cotangents))


def _compute(
    name: str, operands: Sequence[Tensor], cotangents: Sequence[Tensor], wanted: Sequence[int], form: str
) -> list[Tensor]:
    (operation,) = overloads(name)
    with torch.enable_grad():
        primals = [operands[i].detach().requires_grad_() for i in wanted]
        results = _gradients(operation, operands, wanted, form, len(cotangents))(*primals)
        return [g.clone() for g in torch.autograd.grad(results, primals, list(cotangents), materialize_grads=True)]


def _shape(name: str, operands: Sequence[Tensor], cotangents: Any, wanted: Sequence[int], form: str) -> list[Tensor]:
    return [torch.empty_like(operands[i]) for i in wanted]


_LIBRARY.impl("pull_back", _compute, "CompositeExplicitAutograd")
_LIBRARY.impl("pull_back", _shape, "Meta")
RULES[torch.ops.opassay_watch.pull_back.default] = _read
