"""Words for the questions of promises: each yields a text about what is wrong with each thing that it tried, or ""."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

#: For each thing that a promise is about, what is wrong with it; "" where nothing is.
Mismatches: TypeAlias = Iterator[str]


def refusal_mismatch(
    call: Callable[[], Any], *says: str,
    error: type[Exception] | tuple[type[Exception], ...] = (RuntimeError, ValueError),
) -> str:  # fmt: skip
    """What is wrong with the error of a call, which must be an `error` and say all of `says`; "" where nothing is."""
    try:
        call()
    except error as err:
        return next((f"got an error that says {err}, need {word!r} in it" for word in says if word not in str(err)), "")
    return f"got no error, need one that says {says[0]!r}"


def compare(what: str, got: Any, need: Any) -> str:
    """What is wrong with a value `got`, named `what`; "" where it equals `need` and has its type."""
    return "" if got == need and type(got) is type(need) else f"got {what}={got!r}, need {need!r}"


def numbers(x: Any) -> list[float]:
    """The numbers of a tensor of any device."""
    values: list[float] = x.detach().to("cpu").tolist()
    return values
