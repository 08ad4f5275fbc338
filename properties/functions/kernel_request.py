"""What is asked of somebody's kernel by its declaration, and what its Triton kernels are compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict

import torch

from ...oracles.bound.terms import terms, terms_of_compiled
from ...oracles.machine.compiling import require_architecture
from ...oracles.machine.ptx.account import ACCOUNT
from ...oracles.op.declaration import EXECUTED, OWN, Op
from ...oracles.op.placement import KernelRequest
from ...reference.missing import nearest_of
from ..table import PROPERTIES

#: The default properties of a kernel: values, gradients, memory, exact data, edges of the domain, frozen operands, a
#: second backward and two graphs alive, and calls in between others.
KERNEL_PROPERTIES = ("FWD", "VJP", "LAYOUT", "SPECIAL", "PURE", "DET", "EMPTY", "DATA", "NEEDS", "WAYS", "CALLS")


class RequestKeywords(TypedDict, total=False):
    """The fields of `KernelRequest`, by name."""

    properties: Sequence[str] | None
    dtypes: Sequence[str | torch.dtype] | None
    device: str
    settings: Any
    compiled: str


def with_request(op: Op, request: RequestKeywords) -> Op:
    """Somebody's kernel with what is asked of it; of a compiled one a fault of a launch counts, even if it caught it.

    Raises:
        TypeError: there is no argument of that name. ValueError: see `verify_kernel`.
    """
    for name in request:
        if name not in RequestKeywords.__annotations__:
            known = ("constants", "sizes", "regimes", "offer", *RequestKeywords.__annotations__)
            raise TypeError(f"{name}: no argument of this name{nearest_of(name, known)}, need {', '.join(known)}")
    words = replace(op.production.request or KernelRequest(), **request)
    op, kernel = op.changed(request=words), op.subjects[OWN]
    if not words.compiled:
        return op
    require_architecture("compiled", words.compiled)
    if words.device != "cpu":
        raise ValueError(f"device={words.device}: got compiled={words.compiled}, too, whose kernels run on the CPU")

    def call(*args: Any) -> Any:
        with ACCOUNT.raise_fault():
            return kernel(*args)

    allowed = terms_of_compiled(terms("torch"))
    return replace(op, subjects={**op.subjects, OWN: call}).changed(kernels=True, terms=allowed)


def usual_properties(op: Op) -> Sequence[str]:
    """What is asked of a kernel where nobody says otherwise: also INV where it promises the bits of slices.

    Of compiled kernels these are what can be asked of them.
    """
    usual = (*KERNEL_PROPERTIES, *(("INV",) if op.promises.invariant else ()))
    return tuple(c for c in usual if op.production.own_subject != EXECUTED or EXECUTED in PROPERTIES[c].kernels)
