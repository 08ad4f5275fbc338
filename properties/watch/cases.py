"""A call in a file: its operation, its operands and its results, so that it can be made and judged again alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.utils import _pytree as pytree

from ...oracles.verdicts.case import CaseError as CaseError
from ..candidates.layouts import place
from ..places import wire
from .call import DispatcherCall, Origin, Switches, results_of
from .judging import CallFinding, CallJudge

#: What a file says that it is; a later form has another number.
_FORM = "opassay-watched-call/1"
#: Types of torch that a file has by their names.
_BY_NAME = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class _CaseFile(msgspec.Struct, frozen=True):
    """A call as a file has it; tensors are dense, and have the strides beside them."""

    form: str
    op: str
    contract: str
    leaves: list[Any]
    strides: list[list[int]]
    structure: str
    results: list[Any]
    origin: Origin
    switches: Switches
    number: int


def write_case(path: Path, call: DispatcherCall, contract: str) -> None:
    """Write a call of a registered operation.

    Raises:
        CaseError: it is a region, which has no operation of its own; or an operand has no form in a file.
    """
    if not isinstance(call.op, torch._ops.OpOverload):
        raise CaseError(f"{call.name} is a region of the program, and no operation that a file can name")
    file = _CaseFile(
        _FORM, str(call.op), contract, [_to_file(leaf) for leaf in call.leaves], [[*t.stride()] for t in call.tensors],
        pytree.treespec_dumps(call.structure), list(call.results), call.origin, call.switches,
        call.number,
    )  # fmt: skip
    try:
        path.write_bytes(wire.encode(file))
    except (TypeError, ValueError) as err:
        raise CaseError(f"{call.name}: {err}") from err


def read_case(path: Path) -> tuple[DispatcherCall, str]:
    """The call of a file, and the contract by which it was judged; no code of the file is run.

    Raises:
        CaseError: it is no such file, or its operation is not registered here.
    """
    try:
        file = wire.decode(path.read_bytes(), _CaseFile)
        if file.form != _FORM:
            raise ValueError(f"got form={file.form!r}, need {_FORM!r}")
        strides = iter(file.strides)
        leaves = tuple(place(x, next(strides)) if isinstance(x, torch.Tensor) else _of_file(x) for x in file.leaves)
        structure = pytree.treespec_loads(file.structure)
        op = _operation(file.op)
        return DispatcherCall(
            op, leaves, structure, tuple(file.results), file.origin, file.switches, file.number
        ), file.contract
    except OSError:
        raise
    except Exception as err:  # of a file that somebody else wrote, anything
        raise CaseError(f"{path}: no file of a call: {type(err).__name__}: {str(err).partition(chr(10))[0]}") from err


def judge_again(path: Path) -> tuple[CallFinding, CallFinding]:
    """What is found about the results in a file, and about those of the same call made now.

    Raises:
        CaseError: as for `read_case`.
    """
    call, contract = read_case(path)
    judge = CallJudge(contract)
    leaves = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in call.leaves]
    args, kwargs = pytree.tree_unflatten(leaves, call.structure)
    before, began = judge.hold(call), time.perf_counter()
    with torch.no_grad():
        output = call.op(*args, **kwargs)
    call.seconds = time.perf_counter() - began
    call.results = results_of(call.op, args, kwargs, output)
    return before, judge.hold(call)


def _to_file(leaf: Any) -> Any:
    return {"torch": str(leaf)} if isinstance(leaf, _BY_NAME) else leaf


def _of_file(leaf: Any) -> Any:
    if not isinstance(leaf, dict):
        return leaf
    name = str(leaf["torch"])
    module, _, attribute = name.rpartition(".")
    return getattr(torch, attribute) if module == "torch" else torch.device(name)


def _operation(name: str) -> torch._ops.OpOverload:
    namespace, packet, overload = name.split(".")
    op = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    if not isinstance(op, torch._ops.OpOverload):
        raise TypeError(f"got op={name!r}, need an operation that is registered here")
    return op
