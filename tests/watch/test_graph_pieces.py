"""The smallest piece of a compiled graph that is outside, and its program, which needs torch alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from opassay.oracles.op.script import NoProgram
from opassay.properties.watch import graph_pieces, graph_programs
from opassay.properties.watch.call import DispatcherCall
from opassay.properties.watch.compiled import GraphRegion
from opassay.properties.watch.graph_pieces import PieceSearch, reduce_items
from opassay.properties.watch.graph_programs import write_program, write_programs
from opassay.properties.watch.judging import CallJudge
from opassay.properties.watch.recorder import Recorder

Tensor = torch.Tensor


class _Faulty(torch.fx.Interpreter):
    """What a wrong compiler makes of a graph: tanh is wrong beside a positive number."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().call_function(target, args, kwargs)
        wrong = torch.where((args[0] > 0).any(), 1.001, 1.0) if target == torch.ops.aten.tanh.default else 1
        return value * wrong if isinstance(value, Tensor) else value


def _backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return lambda *args: _Faulty(graph).run(*args)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, backend=_backend, fullgraph=True, dynamic=False)
    return compiled


def _function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    spread, mean = torch.var_mean(x @ y, 1, keepdim=True)
    middle = torch.tanh(torch.sin((x @ y - mean) / spread)) * 3
    return middle.exp().view(-1), (middle + 1).reshape(4, 8)


def _call(x: Tensor, y: Tensor) -> DispatcherCall:
    """A call of the graph of `_function` as the wrong compiler makes it."""
    graph, recorder = make_fx(_function)(x, y), Recorder()
    recorder.start()
    try:
        recorder.record_region(GraphRegion("graph", graph), (x, y), {}, lambda: _Faulty(graph).run(x, y))
    finally:
        recorder.stop()
    (call,) = [each for each in recorder.store.calls if each.name == "graph"]
    return call


def _operands() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 6), torch.randn(6, 8)


def _targets(graph: torch.fx.GraphModule) -> list[Any]:
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def test_what_is_enough_is_found_by_halves() -> None:
    tries: list[list[int]] = []

    def is_enough(some: list[int]) -> bool:
        tries.append(some)
        return {5, 41} <= set(some)

    assert reduce_items(list(range(64)), is_enough) == [5, 41]
    assert len(tries) <= 2 * 64
    assert reduce_items([3], lambda _: True) == [3]


def test_a_fault_ends_with_the_operation_that_has_it_and_the_elements_that_show_it() -> None:
    call, judge = _call(*_operands()), CallJudge()
    assert judge.hold(call).wrong is not None
    piece = PieceSearch(call, judge, _compile).find()
    assert piece is not None
    assert _targets(piece.graph) == [torch.ops.aten.tanh.default]
    # The worst element is negative, and only right where it is alone.
    assert [x.numel() for x in piece.inputs] == [2]
    assert piece.outlier.ratio > 1
    assert piece.about.startswith("1 operation of ")


def test_a_right_graph_has_no_piece() -> None:
    assert PieceSearch(_call(*_operands()), CallJudge(), lambda function: function).find() is None


def test_a_limit_and_an_interrupt_leave_the_smallest_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    call = _call(*_operands())
    piece = PieceSearch(call, CallJudge(), _compile, tries=2).find()
    assert piece is not None
    assert piece.about.endswith("2 compilations, where the limit of compilations or of seconds ended the search")
    assert PieceSearch(call, CallJudge(), _compile, seconds=0).find() is None

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(graph_pieces, "reduce_items", interrupt)
    piece = PieceSearch(call, CallJudge(), _compile).find()
    assert piece is not None
    assert piece.about.endswith("an interrupt ended the search")


def _run_in_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit status of a program whose compiler is the wrong one."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: lambda *x: _Faulty(make_fx(function)(*x)).run(*x))
    with pytest.raises(SystemExit) as end:
        exec(compile(path.read_text(), str(path), "exec"), {"__file__": str(path)})
    return end.value.code


@pytest.mark.parametrize("form", ["numbers", "drawn", "file"])
def test_a_program_has_its_inputs_and_its_bound(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search = PieceSearch(_call(*_operands()), CallJudge(), _compile)
    if form != "numbers":
        monkeypatch.setattr(search, "_narrow", lambda: None)
        monkeypatch.setattr(graph_pieces, "READABLE", 1)
    if form == "file":
        monkeypatch.setattr(graph_pieces, "_SEEDS", 0)
        monkeypatch.setattr(graph_programs, "_IN_TEXT", 1)
    piece = search.find()
    assert piece is not None
    ended = subprocess.CompletedProcess([], 1, stdout="outside")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    path = tmp_path / "piece.py"
    write_program(path, piece, "graph")
    text = path.read_text()
    assert "opassay" not in text
    assert ("randn" in text, "read_bytes" in text) == (form == "drawn", form == "file")
    assert len(list(tmp_path.iterdir())) == 1 + (form == "file")
    with monkeypatch.context() as patch:
        assert _run_in_place(path, patch) is True
    assert repr(piece.outlier.bound) in capsys.readouterr().out


@pytest.mark.slow
def test_a_program_that_does_not_show_the_fault_is_refused(tmp_path: Path) -> None:
    piece = PieceSearch(_call(*_operands()), CallJudge(), _compile).find()
    assert piece is not None
    with pytest.raises(NoProgram, match="In a process of its own"):
        write_program(tmp_path / "piece.py", piece, "graph")
    assert write_programs(tmp_path, {}, CallJudge()) == {}


_PROGRAM = """
import opassay
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
compiled = torch.compile(model, backend=opassay.watched("inductor"))
compiled(torch.randn(128, 16) * 2).square().mean().backward()
"""


@pytest.mark.slow
def test_the_error_function_of_inductor_becomes_a_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_PROGRAM)
    command = [sys.executable, "-m", "opassay", "watch", "train.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    (path,) = (tmp_path / "opassay-report/cases").glob("*.py")
    assert f"python opassay-report/cases/{path.name}" in ended.stdout
    page = (tmp_path / "opassay-report/watch.html").read_text()
    assert path.name in page
    assert "1 operation of " in page
    text = path.read_text()
    assert "torch.ops.aten.erf.default" in text
    assert "opassay" not in text
    assert subprocess.run([sys.executable, path], capture_output=True, check=False).returncode == 1
