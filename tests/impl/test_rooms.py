"""The rooms of impl: every family has the same ones, derivatives are stated once, and forward_ad holds no formula."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from opassay import impl
from opassay.impl.operator.composed import Composed
from opassay.impl.operator.expression import Expression
from opassay.impl.operator.operator import Operator
from opassay.impl.operator.rules import Linear, Rules

IMPL = Path(__file__).resolve().parents[2] / "impl"
FAMILIES = ("linalg", "losses", "norms", "pointwise", "response_norm", "softmax")

#: The rooms of a family. What an op is called by is `public`, or has the name of the op.
ROOMS = {
    "__init__", "public", "operators", "rules", "expressions", "layout", "batching", "kernels_cpu", "kernels_cuda",
    "kernels_triton",
    "running", "modules", "aten_names", "operands", "partial_sums", "tangents",
}  # fmt: skip

#: Backward ops whose derivatives are closed forms; the reason stands where the op is defined.
CLOSED_FORMS = {"log_sigmoid_backward", "nll_loss_backward"}


def unknown_rooms(folder: Path, ops: set[str]) -> Iterator[str]:
    """Files and folders of a family that are neither a room nor named for an op."""
    for path in sorted(folder.rglob("*.py")):
        for part in path.relative_to(folder).with_suffix("").parts:
            if part not in ROOMS | ops:
                yield str(path.relative_to(folder))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_only_the_fixed_rooms(family: str) -> None:
    assert list(unknown_rooms(IMPL / family, {*dir(impl), *Operator.registry})) == []


def test_every_folder_of_impl_is_a_family_or_known() -> None:
    folders = {path.parent.name for path in IMPL.glob("*/__init__.py")}
    assert folders == {*FAMILIES, "operator", "gpu", "forward_ad", "function", "comm"}


def test_a_room_of_another_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "formulas.py").write_text("")
    (tmp_path / "rules.py").write_text("")
    assert list(unknown_rooms(tmp_path, set())) == ["formulas.py"]


def test_a_backward_op_has_an_expression_or_a_closed_form_with_a_reason() -> None:
    ours = {name: op for name, op in Operator.registry.items() if op.overload.namespace == "opassay"}
    assert len(ours) > 20
    kinds = {name: type(op.derivatives) for name, op in ours.items() if name.endswith("_backward")}
    assert set(kinds.values()) <= {Rules, Expression, Linear}
    assert {name for name, kind in kinds.items() if kind is Rules} == CLOSED_FORMS


def test_a_tangent_with_a_kernel_is_composed_of_the_expression_that_stands_already() -> None:
    kinds = {name: type(op) for name, op in Operator.registry.items() if name.endswith("_jvp")}
    assert len(kinds) == 6
    assert set(kinds.values()) == {Composed}


def formulas(tree: ast.Module) -> Iterator[str]:
    """Arithmetic on tensors: operators, and functions of torch or of a tensor that compute."""
    computing = {
        "abs", "cos", "div", "exp", "log", "mean", "mul", "pow", "reciprocal", "rsqrt", "sigmoid", "sqrt", "square",
        "sub", "sum", "var", "where",
    }  # fmt: skip
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.BitOr()):
                continue  # Tensor | None
            case ast.BinOp() | ast.UnaryOp(op=ast.USub()):
                yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Call(func=ast.Attribute(attr=str(name))) if name in computing:
                yield f"{node.lineno}: {name}"


def test_forward_ad_holds_no_formula() -> None:
    for path in sorted((IMPL / "forward_ad").glob("*.py")):
        assert list(formulas(ast.parse(path.read_text()))) == [], path


@pytest.mark.parametrize("text", ["y = g * x", "y = -g", "y = torch.sum(g, 0)", "y = x.exp()"])
def test_a_planted_formula_is_found(text: str) -> None:
    assert len(list(formulas(ast.parse(text)))) == 1


def test_a_type_is_no_formula() -> None:
    assert list(formulas(ast.parse("def f(x: Tensor | None) -> None: ..."))) == []
