"""The call of a file is made and judged again; a file that is none is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from opassay.oracles.verdicts.case import CaseError
from opassay.properties.watch.call import DispatcherCall
from opassay.properties.watch.cases import judge_again, read_case, write_case
from tests.watch.test_recorder import record


def _call(name: str) -> DispatcherCall:
    def program() -> list[torch.Tensor]:
        x = torch.randn(3, 4).t()
        y = x.to(torch.bfloat16)
        return [x.cumsum(0, dtype=torch.float64), y, torch.zeros(3).add_(1), torch.cat([y, y])]

    _, recorder = record(program)
    return next(call for call in recorder.store.calls if call.name == f"aten::{name}")


@pytest.mark.parametrize("name", ["cumsum", "_to_copy", "add_", "cat"])
def test_a_call_is_written_and_read_back(name: str, tmp_path: Path) -> None:
    call = _call(name)
    write_case(tmp_path / "call.bin", call, "torch")
    again, contract = read_case(tmp_path / "call.bin")
    assert (again.op, again.origin, again.switches, contract) == (call.op, call.origin, call.switches, "torch")
    assert again.structure == call.structure
    assert [x.stride() for x in again.tensors] == [x.stride() for x in call.tensors]
    assert [x for x in again.leaves if not isinstance(x, torch.Tensor)] == [
        x for x in call.leaves if not isinstance(x, torch.Tensor)
    ]


def test_results_that_were_wrong_are_told_from_those_of_now(tmp_path: Path) -> None:
    call = _call("cumsum")
    call.results = (call.results[0] * 1.01,)
    write_case(tmp_path / "call.bin", call, "torch")
    before, now = judge_again(tmp_path / "call.bin")
    assert before.wrong is not None
    assert now.wrong is None
    assert now.ratio <= 1


def test_a_file_that_is_no_call_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.bin").write_text("nothing")
    write_case(tmp_path / "cut.bin", _call("cat"), "torch")
    (tmp_path / "cut.bin").write_bytes((tmp_path / "cut.bin").read_bytes()[:-100])
    for name in ("text.bin", "cut.bin"):
        with pytest.raises(CaseError, match=name):
            read_case(tmp_path / name)


def test_an_operation_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    write_case(tmp_path / "call.bin", _call("cat"), "torch")
    content = (tmp_path / "call.bin").read_bytes()
    (tmp_path / "call.bin").write_bytes(content.replace(b"aten.cat.default", b"aten.dog.default"))
    with pytest.raises(CaseError, match="no file of a call"):
        read_case(tmp_path / "call.bin")
