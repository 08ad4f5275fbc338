"""Memory: strides, alignment, and memory that was not written."""

from __future__ import annotations

import functools
from dataclasses import replace

from ..arguments import CallArguments, Tensor
from ..finding import Finding, not_asked
from ..host.calls import Manner
from ..layouts import MemoryLayout
from ..questions import Standing
from ..session import Asking, Session


def placed(code: str, manner: Manner, refusable: bool, session: Session) -> Finding:
    """The given values, otherwise placed. A candidate may refuse that, but must not compute something else."""
    # Memory that is not written may be the tail of the given size, so POISON asks for all of a large problem.
    alone = manner is not Manner.POISONED
    return session.values(code, session.given, manner=manner, refusable=refusable, alone=alone)


def strides(session: Session) -> Finding:
    """STRIDES: values in every layout in turn.

    A candidate may refuse a layout, but must not compute something else.
    """
    if not any(t.ndim for t in session.given.tensors):
        return not_asked("STRIDES", "no argument has an axis")
    findings = []
    for layout in MemoryLayout:
        arguments = _equal_along_rows(session.given) if layout is MemoryLayout.EXPANDED else session.given
        finding = session.values("STRIDES", arguments, refusable=True, alone=True, layout=layout)
        if finding.standing is Standing.WRONG and finding.wrong is not None:
            return replace(finding, wrong=finding.wrong.with_lines(f"layout     {layout}"))
        findings.append((layout, finding))
    return _sum_up(findings)


def _sum_up(findings: list[tuple[MemoryLayout, Finding]]) -> Finding:
    """One finding of all layouts: refused where each of them was, and which were, where some were."""
    refused = [layout for layout, finding in findings if finding.standing is Standing.REFUSED]
    others = [finding for _, finding in findings if finding.standing is not Standing.REFUSED]
    if not others:
        return findings[0][1]
    left_out = f"the candidate refuses {', '.join(refused)}" if refused else ""
    judged, elements = sum(each.judged for each in others), sum(each.elements for each in others)
    return replace(others[0], judged=judged, elements=elements, left_out=left_out)


def _equal_along_rows(arguments: CallArguments) -> CallArguments:
    """The arguments with the values of the first index along axis 0 at all others."""

    def first_row(tensor: Tensor) -> Tensor:
        return tensor[:1].expand(tensor.shape).clone() if tensor.ndim and tensor.numel() else tensor

    return arguments.changed(first_row)


ASKING: dict[str, Asking] = {
    "STRIDES": strides,
    "ALIGN": functools.partial(placed, "ALIGN", Manner.SHIFTED, True),
    "POISON": functools.partial(placed, "POISON", Manner.POISONED, False),
}
