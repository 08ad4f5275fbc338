"""Words of transforms, and the engines that take their steps: torch's two, and that of the formulas.

A step turns a function of k inputs and m outputs into another: `jvp` takes k tangents more and returns m tangents,
`vjp` takes m cotangents more and returns k cotangents. So every word needs a known list of directions, and the same
list goes to both sides (`paths`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from ...reference import derivative
from ...reference.missing import nearest_of

#: A word of transforms: "jvp", "vjp" and `Vmap` steps, innermost first.
Word = tuple[Any, ...]
Step = Callable[[Callable[..., Any], Sequence[Any], Sequence[Any]], tuple[Any, ...]]


@dataclass(frozen=True)
class Vmap:
    """A step of a word: vmap over axis 0 of all but the `shared` inputs; outputs get the batch at axis 0.

    The batch of the `last` inputs is moved to the last axis before vmap takes it from there.
    """

    size: int
    shared: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()

    def in_dims(self, passive: int, inputs: int) -> tuple[int | None, ...]:
        """The axis that vmap takes the batch of each operand from: None, 0 or -1."""
        own = (None if i in self.shared else -1 if i in self.last else 0 for i in range(inputs))
        return (*(0,) * passive, *own)


#: What an op may not offer (`Promises.without`), by name, in words.
OFFERS = {
    "jvp": "forward mode",
    "vmap": "torch.vmap",
    "func": "the transforms of torch.func",
    "double": "derivatives of second order, by differentiating backward",
    "triple": "derivatives of third order",
    "compile": "torch.compile and torch.export",
    "fake": "meta and fake tensors",
    "empty": "tensors without elements",
    "dims": "tensors of more dims than the samples have",
}
_IMPLIED = {"func": ("vmap",), "double": ("triple",)}


def with_implied(without: Collection[str]) -> frozenset[str]:
    """These names of what is not offered, and those of what needs one of them.

    Raises:
        ValueError: a name is not one of `OFFERS`.
    """
    unknown = sorted(set(without) - OFFERS.keys())
    if unknown:
        near = nearest_of(unknown[0], OFFERS)
        raise ValueError(f"without: got {unknown[0]!r}{near}, need names of {', '.join(OFFERS)}")
    return frozenset(without).union(*(_IMPLIED.get(name, ()) for name in without))


FIRST: tuple[Word, ...] = (("vjp",), ("jvp",))
SECOND: tuple[Word, ...] = (("jvp", "jvp"), ("vjp", "jvp"), ("jvp", "vjp"), ("vjp", "vjp"))
THIRD: tuple[Word, ...] = (("vjp", "vjp", "vjp"), ("jvp", "vjp", "jvp"))


def word_name(word: Word) -> str:
    """The word as a composition, outermost first: ("vjp", "jvp") is "jvp∘vjp"."""
    return "∘".join("vmap" if isinstance(step, Vmap) else step for step in reversed(word)) or "forward"


def path_name(word: Word, engine: str) -> str:
    """The word and who takes its steps, for messages: "jvp∘vjp (func)"."""
    return f"{word_name(word)} ({engine})" if word else "forward"


def derivative_order(word: Word) -> int:
    """How many steps of a word differentiate."""
    return sum(not isinstance(step, Vmap) for step in word)


def nestings(depth: int) -> list[Word]:
    """Every word of jvp, vjp and vmap of one step up to `depth` steps: 39 of them up to depth 3."""
    # Two slices suffice to tell a slice from another one, and three nested vmaps then need no more than eight samples.
    steps = ("jvp", "vjp", Vmap(2))
    return [word for length in range(1, depth + 1) for word in itertools.product(steps, repeat=length)]


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


def _eager_jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    with forward_ad.dual_level():
        outputs = f(*(forward_ad.make_dual(p, t) for p, t in zip(primals, tangents, strict=True)))
        # Tangents are read before the level is left, because leaving it clears them. Where an output depends on no
        # dual input there is none; the formula gives zeros there, so zeros stand in for it.
        moved = [forward_ad.unpack_dual(y).tangent for y in outputs]
        return tuple(torch.zeros_like(y) if t is None else t for y, t in zip(outputs, moved, strict=True))


def _eager_vjp(f: Callable[..., Any], primals: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
    if not primals:
        return ()
    # Only a vjp step further out differentiates what is computed here; a plain backward pass makes no graph.
    graph = any(t.requires_grad for t in (*primals, *cotangents))
    with torch.enable_grad():
        leaves = []
        for p in primals:
            value, tangent = forward_ad.unpack_dual(p)
            # Detaching drops the tangent of a jvp step further out. An input that requires grad belongs to a vjp step
            # further out, from which detaching would cut it off.
            leaf = p if p.requires_grad else value.detach().requires_grad_()
            leaves.append(leaf if p.requires_grad or tangent is None else forward_ad.make_dual(leaf, tangent))
        outputs = f(*leaves)
        # `autograd.grad` raises for an output that depends on no leaf. Its cotangent reaches no input, so it is left
        # out.
        pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
        grads = torch.autograd.grad(
            [y for y, _ in pairs], leaves, [g for _, g in pairs], create_graph=graph, allow_unused=True
        )
    return tuple(torch.zeros_like(p) if g is None else g for g, p in zip(grads, leaves, strict=True))


def _vmap(f: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    mapped = torch.func.vmap(f, in_dims=in_dims)

    def moved(*args: Any) -> Any:
        return mapped(*(a.movedim(0, -1) if d == -1 else a for a, d in zip(args, in_dims, strict=True)))

    return moved if -1 in in_dims else mapped


REFERENCE = Engine(
    lambda f, primals, tangents: derivative.jvp(f, primals, tangents)[1],
    lambda f, primals, cotangents: derivative.vjp(f, primals)[1](*cotangents),
    functools.partial(loop, stack=np.stack),
)
_FUNC = Engine(
    lambda f, primals, tangents: tuple(torch.func.jvp(f, tuple(primals), tuple(tangents))[1]),
    lambda f, primals, cotangents: tuple(torch.func.vjp(f, *primals)[1](tuple(cotangents))),
    _vmap,
)
#: "func" is torch.func, which takes every word; "eager" is autograd and dual tensors, which take some (`engines_of`).
ENGINES = {"func": _FUNC, "eager": Engine(_eager_jvp, _eager_vjp, _vmap)}


def engines_of(word: Word) -> tuple[str, ...]:
    """Engines that can take a word: dual levels do not nest, so eager takes at most one jvp, and that outermost."""
    return ("func",) if "jvp" in word[:-1] else ("func", "eager")


def required(word: Word) -> frozenset[str]:
    """What an op must offer for a word to be taken (`OFFERS`)."""
    order = derivative_order(word)
    names = {step if isinstance(step, str) else "vmap" for step in word}
    names |= {name for least, name in ((2, "double"), (3, "triple")) if order >= least}
    return frozenset(names if "eager" in engines_of(word) else names | {"func"})


def engine_for(without: Collection[str], engine: str) -> str:
    """The engine itself; for an op that does not offer torch.func, "eager": autograd and dual tensors."""
    return "eager" if "func" in without else engine


def engines_for(without: Collection[str], word: Word) -> tuple[str, ...]:
    """All engines that can take a word of an op that does not offer these things."""
    return tuple(dict.fromkeys(engine_for(without, engine) for engine in engines_of(word)))


def along(
    engine: Engine, word: Word, f: Callable[..., Any], inputs: int, outputs: int, passive: int = 0
) -> Callable[..., tuple[Any, ...]]:
    """T(f) for the word T, as a function of passive operands, then inputs, then directions.

    Args:
        engine: who takes the steps.
        word: the steps, innermost first.
        f: the function that is transformed; it takes the passive operands and then the inputs.
        inputs, outputs: how many inputs `f` takes, and how many outputs it has.
        passive: how many operands come before the inputs; no derivative is taken in them.
    """
    for step in word:
        if isinstance(step, Vmap):
            f = engine.vmap(f, step.in_dims(passive, inputs))
            continue
        f = functools.partial(_split, engine.jvp if step == "jvp" else engine.vjp, f, inputs, passive)
        inputs, outputs = (2 * inputs, outputs) if step == "jvp" else (inputs + outputs, inputs)
    return f


def _split(take: Step, f: Callable[..., Any], inputs: int, passive: int, *args: Any) -> tuple[Any, ...]:
    end = passive + inputs
    # Passive operands are bound here, so that no derivative is taken in them. They remain operands of the result, so
    # that a vmap step further out can still batch them.
    return take(functools.partial(f, *args[:passive]), args[passive:end], args[end:])


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as inductor compiles it, for the shapes of its next call; a graph break is an error."""
    # Dynamo caches compiled graphs by the code of a function, and the functions of all paths are closures of the same
    # code. So the cache is emptied; otherwise the graph of an earlier path could run in place of this one.
    torch._dynamo.reset()
    compile_: Callable[..., Callable[..., Any]] = torch.compile
    return compile_(function, fullgraph=True, dynamic=False)
