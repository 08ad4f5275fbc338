"""What promises are told with: a question yields what is wrong with each thing that it tried, "" where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

#: What is wrong with each thing that a promise is about; "" where nothing is.
Told: TypeAlias = Iterator[str]


def refused(
    call: Callable[[], Any],
    *says: str,
    error: type[Exception] | tuple[type[Exception], ...] = (RuntimeError, ValueError),
) -> str:
    """What is wrong with how a call is refused, which must say all of this; "" where nothing is."""
    try:
        call()
    except error as err:
        return next((f"got an error that says {err}, need {word!r} in it" for word in says if word not in str(err)), "")
    return f"got no error, need one that says {says[0]!r}"


def found(what: str, got: Any, need: Any) -> str:
    """What is wrong with what was found; "" where it is what is needed."""
    return "" if got == need and type(got) is type(need) else f"got {what}={got!r}, need {need!r}"


def numbers(x: Any) -> list[float]:
    """The numbers of a tensor of any device."""
    told: list[float] = x.detach().to("cpu").tolist()
    return told
