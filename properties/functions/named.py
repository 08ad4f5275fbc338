"""Ops that are named by where they are: "module:name", or "module:class(module:samples,module:reference)"."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from ...oracles.op.declaration import Op
from ..names import SelectionError
from .user import custom_function

_PLACE = r"[\w.]+:[\w.]+"
_NAME = re.compile(rf"(?P<target>{_PLACE})(\((?P<samples>{_PLACE})(,\s*(?P<reference>{_PLACE}))?\))?")


def named_op(name: str) -> Op:
    """The op of a name with a colon.

    Raises:
        SelectionError: the name has another form, names nothing, or what it names is no op and no custom function.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        need = "module:name, or module:class(module:samples[,module:reference])"
        raise SelectionError(f"op: got op={name!r}, need {need}")
    target = _found_at(found["target"])
    if isinstance(target, Op) and found["samples"] is None:
        return target
    if found["samples"] is None:
        raise SelectionError(
            f"op: {found['target']} is a {type(target).__name__}, need an opassay.Op; samples of a custom function are"
            f" given as {found['target']}(module:samples)"
        )
    reference = None if found["reference"] is None else _found_at(found["reference"])
    samples = _found_at(found["samples"])
    with _declaring(name):
        return custom_function(target, samples, reference)


def _found_at(place: str) -> Any:
    """What is at "module:name"; modules of the current folder come last."""
    module_name, _, path = place.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        # The folder comes last, so that no file of the user that happens to bear the name of an installed module
        # takes its place.
        sys.path.append(here)
    with _declaring(place):
        value: Any = importlib.import_module(module_name)
        for part in path.split("."):
            value = getattr(value, part)
    return value


@contextlib.contextmanager
def _declaring(place: str) -> Iterator[None]:
    """A declaration that raises is the user's to mend, and so is one that ends the program: sys.exit on import."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except (ImportError, AttributeError) as err:
        raise SelectionError(f"op: nothing at {place!r}: {type(err).__name__}: {err}") from err
    except BaseException as err:
        raise SelectionError(f"op: {place!r} cannot be loaded: {type(err).__name__}: {err}") from err
