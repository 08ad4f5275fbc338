"""A call in a file: its operation, its operands and its results, so that it can be made and judged again alone."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import torch
from torch.utils import _pytree as pytree

from ...oracles.verdicts.case import CaseError as CaseError
from ..places import wire
from .call import DispatcherCall, results_of
from .call_data import CallData, MissingOperation, call_of, data_of
from .judging import CallFinding, CallJudge

#: What a file says that it is; a later form has another number.
_FORM = "opassay-watched-call/2"


class _CaseFile(msgspec.Struct, frozen=True):
    """A call as a file has it; tensors are dense, and have the strides beside them."""

    form: str
    contract: str
    call: CallData


def write_case(path: Path, call: DispatcherCall, contract: str) -> None:
    """Write a call of a registered operation, without its derivatives.

    Raises:
        CaseError: it is a region, which has no operation of its own; or an operand has no form in a file.
    """
    if not isinstance(call.op, torch._ops.OpOverload):
        raise CaseError(f"{call.name} is a region of the program, and no operation that a file can name")
    data = msgspec.structs.replace(data_of(call), adjoints=[], tracked=[])
    try:
        path.write_bytes(wire.encode(_CaseFile(_FORM, contract, data)))
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
        call = call_of(file.call)
        if isinstance(call.op, MissingOperation):
            raise TypeError(f"got op={call.name!r}, need an operation that is registered here")
    except OSError:
        raise
    except Exception as err:  # of a file that somebody else wrote, anything
        raise CaseError(f"{path}: no file of a call: {type(err).__name__}: {str(err).partition(chr(10))[0]}") from err
    return call, file.contract


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
