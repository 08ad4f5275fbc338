"""`declare`: the declaration of an op, all of it by the names of arguments, as the record that the oracles read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from ...oracles.op.declaration import Draft, Op, Promises, Slices
from ...oracles.op.documented import Documented
from ...oracles.op.placement import Devices, Ranks
from .laws import Relation
from .refusals import Mistake
from .signature import Args, Signature


def declare(
    reference: Callable[..., Any],
    subjects: Mapping[str, Callable[..., Any]],
    samples: Callable[..., Any],
    differentiable: Sequence[str],
    dtypes: Callable[..., Sequence[Any]],
    *,
    name: str = "",
    saved: Callable[..., int] | None = None,
    aliases: Callable[..., Sequence[str | None]] | None = None,
    laws: Sequence[Relation] = (),
    refusals: Sequence[Mistake] = (),
    mutates: Sequence[str] = (),
    ranks: Ranks | None = None,
    devices: Devices | None = None,
    invariant: Callable[..., Slices | None] | None = None,
    strides: Callable[..., Sequence[tuple[int, ...]]] | None = None,
    kernels: bool | str = False,
    example: Callable[[Any], Any] | None = None,
    resolved: Callable[..., Mapping[str, Any]] | None = None,
    documented: Mapping[str, Documented] | None = None,
    **promised: Any,
) -> Op:
    """The declaration of an op. Its functions get arguments by the names of their own parameters.

    Args:
        reference: the formula, forward only, in NumPy; its signature is the op's.
        subjects: implementations by name; "opassay" is the one that ships, "torch" is torch's own.
        samples: (dtype name, kind) -> Hypothesis strategy of `Draft`s, as those in `strategies` and `drawing`. What a
            draft's `fill` gives are the arguments in order, or by name; what it leaves out has its default.
        differentiable: names of the arguments that the op is differentiable in.
        dtypes: (arguments by name) -> the dtype of every output that is not None.
        name: the public name; that of the formula by default.
        saved: (arguments by name, wanted) -> bytes kept for backward, inputs included; `wanted` has the names of the
            arguments that require grad.
        aliases: (arguments by name) -> for every output that is not None the name of the argument whose memory it
            shares ("args[1]" for the second of `*args`), or None where its memory is its own.
        laws, refusals: relations and documented invalid input, of the functions in `laws` and `refusals`.
        mutates: names of the arguments that a call writes.
        ranks, devices: how the op runs over several ranks, and over several devices, where it does.
        invariant: (arguments by name, device) -> where slices are treated one by one, or None.
        strides: (arguments by name) -> the strides of the first outputs that are not None.
        kernels: whether the production op has Triton kernels, or the name of the op that has the same ones.
        example: a call of the production op on one tensor of shape (4, 4, 6), made between two calls of another op.
        resolved: (arguments by name) -> values that the formula gets in place of arguments of these names: a formula
            does not see dtypes, so a default that depends on one, as an eps of None may, is a number there.
        documented: by subject, what it documents of itself; `Limit.where` and `casts` get arguments by name.
        promised: what else `Promises` has: order, nesting, without, specials, one_graph, contiguous, identity, pieces,
            steady; flush, whether subnormal numbers may be read and returned as zero; algorithms, names of less
            accurate algorithms that an implementation may use, which the formula declares (`algorithm_of`), or "exp2".

    Raises:
        ValueError: a name in the declaration is that of no argument. Where a law or a refusal changes what is no
            argument, that shows when it is asked, and is an error of the declaration as well (OA505). Or a name in
            `algorithms` is that of no algorithm.
            Or `name` cannot be the name of a file.
        TypeError: `promised` has what `Promises` has not, or a subject is no function.
    """
    title = name or reference.__name__
    if not title.isprintable() or "/" in title:
        raise ValueError(f"name: got {title!r}, need printable characters and no /, because files are named after it")
    for subject, function in subjects.items():
        if not callable(function):
            raise TypeError(f"{title}: subjects: got {subject!r} of type {type(function).__name__}, need a function")
    signature = Signature(reference)
    for field, names in (("differentiable", differentiable), ("mutates", mutates)):
        signature.require(f"{title}: {field}", names)
    read = signature.reader(f"{title}: dtypes", dtypes)
    op = Op(
        name=title,
        reference=reference,
        subjects=subjects,
        samples=_by_position(signature, title, samples),
        differentiable=tuple(map(signature.own, differentiable)),
        promises=Promises(lambda args: tuple(read(args)), **promised),
        laws=tuple(law.of(signature) for law in laws),
        refusals=tuple(refusal.of(signature) for refusal in refusals),
        mutates=tuple(map(signature.own, mutates)),
        ranks=ranks,
        devices=devices,
        kernels=title if kernels is True else kernels or "",
        example=example,
        documented={name: _documented(signature, title, of) for name, of in (documented or {}).items()},
    )
    # `saved` and `aliases` use the op's numbers and labels of arguments, so they are read when the op exists.
    budget = None if saved is None else _saved_by_position(signature, op, saved)
    shared = None if aliases is None else _aliases_by_position(signature, op, aliases)
    sliced = None if invariant is None else _invariant_by_position(signature, title, invariant)
    strided = None if strides is None else signature.reader(f"{title}: strides", strides)
    promises = dataclasses.replace(op.promises, saved=budget, aliases=shared, invariant=sliced, strides=strided)
    if resolved is None:
        return dataclasses.replace(op, promises=promises)
    what = f"{title}: resolved"
    resolve = signature.reader(what, resolved)
    return dataclasses.replace(
        op, promises=promises, resolved=lambda args: signature.changed(what, args, resolve(args))
    )


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


def _by_position(signature: Signature, title: str, samples: Callable[..., Any]) -> Callable[..., Any]:
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


def _saved_by_position(
    signature: Signature, op: Op, saved: Callable[..., int]
) -> Callable[[Args, frozenset[int]], int]:
    read = signature.reader(f"{op.name}: saved", saved, "wanted")

    def by_position(args: Args, positions: Collection[int]) -> int:
        size: int = read(args, wanted={signature.usual(op.argument(i)) for i in positions})
        return size

    return by_position


def _aliases_by_position(
    signature: Signature, op: Op, aliases: Callable[..., Sequence[str | None]]
) -> Callable[[Args], tuple[int | None, ...]]:
    read = signature.reader(f"{op.name}: aliases", aliases)

    def by_position(args: Args) -> tuple[int | None, ...]:
        places = {op.label(i): i for i in range(len(args))}
        return tuple(None if label is None else places[label] for label in read(args))

    return by_position


def _invariant_by_position(
    signature: Signature, title: str, invariant: Callable[..., Slices | None]
) -> Callable[[Args, str], Slices | None]:
    read = signature.reader(f"{title}: invariant", invariant, "device")

    def by_position(args: Args, device: str) -> Slices | None:
        slices: Slices | None = read(args, device=device)
        if slices is None:
            return None
        signature.require(f"{title}: invariant", (*slices.arguments, *slices.counts, *slices.given))
        return Slices(
            {signature.own(name): axis for name, axis in slices.arguments.items()},
            slices.outputs,
            tuple(map(signature.own, slices.counts)),
            {signature.own(name): value for name, value in slices.given.items()},
        )

    return by_position
