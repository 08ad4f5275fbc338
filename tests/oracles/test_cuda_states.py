"""The random states of GPUs are those of the process: seeded with the others, compared, and there once CUDA starts."""

from __future__ import annotations

import pytest
import torch

from opassay.oracles.process.settings import SampleSettings, seeded


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
