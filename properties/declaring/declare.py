"""`declare`: the declaration of an op, all of it by the names of arguments, as the record that the oracles read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import torch
from hypothesis import strategies as st

from ...oracles.op.declaration import Draft, Keywords, Op, Promises, Slices, dtype_name
from ...oracles.op.documented import Documented
from ..names import collect_names, unknown_name
from . import strategies
from .laws import Relation
from .refusals import Mistake
from .shapes import Argument, Shapes, samples_by
from .signature import Args, Signature
from .user_samples import Samples, drafts_of_user, drawer, takes


def declare(
    reference: Callable[..., Any],
    subjects: Mapping[str, Callable[..., Any]],
    samples: Callable[..., Any] | Samples | Mapping[str, Argument],
    differentiable: Sequence[str],
    dtypes: Callable[..., Sequence[Any]],
    *,
    name: str = "",
    laws: Sequence[Relation] = (),
    refusals: Sequence[Mistake] = (),
    mutates: Sequence[str] = (),
    resolved: Callable[..., Mapping[str, Any]] | None = None,
    documented: Mapping[str, Documented] | None = None,
    **keywords: Unpack[Keywords],
) -> Op:
    """The declaration of an op. Its functions get arguments by the names of their own parameters.

    Args:
        reference: the formula, forward only, in NumPy; its signature is the op's.
        subjects: implementations by name; "opassay" is the one that ships, "torch" is torch's own.
        samples: (dtype name, kind) -> Hypothesis strategy of `Draft`s, as those in `strategies` and `drawing`. What a
            draft's `fill` gives are the arguments in order, or by name; what it leaves out has its default. Or what
            strategies are made of: shapes by name, as for `custom_kernel`, {"x": ("N", "n")}; or calls at hand, as for
            `custom_function`: [(x, w), ...], or a function that gives one.
        differentiable: names of the arguments that the op is differentiable in.
        dtypes: (arguments by name) -> the dtype of every output that is not None, or its name.
        laws, refusals: relations and documented invalid input, of the functions in `laws` and `refusals`.
        mutates: names of the arguments that a call writes. name: the public name; that of the formula by default.
        resolved: (arguments by name) -> values that the formula, which sees no dtypes, gets in place of those: an eps
            of None, which depends on one, is a number there.
        documented: by subject, what it documents of itself; `Limit.where` and `casts` get arguments by name.
        keywords: saved, flush and all others of `Keywords`.

    Raises:
        ValueError: a name in the declaration is that of no argument (what a law or a refusal changes shows when it is
            asked, OA505), one in `algorithms` that of no algorithm, or `name` cannot be the name of a file.
        TypeError: a keyword is none of `Keywords`, or a subject is no function.
    """
    title = name or reference.__name__
    _require_valid(title, subjects, keywords)
    signature = Signature(reference)
    for field, names in (("differentiable", differentiable), ("mutates", mutates)):
        signature.require(f"{title}: {field}", collect_names(names))
    read = signature.reader(f"{title}: dtypes", dtypes)
    op = Op(
        name=title,
        reference=reference,
        subjects=subjects,
        samples=_samples_of(signature, title, reference, samples),
        differentiable=tuple(map(signature.own, collect_names(differentiable))),
        promises=Promises(lambda args: tuple(getattr(torch, dtype_name(dtype)) for dtype in read(args))),
        laws=tuple(law.of(signature) for law in laws),
        refusals=tuple(each.of(signature) for refusal in refusals for each in (refusal, *refusal.besides)),
        mutates=tuple(map(signature.own, collect_names(mutates))),
        documented={name: _documented(signature, title, of) for name, of in (documented or {}).items()},
    )
    op = op.changed(without=frozenset({"dims"} if isinstance(samples, Mapping) else ()))  # Shapes fix the dims.
    # `saved` and `aliases` use the op's numbers and labels of arguments, so they are read when the op exists.
    op = op.changed(**_in_order(signature, op, keywords))
    return op if resolved is None else _with_resolved(op, signature, f"{title}: resolved", resolved)


def _with_resolved(op: Op, signature: Signature, what: str, resolved: Callable[..., Mapping[str, Any]]) -> Op:
    """The op whose formula gets the values that `resolved` gives; `what`: the field, for messages."""
    resolve = signature.reader(what, resolved)
    return dataclasses.replace(op, resolved=lambda args: signature.changed(what, args, resolve(args)))


def _require_valid(title: str, subjects: Mapping[str, Any], keywords: Mapping[str, Any]) -> None:
    """ValueError for a name that no file can have, TypeError for a subject or a keyword that is none."""
    if not title.isprintable() or "/" in title:
        raise ValueError(f"name: got {title!r}, need printable characters and no /, because files are named after it")
    for subject, function in subjects.items():
        if not callable(function):
            raise TypeError(f"{title}: subjects: got {subject!r} of type {type(function).__name__}, need a function")
    for keyword in keywords:
        if keyword not in Keywords.__annotations__:
            raise TypeError(f"{title}: {unknown_name('keyword', keyword, Keywords.__annotations__)}")


def _documented(signature: Signature, title: str, of: Documented) -> Documented:
    """The documentation of a subject, with functions of arguments by position; ValueError for an unknown name."""
    what = f"{title}: documented"
    signature.require(what, of.differentiable or ())
    limits = tuple(
        limit if limit.where is None else dataclasses.replace(limit, where=signature.reader(what, limit.where))
        for limit in of.limits
    )
    casts = None if of.casts is None else signature.reader(what, of.casts)
    names = None if of.differentiable is None else tuple(map(signature.own, of.differentiable))
    return dataclasses.replace(of, differentiable=names, limits=limits, casts=casts)


def _samples_of(
    signature: Signature, title: str, reference: Callable[..., Any], samples: Any
) -> Callable[..., st.SearchStrategy[Draft]]:
    """The samples of a declaration, whatever stands for them there, as a function of (dtype name, kind)."""
    if isinstance(samples, Mapping):
        signature.args(f"{title}: samples", samples)  # which refuses names of no argument, and lacking ones
        samples = samples_by(Shapes.of(samples, {}), strategies.MODERATE)
    elif not callable(samples) or not takes(samples, 2):
        return functools.partial(drafts_of_user, drawer(reference, samples))
    return by_position(signature, title, samples)


def by_position(signature: Signature, title: str, samples: Callable[..., Any]) -> Callable[..., Any]:
    """Samples whose drafts fill a tuple. An object that is no strategy is returned as it is; `drafts_of` refuses it."""

    def filled(draft: Any) -> Any:
        def fill(rng: Any) -> Any:
            arguments = draft.fill(rng)
            return signature.args(f"{title}: samples", arguments) if isinstance(arguments, Mapping) else arguments

        return dataclasses.replace(draft, fill=fill) if isinstance(draft, Draft) else draft

    def by_position(dtype: str, kind: str = "ordinary") -> Any:
        strategy = samples(dtype, kind)
        return strategy.map(filled) if isinstance(strategy, st.SearchStrategy) else strategy

    return by_position


def _in_order(signature: Signature, op: Op, keywords: Keywords) -> Keywords:
    """The keywords of `declare` as those of `Op.changed`, whose functions get the arguments in order."""

    def labelled(args: Args, labels: Sequence[str | int | None]) -> tuple[int | None, ...]:
        places: dict[str | int | None, int | None] = {op.label(i): i for i in range(len(args))} | {None: None}
        return tuple(places[label] for label in labels)

    in_order = keywords.copy()
    if saved := keywords.get("saved"):
        size = signature.reader(f"{op.name}: saved", saved, "wanted")
        in_order["saved"] = lambda args, wanted: size(args, wanted={signature.usual(op.argument(i)) for i in wanted})
    if aliases := keywords.get("aliases"):
        shared = signature.reader(f"{op.name}: aliases", aliases)
        in_order["aliases"] = lambda args: labelled(args, shared(args))
    if invariant := keywords.get("invariant"):
        apart = signature.reader(f"{op.name}: invariant", invariant, "device")
        in_order["invariant"] = lambda args, device: _with_own_names(signature, op, apart(args, device=device))
    if strides := keywords.get("strides"):
        in_order["strides"] = signature.reader(f"{op.name}: strides", strides)
    if isinstance(kernels := keywords.get("kernels"), bool):
        in_order["kernels"] = op.name if kernels else ""
    return in_order


def _with_own_names(signature: Signature, op: Op, slices: Slices | None) -> Slices | None:
    """The same slices by the names that the op itself has; ValueError for a name of no argument."""
    if slices is None:
        return None
    signature.require(f"{op.name}: invariant", (*slices.arguments, *slices.counts, *slices.required))
    return Slices(
        {signature.own(name): axis for name, axis in slices.arguments.items()},
        slices.outputs,
        tuple(map(signature.own, slices.counts)),
        {signature.own(name): value for name, value in slices.required.items()},
    )
