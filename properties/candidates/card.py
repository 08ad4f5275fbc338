"""The card of an output that is not accepted: what a user pastes into an issue.

It says where, computed, exact, how far off, how severe, what was allowed, and the smallest error that could have been
seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...oracles.bound import accept
from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms
from ...oracles.judge.outlier import Outlier, describe_outlier, describe_width, make_outlier, measures_at
from ...oracles.op.declaration import Tensor, dtype_name, to_array
from ...oracles.specs.storage import format_of
from ...oracles.verdicts.verdict import Code


@dataclass(frozen=True)
class Wrong:
    """Why an output is not accepted: a code, a sentence, lines of detail, and the worst element where there is one."""

    code: Code
    title: str
    lines: tuple[str, ...] = ()
    outlier: Outlier | None = None

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self.lines)])

    def with_lines(self, *lines: str) -> Wrong:
        """The same with more lines at its end."""
        return replace(self, lines=(*self.lines, *lines))


def make_card(name: str, computed: Tensor, elements: accept.Elements, accepted: Any, ball: Ball, terms: Terms) -> Wrong:
    """What is wrong with the elements of an output that are outside their accept sets, by the worst of them."""
    outside, values = ~accepted, to_array(computed)
    at = tuple(map(int, elements.worst(accepted)))
    here, dtype = measures_at(elements, at), dtype_name(computed.dtype)
    outlier = make_outlier(name, values, elements, outside, at, here)
    lines = (
        *describe_outlier(outlier, here, format_of(computed.dtype), elements, outside),
        f"allowed    {terms}",
        f"format     {dtype}, sums in {ball.contract.accumulate.name}",
        describe_width(elements, here),
    )
    title = title_of(f"{name}[{', '.join(map(str, at))}]" if at else name)
    if elements.special[at] or not np.isfinite(values[at]):
        return Wrong(Code.SPECIAL, f"{title}: a NaN or an infinity on one side alone", lines, outlier)
    return Wrong(Code.VALUE, f"{title}, {outlier.ratio:.4g} times its bound", lines, outlier)


def title_of(where: str) -> str:
    """The first line of a card about an output or an element."""
    return f"{where} is outside its accept set"
