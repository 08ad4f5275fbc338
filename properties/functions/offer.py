"""What a kernel or a custom function offers and promises besides its values: the record that its caller gives.

The functions that take the record took its fields one by one until 0.2; the translation stands here, in one place.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict, TypeVar, cast

import torch
from torch.utils import _pytree as pytree

from ...reference.missing import nearest_of
from ..names import collect_names, require_known

#: What a kernel by default does not offer: most kernels have a backward that torch.func refuses, and no jvp.
KERNEL_WITHOUT = ("func", "jvp")
_Function = TypeVar("_Function", bound=Callable[..., Any])


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
    """

    without: Iterable[str] | None = None
    max_order: int = 3
    specials: bool | None = None
    flush: bool = False
    algorithms: Iterable[str] = ()
    outputs: Sequence[int] | None = None
    supported: Callable[..., Any] | None = None
    differentiable: Iterable[str] | None = None

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
                takers = {"supported": "a kernel of an op of the catalog", "outputs": "a kernel"}[name]
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

    def choose_differentiable(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the arguments that gradients are promised for.

        Raises:
            ValueError: a name in `differentiable` is none of them.
        """
        chosen = names if self.differentiable is None else collect_names(self.differentiable)
        require_known("differentiable", chosen, names)
        return tuple(name for name in names if name in chosen) if self.max_order >= 1 else ()

    def picked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel as a function that returns the judged outputs alone."""

        def subject(*args: Any) -> tuple[Any, ...]:
            leaves = [t for t in pytree.tree_leaves(call(*args)) if isinstance(t, torch.Tensor)]
            return tuple(leaves if self.outputs is None else (leaves[i] for i in self.outputs))

        return subject


def accept_earlier_keywords(*earlier: str) -> Callable[[_Function], _Function]:
    """A decorator: keywords that a function took until 0.2 still work, with a DeprecationWarning that has the new line.

    An unknown keyword is a TypeError that names the nearest one.

    Args:
        earlier: fields of `Offer`, which the function takes as `offer` now, and "profile", which is `settings` now.
    """

    def decorate(function: _Function) -> _Function:
        title = function.__qualname__.removesuffix(".__init__")
        parameters = tuple(name for name in inspect.signature(function).parameters if name != "self")

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            _require_keywords(title, options, parameters, earlier)
            old = {name: options.pop(name) for name in earlier if name in options}
            if old:
                warnings.warn(_sentence_of(title, old), DeprecationWarning, stacklevel=2)
                options |= _translate_keywords(old, options)
            return function(*args, **options)

        return cast(_Function, call)

    return decorate


def _require_keywords(
    title: str, options: Mapping[str, Any], parameters: Sequence[str], earlier: Sequence[str]
) -> None:
    """TypeError for a keyword that is no parameter and was none."""
    unknown = next((name for name in options if name not in (*parameters, *earlier)), None)
    if unknown is None:
        return
    known, need = tuple(parameters), f"need some of {', '.join(parameters)}"
    if "offer" in parameters:
        inside = tuple(field.name for field in fields(Offer))
        known, need = (*known, *inside), f"{need}, and in offer=opassay.Offer(...) some of {', '.join(inside)}"
    text = f"{unknown}={_text_of(options[unknown])}{nearest_of(unknown, known)}"
    raise TypeError(f"{title}: got an unexpected keyword {text}, {need}")


def _translate_keywords(old: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that say now what earlier ones said, beside the other keywords of the call."""
    part = {name: value for name, value in old.items() if name != "profile"}
    new: dict[str, Any] = {"offer": replace(Offer.of(options.get("offer")), **part)} if part else {}
    if "profile" in old and options.get("settings") is None:
        new["settings"] = old["profile"]
    return new


def _sentence_of(title: str, old: Mapping[str, Any]) -> str:
    """The call as it was and as it is written now."""
    before = ", ".join(f"{name}={_text_of(value)}" for name, value in old.items())
    part = ", ".join(f"{name}={_text_of(value)}" for name, value in old.items() if name != "profile")
    now = [f"offer=opassay.Offer({part})"] if part else []
    now += [f"settings={old['profile']!r}"] if "profile" in old else []
    return f"{title}(..., {before}) is {title}(..., {', '.join(now)}) now; the earlier keywords end with 0.2"


def _text_of(value: Any) -> str:
    """A value as it may be written in a call; of a function "..."."""
    return "..." if callable(value) else reprlib.repr(value)


Offer.__init__ = accept_earlier_keywords()(Offer.__init__)  # type: ignore[method-assign]
