"""An op by its name: of the catalog, of an installed plugin, or of a module that declares one.

Neither torch nor mpmath is imported before an op is loaded, so that ops can be listed at once.
"""

from __future__ import annotations

import importlib
import os
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ...reference.distributions import AbsentError
from ..names import ENTRY_POINT_GROUP, PluginError, SelectionError, unknown_name
from ..torch_ops.patterns import PREFIX
from . import CATALOG


def plugin_entry_points() -> tuple[EntryPoint, ...]:
    """Installed entry points that declare ops, unless OPASSAY_DISABLE_PLUGIN_AUTOLOAD is set."""
    if os.environ.get("OPASSAY_DISABLE_PLUGIN_AUTOLOAD"):
        return ()
    # Entry points come in the order in which packages lie on the disk. That differs between machines, and the report of
    # a run must not.
    return tuple(sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name))


def op_names() -> tuple[str, ...]:
    """Names of all known ops: the catalog's first, then those of installed plugins."""
    plugins = [point.name for point in plugin_entry_points()]
    duplicates = [name for name in plugins if name in CATALOG or plugins.count(name) > 1]
    if duplicates:
        raise PluginError(f"plugin op name={duplicates[0]!r} is already taken; names must be unique")
    return (*CATALOG, *plugins)


def load_op(name: str) -> Any:
    """The declaration (`opassay.oracles.op.declaration.Op`) of a name of `op_names()`, or of "module:name".

    "torch:NAME" is an operation of torch, of the generated catalog.

    Raises:
        SelectionError: there is no such op.
    """
    if not isinstance(name, str):
        raise SelectionError(f"op: got a {type(name).__name__}, need its name")
    try:
        return _load_op(name)
    except AbsentError as err:
        raise SelectionError(f"op: got op={name!r}: {err}") from err


def _load_op(name: str) -> Any:
    if name.startswith(PREFIX):
        from ..torch_ops.torch_op import torch_op  # imports torch

        return torch_op(name.removeprefix(PREFIX))
    if ":" in name:
        from ..functions.named import named_op  # imports torch

        return named_op(name)
    if name in CATALOG:
        module = importlib.import_module(f".{CATALOG[name]}", __package__)
        return _production(next(op for op in module.OPS if op.name == name))
    for point in plugin_entry_points():
        if point.name == name:
            return _load_plugin(point)
    raise SelectionError(unknown_name("op", name, op_names()))


def _production(op: Any) -> Any:
    """The op with the promise that all ops of the catalog make: their errors name the op, or its function."""
    from ...oracles.op.declaration import OWN  # imports torch

    own = getattr(op.subjects[OWN], "__name__", op.name)
    return op.changed(error_names=(op.name, own))


def _load_plugin(point: EntryPoint) -> Any:
    try:
        return point.load()
    except (Exception, SystemExit) as err:
        # SystemExit is caught as well, because a module that calls `sys.exit` while it is imported would end the
        # command line as if all were well.
        text = f"plugin {point.name!r} ({point.value}) failed to load: {type(err).__name__}: {err}"
        raise PluginError(text) from err
