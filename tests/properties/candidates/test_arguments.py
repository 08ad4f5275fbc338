"""Arguments of a call: whether what they hold is finite, and on which device they are."""

from __future__ import annotations

import math

import pytest
import torch

from opassay.properties.candidates.arguments import CallArguments, device_of
from opassay.properties.candidates.host.calls import CandidateCall, Manner
from opassay.properties.candidates.host.host import CandidateHost
from tests.oracles.stand_in_device import DeviceTensor

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_is_found_wherever_it_is(dtype: torch.dtype, special: float) -> None:
    for size in (1, 100):
        for at in {0, size // 2, size - 1}:
            values = torch.ones(size)
            values[at] = special
            assert not CallArguments.of([torch.ones(3), 2, {"x": values.to(dtype)}]).finite


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float8_e4m3fn], ids=str)
def test_finite_tensors_and_none_at_all(dtype: torch.dtype) -> None:
    largest = torch.tensor([torch.finfo(dtype).max, torch.finfo(dtype).min], dtype=torch.float64).to(dtype)
    assert CallArguments.of([largest, torch.empty(0, 3).to(dtype), torch.arange(3), None, math.inf]).finite
    assert CallArguments.of([]).finite


def test_autocast_is_entered_where_the_tensors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of the machine says nothing of them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    operands = torch.ones(2, 2), torch.ones(2, 2)
    call = CandidateCall.of(CallArguments.of(operands), manner=Manner.AUTOCAST)
    assert CandidateHost("mm", torch.mm).ask(call).outputs[0].dtype is torch.bfloat16
    assert device_of((2.0, *operands)) == "cpu"
    assert device_of((2.0, operands[0], DeviceTensor(operands[1]))) == "cuda"


def test_leaves_have_the_names_of_the_parameters_that_they_go_to() -> None:
    def attend(q: torch.Tensor, /, cache: dict[str, torch.Tensor], *, scale: float = 1.0) -> torch.Tensor:
        return q @ cache["k"] * scale

    q, k = torch.ones(5, 3), torch.ones(3, 9)
    arguments = CallArguments.of((q, {"k": k})).with_names(attend)
    assert [arguments.label(i) for i in range(2)] == ["q", "cache['k']"]
    assert arguments.changed(torch.neg).text == "q: float32[5, 3]; cache['k']: float32[3, 9]"
    assert CallArguments.of({"cache": {"k": k}, "q": q}).with_names(attend).label(1) == "q"
    assert CallArguments.of((q, k)).with_names(lambda *args: args[0]).label(1) == "input 1"
    assert CallArguments.of((q, k)).with_names(torch.matmul).label(1) == "input 1", "whose parameters nobody can read"
