"""The promises that a subject documents, where they are less than those of the op.

An op promises what the production op keeps. An implementation by somebody else has promises of its own: its
documentation says which arguments it differentiates, which dtypes it takes, what it refuses. It is judged by those
promises. A limit that no documentation states is no excuse: a subject without an entry is judged by the op's promises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...reference.dtypes import dtype_name

#: Exceptions by which a subject may refuse; all of them are what users of torch expect.
KINDS: tuple[type[Exception], ...] = (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError)


@dataclass(frozen=True)
class Limit:
    """Calls that a subject documents as unsupported. They may end in a clear error, and in no other error.

    Attributes:
        what: the unsupported calls, in a few words for the report.
        source: where the subject documents that.
        error: a regular expression that the text of the error matches, where the documentation gives its words.
        where: (arguments in order) -> whether a call is unsupported; None for every call.
        transforms: the transforms "jvp" and "vmap" that are unsupported, where the call itself is supported. The
            question is then asked again without these transforms.
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
    """The promises that a subject documents. A field with its default stands for the op's own promise.

    A clear error of an unsupported call is the outcome "refused" and no failure. A result of an unsupported call is
    judged as any other result, so a wrong number is always a failure.

    Attributes:
        source: where the documentation stands, for the report.
        differentiable: names of the arguments that it is differentiable in. limits: calls that it does not take.
        dtypes: the dtypes that it takes, as `reference.dtypes.dtype_name` takes them.
        promises: what is promised in place of the op's own, by keywords of `Op.changed`: None for what is promised by
            the op alone (`saved`, `invariant`, `strides`), `flush`, `algorithms`, `one_graph`.
        not_asked: codes of properties whose promise the subject does not make, and why, in words for the report.
        bits: whether results that mathematics makes equal have equal bits. Else laws, data, and results with another
            number of threads hold within the bound.
        refuses: names of the op's refusals (`Op.refusals`) that the subject documents, too; None for all of them. Of
            the other invalid inputs the subject may accept any, or raise any clear error.
        casts: (arguments in order) -> the dtype that the inputs are cast to before the op, or None.
        native: torch's own evaluation of what the subject means, where that is plain PyTorch. What it refuses, the bits
            that it does not keep, and elements that it has outside of their accept sets are not asked of the subject.
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
    native: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.dtypes is not None:
            object.__setattr__(self, "dtypes", tuple(map(dtype_name, self.dtypes)))
