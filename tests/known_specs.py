"""What the judge finds out about a spec is kept from one test to the next: its traces, and the calls that it takes.

Both follow from the text of the spec and from the given call, and to find them takes half of a small judgement. A spec
is the same in two tests where it has the same code, globals, defaults and cells, of which none could change meanwhile.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import pytest
import torch

_PLAIN = (type(None), bool, int, float, str, BuiltinFunctionType)
_SPECS: dict[Any, Any] = {}
_CALLS: dict[Any, Any] = {}
_DOMAINS: dict[Any, Any] = {}


def keep_known_specs(patch: pytest.MonkeyPatch) -> None:
    """Have judgements take what an earlier one found out of the same spec."""
    judging = importlib.import_module("opassay.properties.candidates.judging")
    session = importlib.import_module("opassay.properties.candidates.session")
    patch.setattr(judging, "specification", _once(judging.specification))
    patch.setattr(session, "derive_domain", _derived_once(session.derive_domain))
    watched = importlib.import_module("opassay.properties.watch.judging")
    patch.setattr(watched.CallJudge, "_spec_of", _of_call_once(watched))


def _once(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def specification(spec: Any) -> Any:
        try:
            key = (_identity(spec), torch.get_default_dtype())
        except (TypeError, ValueError, RecursionError):  # it may change, has an empty cell, or refers to itself
            return make(spec)
        if key not in _SPECS:
            _SPECS[key] = make(spec)
        return _SPECS[key]

    return specification


def _identity(value: Any) -> Any:
    """What two functions, or values that these refer to, have in common where they are the same.

    Raises:
        TypeError: it may change.
    """
    if isinstance(value, _PLAIN):
        return type(value), value
    if not isinstance(value, FunctionType) or vars(value):
        raise TypeError(f"{value!r} may change")
    parts = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    cells = (cell.cell_contents for cell in value.__closure__ or ())
    return value.__name__, value.__code__, id(value.__globals__), *map(_identity, (*parts, *cells))


def _derived_once(derive: Callable[..., Any]) -> Callable[..., Any]:
    def derive_domain(spec: Any, arguments: Any, draw: Any = None, seed_of: Any = int) -> Any:
        known = any(spec.function is each.function for each in _SPECS.values())
        if not known or spec.domain or draw is not None:
            return derive(spec, arguments, draw, seed_of)
        leaves = map(_bits, arguments.leaves)
        key = (spec.function, spec.autocast, spec.evaluation, str(arguments.structure), arguments.names, *leaves)
        if key not in _DOMAINS:
            _DOMAINS[key] = derive(spec, arguments, draw, seed_of)
        return _DOMAINS[key]

    return derive_domain


def _bits(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    bits = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return leaf.shape, leaf.stride(), leaf.dtype, leaf.requires_grad, bits.numpy().tobytes()


def _of_call_once(watched: Any) -> Callable[[Any, Any], Any]:
    """Of the calls of watched programs those of torch's operations, each in its form."""
    spec_of = watched.CallJudge._spec_of

    def _spec_of(judge: Any, call: Any) -> Any:
        if watched.is_of_user(call):
            return spec_of(judge, call)
        key = (watched.form_of(call), torch.get_default_dtype())
        if key not in _CALLS:
            _CALLS[key] = spec_of(judge, call)
        return _CALLS[key]

    return _spec_of
