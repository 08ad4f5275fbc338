"""Other sizes: what a reading of one costs is known before, and what torch alone shows is not lost by that."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from opassay.oracles.specs.work import WorkCounter, Workload
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates import workload
from opassay.properties.candidates.arguments import CallArguments, State
from opassay.properties.candidates.judgement import Judgement
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.specification import Specification


def _sizes(candidate: Callable[..., Tensor], spec: Callable[..., Tensor], *inputs: Tensor) -> Judgement:
    return judge(candidate, spec, inputs, questions=["FWD:given", "SIZE:sizes"], seed=0)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _loop(x: Tensor, last: int = 10**6) -> Tensor:
    h, rows = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        h = torch.tanh(x[t] + 0.5 * h) if t < last else h
        rows.append(h)
    return torch.stack(rows)


def _attention(q: Tensor, k: Tensor, v: Tensor, last: int = 10**6) -> Tensor:
    scores = q @ k[:, :last].transpose(-1, -2)
    return torch.softmax(scores, -1) @ v[:, :last]


def _attention_in_parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2)
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (e @ v) / e.sum(-1, keepdim=True)


@pytest.mark.slow
def test_a_recurrent_layer_counts_as_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, traced_at, nodes = nn.LSTM(3, 2, batch_first=True).eval(), Specification.traced_at, []

    def counted(spec: Specification, arguments: CallArguments, state: State) -> object:
        trace = traced_at(spec, arguments, state)
        nodes.append(len(trace.graph.graph.nodes))
        return trace

    monkeypatch.setattr(Specification, "traced_at", counted)
    _sizes(layer, layer, torch.randn(2, 3, 3, generator=_generator()))
    assert max(nodes) < 2 * workload.OPERATIONS


@pytest.mark.fast_cases("33")
@pytest.mark.parametrize("last", [10, 33])
def test_a_loop_that_ends_after_some_steps_is_refused(last: int) -> None:
    x = torch.randn(5, 2, 3, generator=_generator())
    judgement = _sizes(lambda x: _loop(x, last), _loop, x)
    assert [cause.question for cause in judgement.causes] == ["SIZE:sizes"], judgement


@pytest.mark.parametrize("last", [33, 300])
def test_attention_to_the_first_keys_alone_is_refused(last: int) -> None:
    q, k, v = (torch.randn(2, 12, 4, generator=_generator()) for _ in range(3))
    judgement = _sizes(lambda q, k, v: _attention(q, k, v, last), _attention, q, k, v)
    assert [cause.question for cause in judgement.causes] == ["SIZE:sizes"], judgement


def test_attention_in_parts_is_accepted_and_the_largest_size_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read, sized = Specification.read, []

    def noted(spec: Specification, arguments: CallArguments, *rest: object) -> object:
        sized.append(max(arguments.tensors[0].shape))
        return read(spec, arguments, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Specification, "read", noted)
    q, k, v = (torch.randn(16, 12, 4, generator=_generator()) for _ in range(3))
    judgement = _sizes(_attention_in_parts, _attention, q, k, v)
    assert not judgement.causes, judgement
    assert 12 < max(sized) < 8193, sized


def test_a_result_in_memory_that_a_later_call_writes_is_held_as_it_was_given() -> None:
    buffers: dict[int, Tensor] = {}

    def in_one_buffer(x: Tensor) -> Tensor:
        buffer = buffers.setdefault(x.shape[1], torch.empty(2**17))
        result = buffer[: x.numel()].view(x.shape)
        return torch.mul(x, 2.0, out=result) if x.shape[1] > 64 else x * 2.0

    judgement = _sizes(in_one_buffer, lambda x: x * 2.0, torch.randn(3, 5, generator=_generator()))
    assert not judgement.causes, judgement


def _slowly(x: Tensor) -> Tensor:
    """A softmax, an element after another."""
    rows = []
    for row in x:
        powers = [torch.exp(element - row.amax()) for element in row]
        total = torch.stack(powers).sum()
        rows.append(torch.stack([power / total for power in powers]))
    return torch.stack(rows)


@pytest.mark.slow
def test_a_candidate_far_slower_than_its_spec_is_asked_fewer_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_SECONDS", 0.5)
    x = torch.randn(6, 24, generator=_generator())
    judgement = judge(_slowly, lambda x: torch.softmax(x, -1), [x], questions=["SIZE:sizes", "VJP:grad"], seed=0)
    assert not judgement.causes
    assert all("calls at other sizes, for which" in finding.left_out for finding in judgement.findings), judgement
    quick = _sizes(lambda x: torch.exp(torch.log_softmax(x, -1)), lambda x: torch.softmax(x, -1), x)
    assert not any(finding.left_out for finding in quick.findings)


def test_what_is_left_out_hides_no_fault_of_small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_SECONDS", 0.5)

    def candidate(x: Tensor) -> Tensor:
        return _slowly(x) if x.shape[1] % 8 == 0 else torch.cat([_slowly(x[:, :-1]), 0 * x[:, -1:]], 1)

    x = torch.randn(6, 24, generator=_generator())
    judgement = _sizes(candidate, lambda x: torch.softmax(x, -1), x)
    assert [cause.question for cause in judgement.causes] == ["SIZE:sizes"]


@pytest.mark.slow
@pytest.mark.parametrize("spec", [F.conv2d, F.conv_transpose2d, F.grouped_mm])
def test_torch_against_itself_holds_at_other_sizes(spec: Callable[..., Tensor]) -> None:
    # A batch without elements cannot be read everywhere, rows in no group have no value, and torch's own backward of a
    # grouped product refuses an expanded cotangent: none of it is the candidate's fault.
    inputs = [torch.randn(shape, generator=_generator()) for shape in ((3, 3, 7, 6), (3, 3, 3, 2))]
    if spec is F.grouped_mm:
        inputs = [torch.randn(shape, generator=_generator()).bfloat16() for shape in ((8, 16), (2, 16, 8))]
        spec = functools.partial(spec, offs=torch.tensor([4, 8], dtype=torch.int32))
    judgement = judge(spec, spec, inputs, questions=["FWD:given", "SIZE:sizes", "VJP:grad"], seed=0)
    assert {finding.outcome for finding in judgement.findings} == {Outcome.VERIFIED}, judgement


def test_a_convolution_counts_the_products_that_its_reading_has() -> None:
    counter = WorkCounter(Workload(*[math.inf] * 4))
    with counter:
        F.conv_transpose1d(torch.ones(2, 3, 5), torch.ones(3, 4, 7), stride=2)  # 2 x 4 x 15 sums of 3 x 7 products
        F.conv1d(torch.ones(2, 4, 9), torch.ones(6, 2, 3), groups=2)  # 2 x 6 x 7 sums of 2 x 3 products
    assert counter.work.multiplications == 120 * 21 + 84 * 6
