"""A tensor held against a spec in plain PyTorch, as the tests of specs do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.specs import traced
from opassay.reference.derivative import vjp
from opassay.reference.formats import FORMATS

Spec = Callable[..., Any]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def read(spec: Spec, tensors: tuple[Tensor, ...], **terms: Any) -> tuple[Any, ...]:
    """The balls and choices of a spec, in the contract of the first tensor's dtype with other terms."""
    allowance = replace(contract(name_of(tensors[0].dtype)), **terms)
    return balls(traced(spec, *tensors), [x.double().numpy() for x in tensors], allowance)


def accepted(candidate: Tensor, ball: Ball) -> Any:
    """Which elements of a candidate's result are in their accept sets; every element must be judged."""
    places = accept.place_in_accept_sets(candidate.double().numpy(), FORMATS[name_of(candidate.dtype)], ball, None)
    assert places.judged.all()
    return places.accepted


def draw(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


def gradients_agree(spec: Spec, *tensors: Tensor) -> bool:
    """Whether the centres of gradients are those of torch's autograd in float64, to a few of its roundings."""
    doubles = [x.double().requires_grad_() for x in tensors]
    output = spec(*doubles)
    generator = torch.Generator().manual_seed(7)
    cotangent = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    wanted = torch.autograd.grad(output, doubles, cotangent)
    formula = traced(spec, *tensors)
    operands = [*(x.detach().numpy() for x in doubles), cotangent.numpy()]
    result = balls(lambda *a: vjp(formula, a[:-1])[1](a[-1]), operands, contract("float32"))
    # The radius for binary32 is 2^29 times what float64 is off by.
    return all(
        bool((np.abs(ball.centre - need.numpy()) <= 2.0**-24 * ball.radii() + 1e-13).all())
        for ball, need in zip(result, wanted, strict=True)
    )
