"""Ops that are named by their place: "module:name", or "module:class(module:samples,module:reference)".

A module of the current folder may be named by its file: "assay.py:OP".
"""

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
        SelectionError: the name has another form, there is nothing at the place, or no op and no custom function.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        need = "module:name, or module:class(module:samples[,module:reference])"
        raise SelectionError(f"op: got op={name!r}, need {need}")
    target = _load_at(match["target"])
    if isinstance(target, Op) and match["samples"] is None:
        return target
    if match["samples"] is None:
        raise SelectionError(
            f"op: {match['target']} is a {type(target).__name__}, need an opassay.Op; samples of a custom function are"
            f" given as {match['target']}(module:samples)"
        )
    reference = None if match["reference"] is None else _load_at(match["reference"])
    samples = _load_at(match["samples"])
    with _refuse_faulty_declaration(name):
        return custom_function(target, samples, reference)


def _load_at(place: str) -> Any:
    """The object at "module:name"; modules of the current folder come last."""
    module_name, _, path = place.replace(".py:", ":").partition(":")
    here = os.getcwd()
    if here not in sys.path:
        # The folder comes last, so that no file of the user hides an installed module of the same name.
        sys.path.append(here)
    with _refuse_faulty_declaration(place):
        value: Any = importlib.import_module(module_name)
        for part in path.split("."):
            value = getattr(value, part)
    return value


@contextlib.contextmanager
def _refuse_faulty_declaration(place: str) -> Iterator[None]:
    """SelectionError where a declaration raises in the block, or ends the program, as by sys.exit on import."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except (ImportError, AttributeError) as err:
        raise SelectionError(f"op: nothing at {place!r}: {type(err).__name__}: {err}") from err
    except BaseException as err:
        raise SelectionError(f"op: {place!r} cannot be loaded: {type(err).__name__}: {err}") from err
