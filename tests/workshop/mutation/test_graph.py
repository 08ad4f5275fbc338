"""Mutants of the graph: which changes a call allows, where it is seen, and that a planted one is refused, then gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _python_dispatch as dispatching

from opassay import Cell, Settings, run_cell
from opassay.impl import softmax, trace
from opassay.oracles.process.torch_settings import hold_mode
from workshop.mutation import equivalents
from workshop.mutation.graph import Place, change_graph, graph_mutants, note_places
from workshop.mutation.graph_changes import Call, changes_of
from workshop.mutation.mutants import Mutant
from workshop.mutation.trial import FEW, KILLING, in_copy

aten: Any = torch.ops.aten
X, Y = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[4.0, 3.0], [2.0, 1.0]])
MASK = torch.tensor([[True, False], [True, True]])
SETTINGS = Settings("brief", max_examples=FEW, simpler=False)


def _tell(operation: Any, *args: Any, **kwargs: Any) -> dict[tuple[str, str], Any]:
    """What each change of a call gives."""
    return {(kind, new): result() for kind, new, result in changes_of(Call.of(operation, args, kwargs))}


@pytest.mark.parametrize(
    ("call", "kind", "new", "need"),
    [
        ((aten.sub.Tensor, X, Y), "operation", "aten.add.Tensor", X + Y),
        ((aten.sub.Tensor, X, Y), "operand", "operands exchanged", Y - X),
        ((aten.sub.Tensor, X, Y), "dropped term", "self", X),
        ((aten.sub.Tensor, X, Y), "dropped term", "other", Y),
        ((aten.mul.Tensor, X, 3.0), "constant", "2 other", X * 6.0),
        ((aten.sum.dim_IntList, X, [1], True), "axis", "dim + 1", X.sum(0, keepdim=True)),
        ((aten.sum.dim_IntList, X, [1]), "operation", "aten.mean.dim", X.mean(1)),
        ((aten._softmax.default, X, -1, False), "axis", "dim + 1", torch.softmax(X, 0)),
        ((aten.exp.default, X), "dropped term", "self", X),
        ((aten.trace.default, X), "dropped term", "zeros", torch.tensor(0.0)),
        ((aten.div.Tensor, X, Y), "dtype", "rounded to half as many bits", (X / Y).bfloat16().float()),
        ((aten.where.self, MASK, X, Y), "mask", "mask negated", torch.where(MASK, Y, X)),
        ((aten.where.self, MASK, X, Y), "mask", "mask of nothing", Y),
        ((aten.where.self, MASK, X, Y), "operand", "operands exchanged", torch.where(MASK, Y, X)),
        ((aten.masked_fill.Scalar, X, MASK, 0.0), "constant", "2 value", X.masked_fill(MASK, 1.0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_change(call: tuple[Any, ...], kind: str, new: str, need: torch.Tensor) -> None:
    assert torch.equal(_tell(*call)[f"graph: {kind}", new], need)


@pytest.mark.parametrize(("new", "need"), [("nothing is done", X), ("aten.div_.Tensor", X / Y)])
def test_what_is_written_in_place_is_changed_in_place(new: str, need: torch.Tensor) -> None:
    x = X.clone()
    (result,) = (run for _, text, run in changes_of(Call.of(aten.mul_.Tensor, (x, Y), {})) if text == new)
    assert result() is x
    assert torch.equal(x, need)


@pytest.mark.parametrize(("new", "need"), [("self", X), ("other", Y), ("rounded to half as many bits", X * Y)])
def test_what_is_written_into_an_operand_is_changed_there(new: str, need: torch.Tensor) -> None:
    out = X.clone()
    (result,) = (run for _, text, run in changes_of(Call.of(aten.mul.out, (out, Y), {"out": out})) if text == new)
    assert result() is out
    assert torch.equal(out, need)


def test_what_computes_nothing_is_not_changed() -> None:
    assert not _tell(aten.view.default, X, [4])
    assert not _tell(aten.clone.default, X)


def _mutants(run: Any) -> list[Mutant]:
    places: dict[Place, set[tuple[str, str]]] = {}
    with note_places(places):
        run()
    return graph_mutants(places)


def _hessians() -> torch.Tensor:
    def loss(row: torch.Tensor) -> torch.Tensor:
        return (softmax(row, 0) * Y[0]).sum()

    result: torch.Tensor = torch.func.vmap(torch.func.jacrev(torch.func.grad(loss)))(X)
    return result


def test_places_are_seen_in_kernels_in_derivatives_and_under_transforms() -> None:
    assert {(m.file, m.function) for m in _mutants(lambda: trace(X))} == {("linalg/trace.py", "_sums")}
    deep = _mutants(_hessians)
    assert ("softmax/expressions.py", "softmax_gradient") in {(m.file, m.function) for m in deep}
    assert all(m.in_graph for m in deep)
    assert len({m.key for m in deep}) == len(deep)


def _tangent_of_one_term() -> torch.Tensor:
    """Its other term has no tangent, for which torch multiplies a ZeroTensor by -2."""
    result: torch.Tensor = torch.func.jvp(lambda x: torch.sub(x, Y, alpha=2), (X,), (X,))[1]
    return result


def test_a_tangent_without_memory_ends_no_process() -> None:
    def judge() -> dict[str, Any]:
        with note_places({}):
            return {"tangent": _tangent_of_one_term().tolist()}

    assert in_copy(judge) == {"tangent": X.tolist()}


@pytest.mark.parametrize("op", ["trace", "softmax"])
def test_a_kept_mode_is_no_change_of_the_process(op: str) -> None:
    with note_places({}):
        assert run_cell(Cell(op, "PURE", "float32", "cpu", "opassay"), SETTINGS).outcome == "verified"


def _exchanged() -> Mutant:
    wanted = ("softmax_gradient", "aten.sub.Tensor", "operands exchanged")
    (result,) = (m for m in _mutants(_hessians) if (m.function, m.old, m.new) == wanted)
    return result


def test_a_planted_mutant_is_refused_and_then_gone() -> None:
    mutant, right = _exchanged(), _hessians()
    second, value = (Cell("softmax", code, "float32", "cpu", "opassay") for code in ("ORD2", "FWD"))
    calls: list[None] = []
    with change_graph(mutant, lambda: calls.append(None)):
        assert not torch.equal(_hessians(), right)
        assert calls
        assert run_cell(second, SETTINGS).outcome in KILLING
        assert run_cell(value, SETTINGS).outcome == "verified"
    assert torch.equal(_hessians(), right)
    with change_graph(Mutant(**{**mutant.data(), "statement": "elsewhere"})):
        assert run_cell(second, SETTINGS).outcome == "verified"


def test_a_line_of_the_table_about_the_graph_is_stale_where_the_function_is_gone() -> None:
    mutant = _exchanged()
    line = equivalents.Equivalent(mutant.file, mutant.function, mutant.old, (mutant.new,), "Told.", "g - total")
    assert equivalents.why_equivalent(mutant, [line]) == "Told."
    text = [Mutant(**{**mutant.data(), "kind": "operator", "old": "a + b"})]
    assert equivalents.stale([line], text) == []
    assert equivalents.stale([line], []) == [line]


class _Open(dispatching.TorchDispatchMode):
    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return operation(*args, **(kwargs or {}))


def test_a_kept_mode_outlives_a_cell() -> None:
    make: Callable[[], Any] = _Open  # its base has no types
    mode = make()
    with hold_mode(mode):
        assert run_cell(Cell("trace", "FWD", "float32", "cpu", "opassay"), SETTINGS).outcome == "verified"
        assert dispatching._get_current_dispatch_mode_stack() == [mode]
    assert dispatching._get_current_dispatch_mode_stack() == []
