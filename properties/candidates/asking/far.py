"""FAR: so many rows that there are more than 2^31 elements, of which a kernel's chosen blocks write some."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from ....oracles.machine.ptx.far import ENDS
from ....oracles.machine.reserved import rows_in_pages
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import is_float
from ....oracles.verdicts.violation import Code, Violation
from ..arguments import CallArguments
from ..finding import Finding, not_asked, raised, require_no_fault, with_lines
from ..host.calls import Answer, CandidateCall, Manner, Sequel
from ..inputs import WAYS, keep
from ..layouts import Placing
from ..row_independence import keeps_rows
from ..row_sample import Part, with_rows
from ..session import Asking, Session
from ..specification import SpecError

#: Bytes of the rows that are repeated, of the longest of them. Rows behind the place where the last index ends.
_REPEATED, _BEHIND = 2**22, 2**22
#: Numbers of rows at which a spec is read to see whether it keeps them apart.
_FEW = (37, 5)
#: Bytes that addresses are reserved for.
_MOST = 2**37
_UNEXECUTED = "none of the candidate's kernels is executed as PTX; LAYOUT:strides asks for rows 2^31 elements apart"


def far(session: Session) -> Finding:
    """FAR: values at the ends of operands beyond 2^31 elements, and where indices of 32 bits wrap."""
    _ = session.first
    if session.history.executed is None:
        return not_asked("FAR", _UNEXECUTED)
    writes = session.writes or session.spec.find_writes(session.arguments, session.spec.state)
    if session.part is not None or session.share or writes:
        return not_asked("FAR", "the problem is large, or the call writes its arguments")
    for arguments, part in _problems(session):
        return _ask(session, arguments, part)
    return not_asked("FAR", "the spec does not take any number of rows, each by itself")


def _problems(session: Session) -> Iterator[tuple[CallArguments, Part]]:
    """Arguments whose rows are to be repeated, and how they are cut, with the number of rows that there are then."""
    spec, first, outputs = session.spec, session.arguments, session.native.outputs
    if not outputs or spec.numpy:
        return
    for symbol in session.domain.shapes.symbols:
        start = session.domain.shapes.extent(symbol)
        moved = [i for i, axis in symbol.axes if axis == 0 and i < len(first.tensors)]
        if len(moved) != len(symbol.axes) or any(y.shape[:1] != (start,) for y in outputs):
            continue
        if any(type(leaf) is int and leaf == start for leaf in first.leaves):
            continue
        items = [*(first.tensors[i] for i in moved), *outputs]
        sizes = [max(t.numel() // start, 1) for t in items]
        count = _count(sizes, [t.element_size() for t in items])
        repeated = rows_in_pages([max(first.tensors[i].nbytes // start, 1) for i in moved], _REPEATED)
        shapes = session.domain.shapes.resized({symbol: count})
        count = shapes[moved[0]][0]
        if not session.domain.allows(shapes) or any(shapes[i][0] != count for i in moved):
            continue
        rng = session.generator("FAR")
        with torch.no_grad():
            few = session.domain.at(first, session.domain.shapes.resized({symbol: repeated}))
            arguments = keep(session.filled(few, WAYS["FWD:signs"], rng), session.domain, rng)
        part = Part(count, 1, tuple(i in moved for i in range(len(first.tensors))), _far_shapes(outputs, count))
        if len(arguments.tensors[moved[0]]) == repeated and _keeps_apart(session, arguments, part):
            yield arguments, part


def _far_shapes(outputs: Sequence[torch.Tensor], count: int) -> tuple[tuple[int, ...], ...]:
    return tuple((count, *y.shape[1:]) for y in outputs)


def _count(sizes: Sequence[int], items: Sequence[int]) -> int:
    """How many rows of these sizes reach behind 2^31 elements: the longest, and those that are a fourth as long."""
    small = min(size for size in sizes if 4 * size >= max(sizes))
    for size in (small, max(sizes)):
        count = (ENDS[0] + _BEHIND) // size + 64
        if count * sum(map(math.prod, zip(sizes, items, strict=True))) <= _MOST:
            return count
    return count


def _keeps_apart(session: Session, arguments: CallArguments, part: Part) -> bool:
    """Whether the spec makes each row of its outputs of that row of the arguments alone.

    Its formula says that, where that reads no values, as a cast does; else other rows in another order, and fewer ones,
    have to give the same bits.
    """
    spec, state = session.spec, session.spec.state
    small = part.of(arguments, [row % _length(arguments, part) for row in range(_FEW[0])])
    try:
        if all(map(is_float, (*arguments.tensors, *state.values()))):
            at = functools.partial(with_rows, spec, small, replace(part, count=_FEW[0]))
            flags = (*(False for _ in state), *part.having)
            if keeps_rows(at, flags, _FEW, session.terms.contract(spec.dtype_of(small, state))):
                return True
        whole = spec.outputs(arguments, state)
        order = torch.randperm(len(whole[0]), generator=torch.Generator().manual_seed(0))
        for some in (order, order[: len(order) // 3], order[:1].repeat(3)):
            outputs = spec.outputs(part.of(arguments, some.tolist()), state)
            if not all(same_results(y[some], other) for y, other in zip(whole, outputs, strict=True)):
                return False
    except (SpecError, IndexError):
        return False
    return True


def _length(arguments: CallArguments, part: Part) -> int:
    """How many rows there are that are to be repeated."""
    return next(len(t) for t, has in zip(arguments.tensors, part.having, strict=True) if has)


def _ask(session: Session, arguments: CallArguments, part: Part) -> Finding:
    """Call the candidate, and compare the rows that were written."""
    state = session.spec.state
    call = CandidateCall.of(
        arguments, {name: state[name] for name in session.shared}, manner=Manner.FAR,
        placing=Placing(rows=part.count, repeated=list(part.having)), sequel=Sequel(fetched=True),
    )  # fmt: skip
    answer = session.candidate.ask(call)
    try:
        require_no_fault(answer.executed)
    except Violation as violation:
        if violation.code is Code.OPCODE:
            return not_asked("FAR", violation.title)
        raise
    if answer.raised:
        return raised("FAR", answer.raised, refusable=True)
    if tuple(answer.shapes) != part.shapes:
        return not_asked("FAR", f"the candidate gives shapes {answer.shapes} of {part.count} rows")
    rows = [] if answer.executed is None else answer.executed.rows
    if not rows:
        return not_asked("FAR", "the blocks that were chosen write no whole row of the outputs")
    return _compare(session, arguments, part, answer)


def _compare(session: Session, arguments: CallArguments, part: Part, answer: Answer) -> Finding:
    assert answer.executed is not None
    rows, state = answer.executed.rows, session.spec.state
    few = part.of(arguments, [row % _length(arguments, part) for row in rows])
    outputs = session.candidate.fetch(rows).outputs
    whole = Answer(outputs=outputs, form=answer.form, plain=answer.plain)
    finding = session.hold("FAR", few, state, session.spec.run(few, state), whole)
    pairs = zip(arguments.tensors, part.having, strict=True)
    sizes = [*(t.numel() // len(t) for t, has in pairs if has), *(math.prod(shape[1:]) for shape in part.shapes)]
    share = f"{len(rows)} of {part.count} rows of {max(sizes)} elements"
    finding = replace(finding, sampled=share)
    if finding.wrong is None or finding.wrong.outlier is None:
        return finding
    wraps = [f"wrapped    {line}" for line in answer.executed.wraps]
    return with_lines(finding, f"row        {rows[finding.wrong.outlier.index[0]]} of {part.count}", *wraps)


ASKING: dict[str, Asking] = {"FAR": far}
