"""Transform paths: one word over jvp and vjp, applied to an implementation and to its formula.

A step turns a function of k inputs and m outputs into another: `jvp` takes k tangents more and returns m tangents,
`vjp` takes m cotangents more and returns k cotangents. So every word needs a known list of directions, and the same
list goes to both sides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from ..reference import derivative
from ..reference.array import algorithm_of, algorithms
from .op import Op, Sample, Tensor, flat_outputs, is_float, to_array

Word = tuple[Any, ...]  # of "jvp", "vjp" and Vmap steps, innermost first
Step = Callable[[Callable[..., Any], Sequence[Any], Sequence[Any]], tuple[Any, ...]]

FIRST: tuple[Word, ...] = (("vjp",), ("jvp",))
SECOND: tuple[Word, ...] = (("jvp", "jvp"), ("vjp", "jvp"), ("jvp", "vjp"), ("vjp", "vjp"))
THIRD: tuple[Word, ...] = (("vjp", "vjp", "vjp"), ("jvp", "vjp", "jvp"))


def word_name(word: Word) -> str:
    """The word as a composition, outermost first: ("vjp", "jvp") is "jvp∘vjp"."""
    return "∘".join("vmap" if isinstance(step, Vmap) else step for step in reversed(word)) or "forward"


def derivative_order(word: Word) -> int:
    """How many steps of a word differentiate."""
    return sum(not isinstance(step, Vmap) for step in word)


@dataclass(frozen=True)
class Engine:
    """How steps are taken: `jvp(f, primals, tangents)`, `vjp(f, primals, cotangents)`, `vmap(f, in_dims)`."""

    jvp: Step
    vjp: Step
    vmap: Callable[[Callable[..., Any], tuple[int | None, ...]], Callable[..., Any]]


def loop(f: Callable[..., Any], in_dims: tuple[int | None, ...], stack: Callable[..., Any]) -> Callable[..., Any]:
    """The loop that vmap stands for: one call per slice, results stacked."""

    def batched(*args: Any) -> tuple[Any, ...]:
        size = next(a.shape[0] for a, d in zip(args, in_dims, strict=True) if d is not None)
        rows = [f(*(a if d is None else a[i] for a, d in zip(args, in_dims, strict=True))) for i in range(size)]
        return tuple(stack(column) for column in zip(*rows, strict=True))

    return batched


def _reference_vmap(f: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    return loop(f, in_dims, np.stack)


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
    """A step of a word: vmap over axis 0 of all but the `shared` inputs; outputs get the batch at axis 0."""

    size: int
    shared: frozenset[int] = frozenset()

    def in_dims(self, passive: int, inputs: int) -> tuple[int | None, ...]:
        return (0,) * passive + tuple(None if i in self.shared else 0 for i in range(inputs))


def along(
    engine: Engine, word: Word, f: Callable[..., Any], inputs: int, outputs: int, passive: int = 0
) -> Callable[..., tuple[Any, ...]]:
    """T(f) for the word T: takes `passive` operands without derivatives, then inputs, then directions."""
    for step in word:
        if isinstance(step, Vmap):
            f = engine.vmap(f, step.in_dims(passive, inputs))
            continue
        f = functools.partial(_split, engine.jvp if step == "jvp" else engine.vjp, f, inputs, passive)
        inputs, outputs = (2 * inputs, outputs) if step == "jvp" else (inputs + outputs, inputs)
    return f


def _split(take: Step, f: Callable[..., Any], inputs: int, passive: int, *args: Any) -> tuple[Any, ...]:
    end = passive + inputs
    return take(functools.partial(f, *args[:passive]), args[passive:end], args[end:])


@dataclass(frozen=True)
class Like:
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def batched(self, size: int) -> Like:
        return Like((size, *self.shape), self.dtype)


def signature(
    word: Word, inputs: Sequence[Tensor], outputs: Sequence[Tensor], passive: Sequence[Tensor] = ()
) -> list[Like]:
    """What T(f) takes: passive operands and the inputs of `f`, batched where the word says so, and all directions."""
    before = [Like(tuple(t.shape), t.dtype) for t in passive]
    ins = [Like(tuple(t.shape), t.dtype) for t in inputs]
    outs = [Like(tuple(t.shape), t.dtype) for t in outputs]
    for step in word:
        if isinstance(step, Vmap):
            dims = step.in_dims(len(before), len(ins))
            both = [t if d is None else t.batched(step.size) for t, d in zip(before + ins, dims, strict=True)]
            before, ins = both[: len(before)], both[len(before) :]
            outs = [like.batched(step.size) for like in outs]
        elif step == "jvp":
            ins = ins + ins
        else:
            ins, outs = ins + outs, ins
    return before + ins


def draw_directions(likes: Sequence[Like], seed: int, device: Any = "cpu") -> list[Tensor]:
    """Standard normal directions, rounded to their dtype, from a seed."""
    rng = np.random.default_rng([seed, 0xD1])
    return [torch.from_numpy(np.asarray(rng.standard_normal(t.shape))).to(device, t.dtype) for t in likes]


def _plain(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula that takes tensors, of integers say, as NumPy arrays."""

    def plain(*args: Any) -> Any:
        return formula(*(a.detach().cpu().numpy() if isinstance(a, Tensor) else a for a in args))

    return plain


class Problem:
    """An op with given arguments: its floating tensors are operands, the rest is closed over.

    Attributes:
        wrt: positions of the arguments that derivatives are taken in. fixed: those of the other floating tensors.
    """

    def __init__(self, op: Op, args: Sequence[Any]) -> None:
        self.op = op
        self.args = tuple(args)
        self.wrt = tuple(op.differentiable_positions(args))
        self.fixed = tuple(i for i, a in enumerate(args) if is_float(a) and i not in self.wrt)

    @property
    def inputs(self) -> list[Tensor]:
        """The operands that derivatives are taken in."""
        return [self.args[i] for i in self.wrt]

    @property
    def passive(self) -> list[Tensor]:
        """The operands that no derivative is taken in."""
        return [self.args[i] for i in self.fixed]

    def subject(self, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """An implementation as a function of `inputs`."""
        return functools.partial(self.operation(function), *self.passive)

    def operation(self, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """An implementation, or the formula, as a function of `passive` and then `inputs`."""

        def f(*operands: Any) -> tuple[Any, ...]:
            args = list(self.args)
            for i, operand in zip((*self.fixed, *self.wrt), operands, strict=True):
                args[i] = operand
            return flat_outputs(function(*args))

        return f

    def formula(self, word: Word, outputs: int) -> Callable[..., tuple[Any, ...]]:
        """T(f) for the op's formula, as a function of reading arrays: `passive`, `inputs`, directions."""

        first, *others = (
            along(REFERENCE, word, self.operation(_plain(algorithm)), len(self.wrt), outputs, len(self.fixed))
            for algorithm in (self.op.reference, *algorithms(self.op.reference))
        )

        def path(*arrays: Any) -> tuple[Any, ...]:
            return first(*arrays)

        for other in others:
            algorithm_of(path)(other)
        return path

    def arrays(self, directions: Sequence[Tensor] = ()) -> list[Any]:
        """What `formula` takes, as float64: the operands of the op, and `directions`."""
        return [to_array(t) for t in (*self.passive, *self.inputs, *directions)]


def batch(problem: Problem, sample: Sample, likes: Sequence[Like]) -> list[Tensor]:
    """The operands of a problem with the batch axes that `likes` asks for: a different slice of the sample in each."""
    out = []
    for i, like in zip((*problem.fixed, *problem.wrt), likes, strict=True):
        tensor = sample.args[i]
        sizes = like.shape[: len(like.shape) - tensor.ndim]
        every = [tensor, *(args[i] for args in sample.slices)]
        out.append(torch.stack(every[: math.prod(sizes)]).reshape(like.shape) if sizes else tensor)
    return out


def output_names(op: Op, word: Word, wrt: Sequence[int], outputs: int) -> list[str]:
    """Names of the outputs of a path, for messages: `out[0]`, `d_weight`, `t_out[0]`."""
    ins = [op.label(i) for i in wrt]
    outs = [f"out[{i}]" for i in range(outputs)] if outputs > 1 else ["out"]
    for step in word:
        if step == "jvp":
            ins, outs = ins + [f"t_{n}" for n in ins], [f"t_{n}" for n in outs]
        elif step == "vjp":
            ins, outs = ins + [f"c_{n}" for n in outs], [f"d_{n}" for n in ins]
    return outs
