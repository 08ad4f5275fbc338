"""The three places of an op exist together, and the tables that name them are complete."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import opassay.impl
import opassay.properties.catalog as catalog
import opassay.reference
from opassay.oracles.op.declaration import Op
from opassay.properties.catalog.loading import load_op, op_names
from opassay.properties.engine.plan import Selection, plan
from opassay.properties.names import SelectionError

#: Judged through something else that calls them: what generates classes from a base class, or chooses devices.
INDIRECT_OPS = {
    "broadcast": opassay.impl.Broadcast,
    "reduce_add_coalesced": opassay.impl.ReduceAddCoalesced,
    "gather": opassay.impl.Gather,
    "scatter": opassay.impl.Scatter,
}
#: Functions that convert modules, and that look up a stream, are no ops.
NO_OPS = {"convert_sync_batchnorm", "get_stream"}
#: Other texts of a formula, which are no ops either.
OTHER_TEXTS = {"log_softmax_by", "of_stored_sum", "less_log_sum"}
_FUNCTIONS = {n for n, v in vars(opassay.impl).items() if inspect.isfunction(v) and not n.startswith("_")}
PUBLIC_OPS = {*_FUNCTIONS - {*NO_OPS}, *INDIRECT_OPS}


def _formulas() -> set[str]:
    names: set[str] = set()
    no_formulas = {"algorithms", "array", "choice", "condition", "derivative", "dtypes", "exact", "formats"}
    no_formulas |= {"distributions", "gamma", "meeting", "missing", "ranks", "second", "whole", "windows"}
    no_formulas |= {
        "residual",
        "determinants",
        "elimination",
        "enclosures",
        "factors",
        "orthogonal",
        "pivoting",
        "ranked",
        "reflections",
        "solutions",
        "dyadic",
        "spectral",
        "turned",
    }
    prefix = f"{opassay.reference.__name__}."
    for info in pkgutil.walk_packages(opassay.reference.__path__, prefix):
        place = info.name.removeprefix(prefix)
        if place.partition(".")[0] not in no_formulas and place != "norms.moments":
            module = importlib.import_module(info.name)
            own = {n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__}
            names |= {n for n in own if not n.startswith("_")}
    return names - OTHER_TEXTS


def test_every_op_has_its_three_places() -> None:
    assert set(PUBLIC_OPS) == set(catalog.CATALOG) == _formulas()


@pytest.mark.parametrize("name", catalog.CATALOG)
def test_a_declaration_names_what_exists(name: str) -> None:
    op = load_op(name)
    assert isinstance(op, Op)
    assert op.name == name
    assert op.reference.__name__ == name
    shipped: Any = op.subjects["opassay"]
    assert shipped.args[0] is INDIRECT_OPS[name] if name in INDIRECT_OPS else shipped is getattr(opassay.impl, name)
    assert set(op.differentiable) <= set(op.arguments)


@pytest.mark.parametrize("name", catalog.CATALOG)
def test_the_formula_has_the_op_s_signature(name: str) -> None:
    shipped = inspect.signature(load_op(name).subjects["opassay"]).parameters
    formula = inspect.signature(load_op(name).reference).parameters
    assert list(shipped) == list(formula)
    assert [p.default for p in shipped.values()] == [p.default for p in formula.values()]


def test_every_declared_op_is_in_the_catalog() -> None:
    modules = {importlib.import_module(f"opassay.properties.catalog.{m}") for m in catalog.CATALOG.values()}
    assert {op.name for module in modules for op in module.OPS} == set(catalog.CATALOG)


def test_the_plan_is_the_product_of_its_axes() -> None:
    cells = plan(Selection(ops=("layer_norm",), properties=("fwd", "VJP"), dtypes=("float32",)))
    assert [c.key for c in cells] == [
        "layer_norm::FWD[float32-cpu-opassay]",
        "layer_norm::VJP[float32-cpu-opassay]",
    ]
    assert len({c.id for c in plan(Selection())}) == len(plan(Selection()))


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(ops=("layer_nrm",)), "did you mean 'layer_norm'"),
        (Selection(properties=("VPJ",)), "unknown property: got property='VPJ'"),
        (Selection(dtypes=("float8",)), "unknown dtype"),
        (Selection(devices=("tpu",)), "unknown device"),
        (Selection(subjects=("numpy",)), "unknown subject"),
    ],
)
def test_an_unknown_name_is_refused_with_the_names_there_are(selection: Selection, says: str) -> None:
    with pytest.raises(SelectionError, match="need one of") as info:
        plan(selection)
    assert says in str(info.value)


def test_names_are_unique() -> None:
    assert len(set(op_names())) == len(op_names())
