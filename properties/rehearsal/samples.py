"""The samples of cells on the rehearsal device: those of kernels as PTX, for a large one, executed, takes minutes."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any


def install() -> None:
    """Have cells on the device draw no sample with more elements than the cells of subject "ptx" have."""
    from ..declaring import strategies
    from ..engine import cells, draws

    original = cells.open_cell

    @functools.wraps(original)
    def open_cell(cell: Any, light: bool, *more: Any, **named: Any) -> Any:
        opened = original(cell, light, *more, **named)
        usual = opened.question.sampling
        if cell.device != "cuda":
            return opened
        sampling = replace(usual, large=0.0 if light else usual.large, most=min(usual.most, cells.EXECUTED_MOST))
        return replace(opened, question=replace(opened.question, sampling=sampling))

    setattr(cells, "open_cell", open_cell)  # noqa: B010 (a function that the module has)
    # No thread of the host shares a sum of a kernel, so that such a sum need not be long.
    setattr(draws, "SINGLE_SUM", cells.EXECUTED_MOST // 4)  # noqa: B010
    bands = tuple(band for band in strategies.SIZE_BANDS if band[-1] <= cells.EXECUTED_MOST)
    setattr(strategies, "SIZE_BANDS", bands)  # noqa: B010
