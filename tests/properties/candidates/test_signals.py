"""A signal during a call ends the judge with what the caller's handler raises, and is no candidate's fault."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.functions.offer import Offer


class OutOfTimeError(Exception):
    """What a test's handler of SIGALRM raises."""


class GaveUp(BaseException):
    """The same as pytest has it: no `Exception`."""


@contextlib.contextmanager
def _handler(number: signal.Signals, error: type[BaseException]) -> Iterator[None]:
    def handle(*_: object) -> None:
        raise error

    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


def _alarmed(number: signal.Signals, swallows: bool) -> Callable[[Tensor], Tensor]:
    """ReLU, at whose third call a signal comes, which it may catch."""
    calls = []

    def candidate(x: Tensor) -> Tensor:
        calls.append(x)
        if len(calls) == 3:
            with contextlib.suppress(*[BaseException] * swallows):
                signal.raise_signal(number)
        return torch.relu(x)

    return candidate


_SIGNALS = [
    (signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, OutOfTimeError), (signal.SIGALRM, GaveUp),
    (signal.SIGTERM, SystemExit),
]  # fmt: skip


@pytest.mark.parametrize(("number", "error"), _SIGNALS)
@pytest.mark.parametrize("swallows", [False, True])
def test_a_signal_ends_a_judgement_without_a_verdict(
    number: signal.Signals, error: type[BaseException], swallows: bool
) -> None:
    with _handler(number, error):
        with pytest.raises(error):
            judge(
                _alarmed(number, swallows),
                torch.relu,
                (torch.randn(3, 4),),
                questions=["FWD:given", "CALLS:again", "FWD:seeds"],
            )
        assert signal.getsignal(number).__name__ == "handle"  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["judge", "bound", "assert_conforms"])
@pytest.mark.parametrize(("number", "error"), _SIGNALS)
def test_a_signal_in_the_spec_is_no_fault_of_the_spec(
    number: signal.Signals, error: type[BaseException], where: str
) -> None:
    def spec(x: Tensor) -> Tensor:
        signal.raise_signal(number)
        return torch.relu(x)

    x = torch.randn(3, 4)
    calls: dict[str, Callable[[], Any]] = {
        "judge": lambda: judge(torch.relu, spec, (x,)),
        "bound": lambda: opassay.bound(spec, x),
        "assert_conforms": lambda: opassay.assert_conforms(torch.relu(x), spec, x),
    }
    with _handler(number, error), pytest.raises(error):
        calls[where]()


def test_a_signal_in_a_backward_ends_a_judgement() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            signal.raise_signal(signal.SIGALRM)
            return 2 * g

    with _handler(signal.SIGALRM, OutOfTimeError), pytest.raises(OutOfTimeError):
        judge(Twice.apply, lambda x: 2 * x, (torch.randn(3, 4, requires_grad=True),), questions=["VJP:grad"])


@pytest.mark.parametrize(("number", "error"), _SIGNALS)
def test_a_signal_in_a_kernel_ends_its_verification(number: signal.Signals, error: type[BaseException]) -> None:
    with _handler(number, error), pytest.raises(error):
        opassay.verify_kernel(
            _alarmed(number, True), torch.relu, {"x": ("n", 4)}, offer=Offer(max_order=0), properties=["FWD"]
        )


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OutOfTimeError])
def test_what_a_candidate_raises_by_itself_is_its_answer(error: type[BaseException]) -> None:
    def candidate(x: Tensor) -> Tensor:
        raise error

    judgement = judge(candidate, torch.relu, (torch.randn(3, 4),), questions=["FWD:given"])
    assert judgement.verdict is Ruling.REJECTED
    assert f"raised {error.__name__}" in judgement.causes[0].text


def test_a_judgement_in_another_thread_leaves_signals_to_the_main_one() -> None:
    started, ended = threading.Event(), threading.Event()

    def candidate(x: Tensor) -> Tensor:
        started.set()
        ended.wait()
        return torch.relu(x)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(judge, candidate, torch.relu, (torch.randn(3, 4),), questions=["FWD:given"])
        started.wait()
        with _handler(signal.SIGINT, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            judge(
                _alarmed(signal.SIGINT, True), torch.relu, (torch.randn(3, 4),), questions=["FWD:given", "CALLS:again"]
            )
        ended.set()
        assert other.result().verdict is Ruling.ACCEPTED
