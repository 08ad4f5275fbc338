"""Small ops that are right, and small ops with one planted fault each; every oracle must tell them apart.

The right op is y = x w, with x of shape (*lead, n) and w of shape (n,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.judge.tally import Tally
from opassay.oracles.op.declaration import Op, Promises, Sample
from opassay.oracles.op.promises import MemoryPromises
from opassay.oracles.verdicts.violation import Violation
from opassay.reference.formats import FORMATS, round_array

Subject = Callable[..., Any]
Check = Callable[[Judge, Sample], None]
ALL = ("float64", "float32", "bfloat16", "float16")


def wide(t: Tensor) -> Tensor:
    """In the dtype that arithmetic is done in: float32 for the half types, as the contract says."""
    return t.float() if t.element_size() == 2 else t


def scaled(x: Tensor, w: Tensor) -> Tensor:
    """The right op."""
    return (wide(x) * wide(w)).to(x.dtype)


def _formula(x: Any, w: Any) -> Any:
    return x * w


def _product_dtypes(args: tuple[Any, ...]) -> tuple[torch.dtype, ...]:
    return (args[0].dtype,)


def _saved_by_a_product(args: tuple[Any, ...], wanted: frozenset[int]) -> int:
    """Each factor is kept where the other one needs a gradient, half types in float32."""
    return sum(args[1 - i].numel() * max(4, args[1 - i].element_size()) for i in wanted)


def declared(subject: Subject, **changes: Any) -> Op:
    """The declaration of y = x w with `subject` as its production op; `changes` replace its fields."""
    op = Op(
        name="scaled",
        reference=_formula,
        subjects={"opassay": subject},
        samples=lambda dtype, kind: None,
        differentiable=("x", "w"),
        promises=Promises(_product_dtypes),
    )
    return replace(op.changed(saved=_saved_by_a_product), **changes)


def tensor(seed: Sequence[int], shape: tuple[int, ...], dtype: str = "float32") -> Tensor:
    """Standard normal values of a seed, rounded once to the dtype."""
    values = np.random.default_rng(list(seed)).standard_normal(shape)
    return torch.from_numpy(round_array(FORMATS[dtype], values)).to(getattr(torch, dtype))


def sample(seed: int, dtype: str = "float32", lead: tuple[int, ...] = (4,), n: int = 5, slices: int = 0) -> Sample:
    """x and w, and as many further pairs as a batch needs."""
    pairs = [(tensor((seed, i, 0), (*lead, n), dtype), tensor((seed, i, 1), (n,), dtype)) for i in range(slices + 1)]
    return Sample(pairs[0], seed, slices=tuple(pairs[1:]))


def judge(check: Check, op: Op, sample: Sample, dtype: str = "float32") -> Tally:
    """What was counted of one sample; raises the violation, if any."""
    judge = Judge(op, "opassay", contract(dtype))
    check(judge, sample)
    return judge.tally


def violation(check: Check, op: Op, sample: Sample, dtype: str = "float32") -> Violation | None:
    """What a check finds in one sample."""
    try:
        judge(check, op, sample, dtype)
    except Violation as error:
        return error
    return None


def violations(check: Check, op: Op, samples: Sequence[Sample], dtype: str = "float32") -> list[str]:
    """The codes that a check finds in samples; "-" where it finds nothing."""
    results = [violation(check, op, one, dtype) for one in samples]
    return ["-" if v is None else v.code.name for v in results]


def upward(y: Tensor) -> Tensor:
    """The next larger value of every element."""
    return torch.nextafter(y, torch.full_like(y, float("inf")))


# ---------------------------------------------------------------------------------------- faults under transforms


def custom(
    *,
    forward: Subject | None = None,
    backward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
    jvp: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None,
    vmap: Callable[..., tuple[Tensor, int]] | None = None,
    base: Any = torch.autograd.Function,
) -> Subject:
    """y = x w as an autograd function with given rules: backward(g, x, w), jvp(x, w, t_x, t_w), vmap(info, ...)."""

    def _forward(x: Tensor, w: Tensor) -> Any:
        return (forward or scaled)(x, w)

    def _setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    def _backward(ctx: Any, g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return (backward or right_backward)(g, x, w)

    def _jvp(ctx: Any, t_x: Tensor, t_w: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return (jvp or right_jvp)(x, w, t_x, t_w)

    members: dict[str, Any] = {"forward": _forward, "setup_context": _setup, "backward": _backward, "jvp": _jvp}
    if vmap is not None:
        members["vmap"] = vmap
    members = {name: staticmethod(rule) for name, rule in members.items()}
    function: Any = type("Scaled", (base,), {**members, "generate_vmap_rule": vmap is None})
    return lambda x, w: function.apply(x, w)


def right_backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    products = wide(g) * wide(x)
    return scaled(g, w), products.reshape(-1, w.shape[-1]).sum(0).to(w.dtype)


def right_jvp(x: Tensor, w: Tensor, t_x: Tensor, t_w: Tensor) -> Tensor:
    return (wide(t_x) * wide(w) + wide(x) * wide(t_w)).to(x.dtype)


# ---------------------------------------------------------------------------------------- an op that writes


def accumulating(subject: Subject, **changes: Any) -> Op:
    """The declaration of y = x w that also adds the sum of x to its third argument, in place."""
    return declared(
        subject,
        reference=lambda x, w, total: (x * w, total + np.sum(x)),
        promises=Promises(lambda args: (args[0].dtype, args[2].dtype), memory=MemoryPromises(refuses_expanded=True)),
        mutates=("total",),
        **changes,
    )


def accumulating_sample(seed: int, slices: int = 0) -> Sample:
    """x, w and the total, and as many further ones as a batch needs."""
    case = sample(seed, slices=slices)
    rows = [(*args, tensor((seed, i, 2), (1,))) for i, args in enumerate((case.args, *case.slices))]
    return Sample(rows[0], seed, slices=tuple(rows[1:]))


def accumulated(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
    """The right op; torch refuses what it cannot write, in words that do not name the argument."""
    try:
        total.add_(x.detach().sum())
    except RuntimeError as err:
        raise RuntimeError("the total is not batched") from err
    return scaled(x, w)
