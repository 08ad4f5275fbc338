"""Mutants: what is changed and what is left alone, how one gets into a running process, and what it leaves there."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import torch

from opassay.impl import layer_norm
from opassay.impl.softmax import expressions
from opassay.oracles.verdicts.verdict import Cell
from opassay.properties.table import PROPERTIES, Property, Where
from workshop.mutation import campaign, equivalents
from workshop.mutation.asking import ORDER, PRECEDENCE, Reach, in_order_of_precedence
from workshop.mutation.mutants import Mutant, find_changes, mutants_of
from workshop.mutation.planting import SameProgramError, plant_mutant, source
from workshop.mutation.reach import note_lines

TEXT = '''
"""Says."""
import torch
SIZE = 1 << 4

def op(x, dim=-1, *, names: tuple[int, ...] = (1, 2)):
    """Says 1 + 1."""
    if x is None or not dim:
        raise ValueError(f"got {x + 1}, need {'more' + 'less'}")
    total: "1 + 1" = x.exp().sum(dim, keepdim=True)
    return [y / total for y in x if y > 0]
'''


def _tell(text: str = TEXT) -> set[tuple[str, str, str]]:
    return {(mutant.kind, mutant.old, mutant.new) for mutant in mutants_of("planted/op.py", text)}


def test_every_kind_of_mistake_is_made() -> None:
    text = _tell()
    for change in (
        ("error dropped", "raise ValueError(f\"got {x + 1}, need {'more' + 'less'}\")", "pass"),
        ("condition always true", "x is None or not dim", "True"),
        ("condition dropped", "x is None or not dim", "x is None"),
        ("and for or", "x is None or not dim", "x is None and (not dim)"),
        ("comparison", "x is None", "x is not None"),
        ("sign or negation dropped", "not dim", "dim"),
        ("call dropped", "x.exp()", "x"),
        ("function", "x.exp()", "x.expm1()"),
        ("function", "x.exp().sum(dim, keepdim=True)", "x.exp().mean(dim, keepdim=True)"),
        ("keyword dropped", "x.exp().sum(dim, keepdim=True)", "x.exp().sum(dim)"),
        ("constant", "True", "False"),
        ("operator", "y / total", "y * total"),
        ("right operand dropped", "y / total", "y"),
        ("left operand dropped", "y / total", "total"),
        ("comparison", "y > 0", "y >= 0"),
        ("constant", "0", "1"),
    ):
        assert change in text


def test_texts_of_errors_annotations_defaults_and_imports_are_left_alone() -> None:
    assert not {(old, new) for _, old, new in _tell() if old in ("x + 1", "'more' + 'less'", "1 << 4", "-1", "1 + 1")}


def test_a_mutant_keeps_its_name_when_lines_are_added_above() -> None:
    before, after = ({m.key: m for m in mutants_of("planted/op.py", text)} for text in (TEXT, "\n\nimport math" + TEXT))
    assert before.keys() == after.keys()
    assert len({mutant.line - before[key].line for key, mutant in after.items()}) == 1


def test_every_changed_file_can_be_compiled() -> None:
    count = len(mutants_of("planted/op.py", TEXT))
    for number in range(count):
        tree = ast.parse(TEXT)
        _, spot, node = list(find_changes("planted/op.py", tree))[number]
        spot.put(node)
        compile(tree, "planted", "exec")


def _mutant(file: str, function: str, old: str, new: str) -> Mutant:
    results = [
        mutant
        for mutant in mutants_of(file, (campaign.folder() / file).read_text())
        if (mutant.function, mutant.old, mutant.new) == (function, old, new)
    ]
    assert len(results) == 1
    return results[0]


def test_a_planted_mutant_is_there_for_whoever_holds_the_function_and_then_gone() -> None:
    function, x = expressions.moved_output, torch.ones(2, 3)
    right = function(True, x, x, -1)
    with plant_mutant(
        _mutant("softmax/expressions.py", "moved_output", "t - total(p * t, dim)", "t + total(p * t, dim)")
    ):
        assert function(True, x, x, -1).tolist() == (x + 3).tolist()
    assert torch.equal(function(True, x, x, -1), right)


def test_a_closure_that_reads_fewer_variables_is_changed_in_place() -> None:
    # The kernel reads `aten` of the function around it; the mutant does not, and must fit the closure all the same.
    function = "forward_kernel.<locals>.kernel"
    right = "aten(x if dtype is input_dtype else x.to(dtype), dim)"
    with plant_mutant(_mutant("softmax/kernels_cpu.py", function, right, right[5:-6])):
        assert torch.ops.opassay.softmax(torch.zeros(3), 0, None)[0].tolist() == [0.0, 0.0, 0.0]
    assert torch.ops.opassay.softmax(torch.zeros(2), 0, None)[0].tolist() == [0.5, 0.5]


def test_a_closure_is_changed_whose_maker_reads_what_it_does_not() -> None:
    # The method around the function says `super`, for which Python gives it a variable that the function lacks.
    function = "Expression._around_kernel.<locals>.differentiated"
    plain = "[outputs[i] for i in present]"
    attached = f"apply({plain}, *[expressions[i] for i in present])"

    def differentiable_again() -> bool:
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        (first,) = torch.autograd.grad(layer_norm(x, (3,)).square().sum(), x, create_graph=True)
        return first.requires_grad

    assert differentiable_again()
    with plant_mutant(_mutant("operator/expression.py", function, attached, plain)):
        assert not differentiable_again()


def test_a_change_that_is_none_and_a_place_that_is_gone_are_told() -> None:
    mutant = _mutant("softmax/expressions.py", "moved_output", "t - total(p * t, dim)", "t + total(p * t, dim)")
    with pytest.raises(LookupError, match="has no mutant"), plant_mutant(Mutant(**{**mutant.data(), "old": "t - 1"})):
        pass
    whole = source(mutant.file)
    whole._changes[mutant.key] = (whole._changes[mutant.key][0], whole._changes[mutant.key][0].node)
    with pytest.raises(SameProgramError), plant_mutant(mutant):
        pass


def test_the_lines_that_run_are_noted_and_decide_who_is_asked() -> None:
    lines: set[tuple[str, int]] = set()
    with note_lines(lines):
        expressions.moved_output(True, torch.ones(2), torch.ones(2), 0)
    mutant = _mutant("softmax/expressions.py", "moved_output", "t - total(p * t, dim)", "t + total(p * t, dim)")
    reach = Reach()
    ran, other = (Cell("softmax", "FWD", dtype, "cpu", "opassay") for dtype in ("float32", "float64"))
    reach.note(ran, lines)
    reach.note(other, {("softmax/expressions.py", 1)})
    assert reach.cells(mutant) == [ran]
    compiled = Cell("softmax", "COMP", "float32", "cpu", "opassay")
    reach.note(compiled, set())
    assert reach.cells(mutant) == [ran, compiled]


def test_families_share_the_mutants_evenly_and_the_same_seed_chooses_the_same() -> None:
    mutants = [mutant for file in ("norms/a.py", "softmax/b.py") for mutant in mutants_of(file, TEXT)]
    few = campaign.choose_mutants(mutants, campaign.Settings(seed=1, most=5))
    assert [mutant.family for mutant in few] == ["norms"] * 5 + ["softmax"] * 5
    assert few == campaign.choose_mutants(mutants, campaign.Settings(seed=1, most=5))
    assert few != campaign.choose_mutants(mutants, campaign.Settings(seed=2, most=5))


def test_the_table_of_equivalents_fits_the_present_text() -> None:
    table = equivalents.read_equivalents()
    files = {one.file for one in table}
    present = [m for file in sorted(files) for m in mutants_of(file, (campaign.folder() / file).read_text())]
    assert equivalents.stale(table, present) == []


def test_a_stale_line_and_one_without_a_reason_are_told(tmp_path: Path) -> None:
    line = {"file": "planted/op.py", "function": "op", "old": "x.exp()", "new": ["x"], "why": "Nobody asks."}
    path = tmp_path / "planted.json"
    path.write_text(json.dumps([line, {**line, "new": ["x.log()"]}]))
    table, mutants = equivalents.read_equivalents(tmp_path), mutants_of("planted/op.py", TEXT)
    assert equivalents.stale(table, mutants) == table[1:]
    (mutant,) = (m for m in mutants if (m.old, m.new) == ("x.exp()", "x"))
    assert equivalents.why_equivalent(mutant, table) == "Nobody asks."
    for wrong in ({**line, "why": " "}, {**line, "new": []}, {**line, "because": "x"}):
        path.write_text(json.dumps([wrong]))
        with pytest.raises(ValueError, match="line 1"):
            equivalents.read_equivalents(tmp_path)


def test_a_new_property_is_asked_of_mutants_after_those_that_most_mistakes_show_in() -> None:
    new = Property("NEW", "new")
    assert in_order_of_precedence((new, *PROPERTIES.values()))[-1] == "NEW"
    assert set(ORDER) == {code for code, row in PROPERTIES.items() if row.where is not Where.PREPARED}
    assert (ORDER[0], ORDER[-1]) == ("FWD", "COMP")
    assert sorted(PRECEDENCE) == sorted(ORDER), "a property has no place in the order of mutants, or several"
