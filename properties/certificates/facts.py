"""Facts about an op that need no call of it. This module imports torch, so it runs in a worker alone."""

from __future__ import annotations

from typing import Any

from ...oracles.bound.contract import CPU_FUNCTIONS, SCALING, contract
from ...oracles.op.declaration import Op, arithmetic_of
from ..catalog import CATALOG
from ..catalog.loading import load_op, plugin_entry_points
from ..engine.documented_limits import with_documented_promises
from ..engine.environment import environment
from ..names import ON_KERNELS
from ..table import DTYPES, PROPERTIES
from .source_files import elementary_functions, files_of_formula, files_of_module, files_of_subject

Data = dict[str, Any]


def facts(item: Data) -> Data:
    """The facts of one op.

    Args:
        item: `op`, `subject` and `device`, names of a cell.

    Returns:
        `sources`: file -> SHA-256 for the op, its formula and its declaration. `functions`: elementary functions that
        the formula's text names. `contract`: dtype -> the terms that say which errors an evaluation may make.
        `properties`: code -> title, of all properties. `environment`: of this process.
    """
    op = load_op(item["op"])
    functions = elementary_functions(op.reference, CPU_FUNCTIONS)
    return {
        "sources": _files_of(op, item["op"], item["subject"]),
        "functions": functions,
        "contract": {dtype: _contract_facts(op, item, dtype, functions) for dtype in DTYPES},
        "properties": {code: question.title for code, question in PROPERTIES.items()},
        "environment": environment(),
    }


def _files_of(op: Op, name: str, subject: str) -> Data:
    # The subject "compiled" is torch's op, compiled; "triton" and "ptx" are the kernels of the op that ships.
    source = {"compiled": "torch", **dict.fromkeys(ON_KERNELS, "opassay")}.get(subject, subject)
    function = op.subjects.get(source)
    return {
        "op": files_of_subject(function, source == "opassay") if function is not None else {},
        "formula": files_of_formula(op.reference),
        "declaration": files_of_module(_module_of_declaration(name)),
    }


def _module_of_declaration(name: str) -> str:
    if name in CATALOG:
        package = __package__.rpartition(".")[0]
        return f"{package}.catalog.{CATALOG[name]}"
    if ":" in name:
        return name.partition(":")[0]
    return next(point.module for point in plugin_entry_points() if point.name == name)


def _contract_facts(op: Op, item: Data, dtype: str, functions: list[str]) -> Data:
    promises = with_documented_promises(op, item["subject"]).promises
    where = arithmetic_of(item["subject"], item["device"])
    allowed = promises.arithmetic
    terms = contract(dtype, where, promises.order, flush=allowed.flush, algorithms=allowed.algorithms)
    return {
        "accumulate": terms.accumulate.name,
        "stores": terms.stores.name,
        "ulps": {name: terms.functions.ulps[name] for name in functions},
        "roundings": terms.roundings,
        "scaling": SCALING,
        "flush": terms.flush,
        "algorithms": sorted(terms.algorithms),
    }
