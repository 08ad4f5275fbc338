"""Transform paths: one word over jvp and vjp, applied to an implementation and to its formula.

A step turns a function of k inputs and m outputs into another: `jvp` takes k tangents more and returns m tangents,
`vjp` takes m cotangents more and returns k cotangents. So every word needs a known list of directions, and the same
list goes to both sides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from ..reference import derivative
from .op import Op, Tensor, flat_outputs, is_float, to_array

Word = tuple[Any, ...]  # of "jvp", "vjp" and Vmap steps, innermost first
Step = Callable[[Callable[..., Any], Sequence[Any], Sequence[Any]], tuple[Any, ...]]

FIRST: tuple[Word, ...] = (("vjp",), ("jvp",))
SECOND: tuple[Word, ...] = (("jvp", "jvp"), ("vjp", "jvp"), ("jvp", "vjp"), ("vjp", "vjp"))
THIRD: tuple[Word, ...] = (("vjp", "vjp", "vjp"), ("jvp", "vjp", "jvp"))


def word_name(word: Word) -> str:
    """The word as a composition, outermost first: ("vjp", "jvp") is "jvp∘vjp"."""
    return "∘".join("vmap" if isinstance(step, Vmap) else step for step in reversed(word)) or "forward"


@dataclass(frozen=True)
class Engine:
    """How steps are taken: `jvp(f, primals, tangents)`, `vjp(f, primals, cotangents)`, `vmap(f, in_dims)`."""

    jvp: Step
    vjp: Step
    vmap: Callable[[Callable[..., Any], tuple[int | None, ...]], Callable[..., Any]]


def _reference_vmap(f: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    """The loop that vmap stands for: one call per slice, results stacked."""

    def batched(*args: Any) -> tuple[Any, ...]:
        size = next(a.shape[0] for a, d in zip(args, in_dims, strict=True) if d is not None)
        rows = [f(*(a if d is None else a[i] for a, d in zip(args, in_dims, strict=True))) for i in range(size)]
        return tuple(np.stack(column) for column in zip(*rows, strict=True))

    return batched


def _func_vmap(f: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    return torch.func.vmap(f, in_dims=in_dims)


def _reference_jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    return derivative.jvp(f, primals, tangents)[1]


def _reference_vjp(f: Callable[..., Any], primals: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
    return derivative.vjp(f, primals)[1](*cotangents)


def _func_jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(torch.func.jvp(f, tuple(primals), tuple(tangents))[1])


def _func_vjp(f: Callable[..., Any], primals: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(torch.func.vjp(f, *primals)[1](tuple(cotangents)))


def _eager_jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    with forward_ad.dual_level():
        outputs = f(*(forward_ad.make_dual(p, t) for p, t in zip(primals, tangents, strict=True)))
        moved = [forward_ad.unpack_dual(y).tangent for y in outputs]
        return tuple(torch.zeros_like(y) if t is None else t for y, t in zip(outputs, moved, strict=True))


def _eager_vjp(f: Callable[..., Any], primals: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
    with torch.enable_grad():
        leaves = [p if p.requires_grad else p.detach().requires_grad_() for p in primals]
        outputs = f(*leaves)
        pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
        grads = torch.autograd.grad(
            [y for y, _ in pairs], leaves, [g for _, g in pairs], create_graph=True, allow_unused=True
        )
    return tuple(torch.zeros_like(p) if g is None else g for g, p in zip(grads, leaves, strict=True))


REFERENCE = Engine(_reference_jvp, _reference_vjp, _reference_vmap)
#: torch.func, at every order; autograd and dual tensors, for words of one step and for reverse over reverse.
ENGINES = {"func": Engine(_func_jvp, _func_vjp, _func_vmap), "eager": Engine(_eager_jvp, _eager_vjp, _func_vmap)}


def engines_of(word: Word) -> tuple[str, ...]:
    """Engines that can take a word: dual levels do not nest, so eager takes at most one jvp, outermost or alone."""
    return ("func", "eager") if word.count("jvp") == 0 or word == ("jvp",) else ("func",)


@dataclass(frozen=True)
class Vmap:
    """A step of a word: vmap over axis 0 of every input but the `shared` ones; outputs get the batch at axis 0."""

    size: int
    shared: frozenset[int] = frozenset()

    def in_dims(self, count: int) -> tuple[int | None, ...]:
        return tuple(None if i in self.shared else 0 for i in range(count))


def along(
    engine: Engine, word: Word, f: Callable[..., Any], inputs: int, outputs: int
) -> Callable[..., tuple[Any, ...]]:
    """T(f) for the word T: takes the inputs of `f` and all directions, flat."""
    for step in word:
        if isinstance(step, Vmap):
            f = engine.vmap(f, step.in_dims(inputs))
            continue
        f = functools.partial(_split, engine.jvp if step == "jvp" else engine.vjp, f, inputs)
        inputs, outputs = (2 * inputs, outputs) if step == "jvp" else (inputs + outputs, inputs)
    return f


def _split(take: Step, f: Callable[..., Any], inputs: int, *args: Any) -> tuple[Any, ...]:
    return take(f, args[:inputs], args[inputs:])


@dataclass(frozen=True)
class Like:
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def batched(self, size: int) -> Like:
        return Like((size, *self.shape), self.dtype)


def signature(word: Word, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Like]:
    """What T(f) takes: the inputs of `f`, batched where the word says so, and then all directions."""
    ins = [Like(tuple(t.shape), t.dtype) for t in inputs]
    outs = [Like(tuple(t.shape), t.dtype) for t in outputs]
    for step in word:
        if isinstance(step, Vmap):
            dims = step.in_dims(len(ins))
            ins = [like if d is None else like.batched(step.size) for like, d in zip(ins, dims, strict=True)]
            outs = [like.batched(step.size) for like in outs]
        elif step == "jvp":
            ins = ins + ins
        else:
            ins, outs = ins + outs, ins
    return ins


def draw_directions(likes: Sequence[Like], seed: int, device: Any = "cpu") -> list[Tensor]:
    """Standard normal directions, rounded to their dtype, from a seed."""
    rng = np.random.default_rng([seed, 0xD1])
    return [torch.from_numpy(np.asarray(rng.standard_normal(t.shape))).to(device, t.dtype) for t in likes]


class Problem:
    """An op with given arguments: its tensors are operands, the rest is closed over."""

    def __init__(self, op: Op, args: Sequence[Any], wrt: Sequence[int] | None = None) -> None:
        self.op = op
        self.args = tuple(args)
        self.wrt = tuple(op.differentiable_positions(args)) if wrt is None else tuple(wrt)
        self.fixed = tuple(i for i, a in enumerate(args) if is_float(a) and i not in self.wrt)

    @property
    def inputs(self) -> list[Tensor]:
        """The operands that derivatives are taken in."""
        return [self.args[i] for i in self.wrt]

    def subject(self, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """An implementation as a function of `inputs`."""

        def f(*operands: Any) -> tuple[Any, ...]:
            return flat_outputs(function(*self._filled(self.wrt, operands)))

        return f

    def formula(self, word: Word, outputs: int) -> tuple[Callable[..., tuple[Any, ...]], list[Any]]:
        """T(f) as a function of reading arrays, and the float64 values of the operands that come first.

        Those are the floating arguments that no derivative is taken in; the inputs and the directions follow.
        """
        fixed = len(self.fixed)

        def path(*arrays: Any) -> tuple[Any, ...]:
            constants, rest = arrays[:fixed], arrays[fixed:]

            def f(*operands: Any) -> tuple[Any, ...]:
                filled = self._filled(self.wrt, operands)
                return flat_outputs(self.op.reference(*self._plain(filled, constants)))

            return along(REFERENCE, word, f, len(self.wrt), outputs)(*rest)

        return path, [to_array(self.args[i]) for i in self.fixed]

    def _filled(self, positions: Sequence[int], operands: Sequence[Any]) -> list[Any]:
        args = list(self.args)
        for i, operand in zip(positions, operands, strict=True):
            args[i] = operand
        return args

    def _plain(self, args: list[Any], constants: Sequence[Any]) -> list[Any]:
        for i, value in zip(self.fixed, constants, strict=True):
            args[i] = value
        return [a.detach().cpu().numpy() if isinstance(a, Tensor) else a for a in args]


def output_names(op: Op, word: Word, wrt: Sequence[int], outputs: int) -> list[str]:
    """Names of the outputs of a path, for messages: `out[0]`, `d_weight`, `t_out[0]`."""
    ins = [op.arguments[i] for i in wrt]
    outs = [f"out[{i}]" for i in range(outputs)] if outputs > 1 else ["out"]
    for step in word:
        if step == "jvp":
            ins, outs = ins + [f"t_{n}" for n in ins], [f"t_{n}" for n in outs]
        elif step == "vjp":
            ins, outs = ins + [f"c_{n}" for n in outs], [f"d_{n}" for n in ins]
    return outs
