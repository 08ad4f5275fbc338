"""Kinds of kernels that are written today, with right ones and mistakes, which `../../kernel_kinds.py` judges."""

from . import attending, finishing, indexed, packed, ragged, recurring, routing, updating, wording

KINDS = (
    *attending.KINDS, *routing.KINDS, *recurring.KINDS, *updating.KINDS, *finishing.KINDS, *wording.KINDS,
    *packed.KINDS, *ragged.KINDS, *indexed.KINDS,
)  # fmt: skip
