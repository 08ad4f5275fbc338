"""What of opassay sees a bug, as a claim that is run: it refuses the fault, and accepts what is right.

A claim has up to three functions of one signature: `actual`, what the library does; `planted`, a few lines that behave
as the bug did; and `right`, which means the same and has no fault. Where the bug is present, the actual function has to
be refused; where it is fixed, it has to be accepted. The planted one has to be refused in any case, and the right one
accepted. One of each shows a claim: neither a deaf question nor one that refuses everything passes for a sharp one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .running import FIXED, PRESENT

#: The code of a subject that raised on a valid input.
RAISED = "OA105"


@dataclass(frozen=True)
class Holding:
    """Whether a claim holds, and what was said of each function that was asked about.

    Attributes:
        holds: None where it cannot be shown here, because a function that is to be refused, or one that is to be
            accepted, is missing: a bug is fixed in this version, and nothing is planted; a library is not installed.
        text: of each function, whether it was accepted or refused, and by what.
    """

    holds: bool | None
    text: str


@dataclass(frozen=True)
class Answer:
    """What opassay says of one function: whether it is refused, and by which question and code."""

    is_refusal: bool
    text: str


Asks = Callable[[Callable[..., Any]], Answer]


@dataclass(frozen=True)
class Claim:
    """One question of opassay about up to three functions.

    Attributes:
        title: which question, for the page. ask: (function) -> `Answer`.
        actual, fault, right: see the module.
    """

    title: str
    ask: Asks
    actual: Callable[..., Any] | None
    fault: Callable[..., Any] | None
    right: Callable[..., Any] | None

    def holds(self, state: int) -> Holding:
        """Whether the claim holds for a bug in this state, an exit code of `running`."""
        wanted = [("planted", self.fault, True), ("right", self.right, False)]
        if state in (FIXED, PRESENT):
            wanted.insert(0, ("actual", self.actual, state == PRESENT))
        answers = [(name, self.ask(call), wrong) for name, call, wrong in wanted if call is not None]
        message = "; ".join(f"{name} {answer.text}" for name, answer, _ in answers)
        if any(answer.is_refusal != wrong for _, answer, wrong in answers):
            return Holding(False, message)
        return Holding(True if {wrong for _, _, wrong in answers} == {True, False} else None, message)


@dataclass(frozen=True)
class Gap:
    """A bug that nothing sees, with the reason in one sentence, and the question that came nearest to it."""

    why: str
    attempt: Claim | None = None

    def holds(self, state: int) -> Holding:
        """A gap is closed, and no longer true, once what was tried refuses the fault."""
        if self.attempt is None:
            return Holding(True, "nothing was tried")
        answer = self.attempt.holds(state)
        return Holding(answer.holds is not True, answer.text)


def assess(
    question: str,
    spec: Callable[..., Any],
    inputs: Sequence[Any],
    actual: Callable[..., Any] | None = None,
    fault: Callable[..., Any] | None = None,
    right: Callable[..., Any] | None = None,
    contract: str = "torch",
) -> Claim:
    """A claim of one question of `opassay.judge`.

    Args:
        question: a code of `opassay judge`. spec: as there: plain PyTorch, or a formula in NumPy.
        inputs: arguments of one call. actual, fault, right: see the module; the spec is right where it is PyTorch.
        contract: the terms.
    """

    def ask(call: Callable[..., Any]) -> Answer:
        from opassay import judge

        judgement = judge(call, spec, tuple(inputs), questions=[question], contract=contract)
        if judgement.error:
            raise RuntimeError(f"{question}: {judgement.error}")
        if not judgement.causes:
            finding = judgement.findings[0]
            if str(finding.outcome) not in ("verified", "weak"):
                raise RuntimeError(f"{question}: {finding.outcome}: {finding.text}")
            return Answer(False, "accepted")
        wrong = judgement.causes[0].wrong
        return _refusal(question, "" if wrong is None else str(wrong.code), str(wrong))

    return Claim(f"`judge` {question}", ask, actual, fault, right)


def ask_property(
    property: str,
    reference: Callable[..., Any],
    shapes: Mapping[str, Sequence[int | str]],
    actual: Callable[..., Any] | None = None,
    fault: Callable[..., Any] | None = None,
    right: Callable[..., Any] | None = None,
    at: Sequence[Any] = (),
    dtype: str = "float64",
    without: Sequence[str] = (),
    order: int = 3,
) -> Claim:
    """A claim of one property of `opassay.verify_kernel`.

    Args:
        property: its code. reference, shapes: as for `verify_kernel`. actual, fault, right: see the module.
        at: the arguments of the only sample; by default the framework draws its own.
        dtype: of the cell. without: what is not offered. order: of the derivatives that are.
    """

    def ask(call: Callable[..., Any]) -> Answer:
        from opassay import Offer, Settings, custom_kernel, verify

        op = custom_kernel(call, reference, shapes, offer=Offer(without=without, max_order=order), name="candidate")
        if at:
            op = dataclasses.replace(op, samples=only(at))
        settings = Settings("brief", max_examples=3 if not at else 1)
        return _answered(verify(op, properties=(property,), dtypes=(dtype,), settings=settings))

    return Claim(f"property {property}", ask, actual, fault, right)


def custom(
    property: str,
    samples: Sequence[tuple[Any, ...]],
    actual: Any = None,
    fault: Any = None,
    right: Any = None,
    dtype: str = "float64",
) -> Claim:
    """A claim of one property of `opassay.verify_function`, about subclasses of `torch.autograd.Function`.

    Args:
        property: its code. samples: as for `verify_function`. actual, fault, right: see the module.
        dtype: of the cell.
    """

    def ask(call: Callable[..., Any]) -> Answer:
        from opassay import verify_function

        return _answered(verify_function(call, list(samples), properties=(property,), dtypes=(dtype,)))

    return Claim(f"property {property}", ask, actual, fault, right)


def _answered(verdicts: Sequence[Any]) -> Answer:
    (verdict,) = verdicts
    if str(verdict.outcome) == "fail":
        return _refusal(verdict.cell.property, str(verdict.failure.code), verdict.failure.message)
    if str(verdict.outcome) not in ("verified", "weak"):
        raise RuntimeError(f"{verdict.cell.property}: {verdict.outcome}: {verdict.reason}")
    return Answer(False, "accepted")


def _refusal(question: str, code: str, text: str) -> Answer:
    """A refusal; a function that raised has not shown the fault, but broke."""
    if code == RAISED:
        raise RuntimeError(f"{question}: {text}")
    return Answer(True, f"refused by {question} ({code})")


def only(args: Sequence[Any]) -> Callable[..., Any]:
    """Samples of an op that are these arguments, in the dtype of the cell."""
    from hypothesis import strategies as st

    from opassay import Draft

    def samples(dtype: str, kind: str = "ordinary") -> Any:
        return st.just(Draft(lambda rng: tuple(_cast(each, dtype) for each in args), "as given"))

    return samples


def _cast(value: Any, dtype: str) -> Any:
    floating = isinstance(value, torch.Tensor) and value.dtype.is_floating_point
    return value.to(getattr(torch, dtype)).clone() if floating else value
