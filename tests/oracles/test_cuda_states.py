"""GPUs as a part of the process: their random states are seeded and compared, their work is waited for."""

from __future__ import annotations

import pytest
import torch

from opassay.oracles import process
from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import OWN
from opassay.oracles.process.settings import SampleSettings, seeded
from opassay.oracles.verdicts.violation import Violation
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.host.calls import CandidateCall
from opassay.properties.candidates.host.host import CandidateHost

from .planted_ops import declared, scaled


class StandInCuda:
    """Two generators in the place of those of two GPUs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = False
        self.generators = tuple(torch.Generator().manual_seed(7) for _ in range(2))
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: self.running)
        monkeypatch.setattr(torch.cuda, "default_generators", self.generators)

    def states(self) -> list[bytes]:
        return [generator.get_state().numpy().tobytes() for generator in self.generators]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StandInCuda:
    return StandInCuda(monkeypatch)


def test_that_cuda_starts_in_a_call_is_no_change(cuda: StandInCuda) -> None:
    settings = SampleSettings()
    before = settings.read()
    cuda.running = True
    assert settings.restored(before, compiled=False) == []


def test_a_random_state_of_a_gpu_that_a_call_changes_is_found_and_put_back(cuda: StandInCuda) -> None:
    cuda.running = True
    settings, states = SampleSettings(), cuda.states()
    before = settings.read()
    torch.rand(1, generator=cuda.generators[1])
    assert settings.restored(before, compiled=False) == ["random state of torch on CUDA: changed"]
    assert cuda.states() == states


def test_gpus_are_seeded_with_the_other_generators(cuda: StandInCuda) -> None:
    cuda.running = True
    outside, inside = cuda.states(), []
    for number in (1, 1, 2):
        with seeded(number):
            inside.append(cuda.states())
        assert cuda.states() == outside
    assert inside[0] == inside[1]
    assert inside[0] != inside[2]
    assert outside not in inside


def test_what_goes_wrong_after_a_call_has_returned_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    on_cpu, on_gpu = (Judge(declared(scaled), OWN, contract("float32"), device) for device in ("cpu", "cuda"))
    assert on_cpu.call(lambda: 1) == 1
    with pytest.raises(Violation, match="scaled the call: raised RuntimeError on valid input") as result:
        on_gpu.call(lambda: 1, what="the call")
    assert "device-side assert" in result.value.message


def test_an_error_of_a_candidates_work_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str) -> None:
        raise RuntimeError(f"CUDA error: an illegal memory access on {device}")

    monkeypatch.setattr(process, "await_work", fail)
    host = CandidateHost("late", torch.neg)
    answer = host.ask(CandidateCall.of(CallArguments.of((torch.ones(2),))))
    assert answer.raised.startswith("RuntimeError: CUDA error: an illegal memory access on cpu")
