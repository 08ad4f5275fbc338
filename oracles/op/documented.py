"""What a subject documents of itself, where that is less than what the op promises.

An op promises what the production op keeps. An implementation by somebody else has promises of its own: its
documentation says which arguments it differentiates, which dtypes it takes, what it refuses. It is held to those. What
no documentation says is no excuse: a subject without an entry here is held to the op's own promises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Exceptions by which a subject may refuse; all of them are what users of torch expect.
KINDS: tuple[type[Exception], ...] = (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError)


@dataclass(frozen=True)
class Limit:
    """Calls that a subject documents as outside of what it takes. They may end in a clear error, and in no other.

    Attributes:
        what: is outside, in a few words for the report.
        source: where the subject documents that.
        error: a regular expression that the text of the error matches, where the documentation gives its words.
        where: (arguments in order) -> whether a call is outside; every call where it is None.
        transforms: "jvp" and "vmap", if it is these of the call that are outside, and not the call itself. The question
            is then asked again without them.
        kinds: types of the error.
    """

    what: str
    source: str
    error: str = ""
    where: Callable[[tuple[Any, ...]], bool] | None = None
    transforms: frozenset[str] = frozenset()
    kinds: tuple[type[Exception], ...] = KINDS


@dataclass(frozen=True)
class Documented:
    """What a subject documents. Everything that is left out is as the op promises it.

    A clear error on what is outside is the outcome "refused" and no failure. A result of what is outside is judged as
    any other is, so a wrong number is a failure everywhere.

    Attributes:
        source: where the documentation stands, for the report.
        differentiable: names of the arguments that it is differentiable in. limits: calls that it does not take.
        dtypes: names of the dtypes that it takes.
        promises: fields of `declaration.Promises` with what is promised in place of the op's own: None for what is
            promised by the op alone (`saved`, `invariant`, `strides`), `flush`, `algorithms`, `one_graph`.
        not_asked: codes of properties whose promise the subject does not make, and why, in words for the report.
        bits: whether results that mathematics makes equal have equal bits. Else laws and data hold within the bound.
        refuses: names of the op's refusals (`Op.refusals`) that it documents, too; all of them where it is None. Of
            others only a result is told, never which error there was.
        casts: (arguments in order) -> the dtype that the inputs are cast to before the op, or None.
    """

    source: str = ""
    differentiable: tuple[str, ...] | None = None
    limits: tuple[Limit, ...] = ()
    dtypes: tuple[str, ...] | None = None
    promises: Mapping[str, Any] = field(default_factory=dict)
    not_asked: Mapping[str, str] = field(default_factory=dict)
    bits: bool = True
    refuses: tuple[str, ...] | None = None
    casts: Callable[[tuple[Any, ...]], Any] | None = None
