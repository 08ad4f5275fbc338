"""What a kernel or a custom function offers and promises besides its values: its caller's record, its own members.

A custom function without `setup_context` (the old style) gets its context by forward.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch.autograd.function import FunctionCtx
from torch.utils import _pytree as pytree

from ...oracles.op.declaration import OWN
from ...oracles.op.documented import Documented
from ..names import collect_names, require_known

#: What a kernel by default does not offer: most kernels have a backward that torch.func refuses, and no jvp.
KERNEL_WITHOUT = ("func", "jvp")
BASE = torch.autograd.Function
#: Words for what rows keep their bits in, of which INV and DET ask.
AXES = ("rows", "position", "neighbours", "order", "runs", "threads")


class OfferKeywords(TypedDict):
    """Keywords of `Op.changed` that an offer decides."""

    without: frozenset[str]
    specials: bool
    one_graph: bool
    flush: bool
    algorithms: frozenset[str]


@dataclass(frozen=True)
class Offer:
    """What a kernel or a custom function offers and promises besides its values.

    Attributes:
        without: names of `oracles.op.transforms.OFFERS` that it does not offer; by default "func" and "jvp" of a
            kernel, and no more than its members say of a custom function.
        max_order: of the derivatives that it has; 0 if it has none.
        specials: whether NaN, infinities, zeros and the largest numbers are in the domain of every argument; by default
            they are in that of a kernel.
        flush: whether subnormal numbers may be read and returned as zero.
        algorithms: names of less accurate algorithms that it may use: those that the reference declares, and "exp2".
        outputs: positions of a kernel's outputs that are judged, in the order of the reference's; all by default.
        supported: (arguments by name) -> whether a kernel takes such a call of an op of the catalog; others are not
            asked. Where the samples come from shapes, `sizes` says that.
        differentiable: names of the arguments that gradients are promised for; all by default.
        deterministic: whether the same call gives the same bits every time; sums by atomic additions do not.
        invariant: whether a row has the same bits in any batch, alone as among hundreds: the symbol of the rows in the
            shapes of a kernel, or True for the first axis of its first tensor, or words of `AXES`, which ask the same;
            for a kernel of an op of the catalog, True for what the op promises.
    """

    without: Iterable[str] | None = None
    max_order: int = 3
    specials: bool | None = None
    flush: bool = False
    algorithms: Iterable[str] = ()
    outputs: Sequence[int] | None = None
    supported: Callable[..., Any] | None = None
    differentiable: Iterable[str] | None = None
    deterministic: bool = True
    invariant: Sequence[str] | bool | None = None

    @classmethod
    def of(cls, offer: Offer | None, *unused: str) -> Offer:
        """The offer; by default one with all defaults.

        Args:
            unused: fields that have no meaning where it is given.

        Raises:
            TypeError: it is something else. ValueError: it has one of those fields.
        """
        offer = cls() if offer is None else offer
        if not isinstance(offer, cls):
            raise TypeError(f"offer: got {type(offer).__name__}, need opassay.Offer, as opassay.Offer(max_order=1)")
        for name in unused:
            if getattr(offer, name) is not None:
                takers = "a kernel of an op of the catalog" if name == "supported" else "a kernel"
                raise ValueError(f"{name}: got {_text_of(getattr(offer, name))} in offer, which is for {takers}")
        return offer

    def lacking(self, usual: Iterable[str] = KERNEL_WITHOUT) -> frozenset[str]:
        """All names that are not offered, those for orders of derivatives among them; `usual` by default."""
        orders = {name for most, name in ((2, "double"), (3, "triple")) if self.max_order < most}
        return frozenset(usual if self.without is None else collect_names(self.without)) | orders

    def keywords(self) -> OfferKeywords:
        """What an op that is made of a kernel promises, as keywords of `Op.changed`."""
        return {
            "without": self.lacking(), "specials": self.specials is None or self.specials, "one_graph": False,
            "flush": self.flush, "algorithms": frozenset(collect_names(self.algorithms)),
        }  # fmt: skip

    @property
    def documented(self) -> dict[str, Documented]:
        """What `Op.documented` has of it: that it promises no equal bits, and so is not asked for them."""
        if self.deterministic:
            return {}
        not_asked = dict.fromkeys(("DET", "CALLS"), "its offer says deterministic=False")
        return {OWN: Documented("its offer", not_asked=not_asked, bits=False)}

    def choose_differentiable(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the arguments that gradients are promised for.

        Raises:
            ValueError: a name in `differentiable` is none of them.
        """
        operands = names if self.differentiable is None else collect_names(self.differentiable)
        require_known("differentiable", operands, names)
        return tuple(name for name in names if name in operands) if self.max_order >= 1 else ()

    def picked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel as a function that returns the judged outputs alone."""

        def subject(*args: Any) -> tuple[Any, ...]:
            leaves = [t for t in pytree.tree_leaves(call(*args)) if isinstance(t, torch.Tensor)]
            return tuple(leaves if self.outputs is None else (leaves[i] for i in self.outputs))

        return subject


def _text_of(value: Any) -> str:
    """A value as it may be written in a call; of a function "..."."""
    return "..." if callable(value) else reprlib.repr(value)


def is_old_style(function: Any) -> bool:
    """Whether forward takes the context. Autograd accepts such a function, torch.func refuses it."""
    return function.setup_context is BASE.setup_context


def forward_of(function: Any) -> Callable[..., Any]:
    """The forward of a custom function, as a function of the arguments of `apply`."""
    forward: Callable[..., Any] = function.forward
    if not is_old_style(function):
        return forward
    signature = inspect.signature(forward)

    def plain(*args: Any) -> Any:
        context: Any = FunctionCtx()
        context.needs_input_grad = (False,) * len(args)
        return forward(context, *args)

    surface: Any = plain
    surface.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return plain


def not_offered(function: Any) -> frozenset[str]:
    """The names in `oracles.op.transforms.OFFERS` that the class does not offer, by its own members."""
    missing = {
        "jvp": function.jvp is BASE.jvp,
        "vmap": function.vmap is BASE.vmap and not function.generate_vmap_rule,
        "func": is_old_style(function),
        "double": _once_differentiable(function.backward),
    }
    return frozenset(name for name, absent in missing.items() if absent)


def _once_differentiable(backward: Any) -> bool:
    """Whether `once_differentiable` of torch wraps a backward; the wrapper's code has this word in its name."""
    code = getattr(backward, "__code__", None)
    return code is not None and "once_differentiable" in code.co_qualname
